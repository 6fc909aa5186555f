"""Maps from codes to likelihood parameters."""

from .keras import KerasDecoder, fan_in_prior, normal_prior

__all__ = ["KerasDecoder", "fan_in_prior", "normal_prior"]
