"""Maps from codes to likelihood parameters."""

from .gp import GPDecoder
from .keras import KerasDecoder, fan_in_prior, normal_prior

__all__ = ["GPDecoder", "KerasDecoder", "fan_in_prior", "normal_prior"]
