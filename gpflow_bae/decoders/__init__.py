"""Maps from codes to likelihood parameters."""

from .biases import Biases
from .conditional import ConditionalDecoder
from .gp import GPDecoder
from .hierarchical import HierarchicalDecoder, NormalGivenVariance
from .identity import Identity
from .keras import KerasDecoder, fan_in_prior, normal_prior

__all__ = [
    "Biases",
    "ConditionalDecoder",
    "GPDecoder",
    "HierarchicalDecoder",
    "Identity",
    "KerasDecoder",
    "NormalGivenVariance",
    "fan_in_prior",
    "normal_prior",
]
