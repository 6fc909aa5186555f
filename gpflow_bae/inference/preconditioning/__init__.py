"""Linear preconditioners of a sampler, from priors and from the Fisher information."""

from .at_start import AffineMap, Whitening, affine_map, unfitted_map
from .fisher import FisherPreconditioner
from .linear_map import CodeMap, KroneckerMap, PointMap
from .preconditioner import Preconditioner

__all__ = [
    "AffineMap",
    "CodeMap",
    "FisherPreconditioner",
    "KroneckerMap",
    "PointMap",
    "Preconditioner",
    "Whitening",
    "affine_map",
    "unfitted_map",
]
