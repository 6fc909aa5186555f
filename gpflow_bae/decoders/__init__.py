"""Maps from codes to likelihood parameters."""

from .gp import GPDecoder
from .hierarchical import HierarchicalDecoder, NormalGivenVariance
from .keras import KerasDecoder, fan_in_prior, normal_prior

__all__ = [
    "GPDecoder",
    "HierarchicalDecoder",
    "KerasDecoder",
    "NormalGivenVariance",
    "fan_in_prior",
    "normal_prior",
]
