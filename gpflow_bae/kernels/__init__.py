"""Kernels that GPflow does not have: objects seen from views, and cosine similarity."""

from .normalized_linear import NormalizedLinear
from .object_view import ObjectView

__all__ = ["NormalizedLinear", "ObjectView"]
