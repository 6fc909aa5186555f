"""Kernels beyond GPflow's: objects and views, cosine similarity, categories."""

from .categorical import Categorical
from .normalized_linear import NormalizedLinear
from .object_view import ObjectView

__all__ = ["Categorical", "NormalizedLinear", "ObjectView"]
