"""Maps from codes to likelihood parameters."""

from .biases import Biases
from .conditional import ConditionalDecoder
from .gp import GPDecoder
from .keras import KerasDecoder, fan_in_prior, normal_prior

__all__ = [
    "Biases",
    "ConditionalDecoder",
    "GPDecoder",
    "KerasDecoder",
    "fan_in_prior",
    "normal_prior",
]
