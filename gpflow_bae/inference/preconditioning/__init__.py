"""Linear maps of a sampler's steps: by priors, by the Fisher information, or fitted at a start."""

from .at_start import KINDS, AffineMap, affine_map, unfitted_map
from .fisher import FisherPreconditioner
from .linear_map import CodeMap, KroneckerMap, LinearMap, PointMap
from .preconditioner import Preconditioner

__all__ = [
    "KINDS",
    "AffineMap",
    "CodeMap",
    "FisherPreconditioner",
    "KroneckerMap",
    "LinearMap",
    "PointMap",
    "Preconditioner",
    "affine_map",
    "unfitted_map",
]
