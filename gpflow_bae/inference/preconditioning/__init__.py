"""Linear maps of a sampler's steps: by priors, by the Fisher information, or fitted at a start."""

from .at_start import AffineMap, Whitening, affine_map, unfitted_map
from .fisher import FisherPreconditioner
from .linear_map import CodeMap, KroneckerMap, LinearMap, PointMap
from .preconditioner import Preconditioner

__all__ = [
    "AffineMap",
    "CodeMap",
    "FisherPreconditioner",
    "KroneckerMap",
    "LinearMap",
    "PointMap",
    "Preconditioner",
    "Whitening",
    "affine_map",
    "unfitted_map",
]
