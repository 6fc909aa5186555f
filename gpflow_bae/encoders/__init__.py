"""Maps from observations to codes, or to distributions over them."""

from .base import DensityEncoder, Encoder, RowCodes
from .free import FreeFormEncoder
from .gaussian import BaseGaussianEncoder, GaussianEncoder
from .partial import partial_encoder
from .stochastic import StochasticEncoder

__all__ = [
    "BaseGaussianEncoder",
    "DensityEncoder",
    "Encoder",
    "FreeFormEncoder",
    "GaussianEncoder",
    "RowCodes",
    "StochasticEncoder",
    "partial_encoder",
]
