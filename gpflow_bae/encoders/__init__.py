"""Maps from observations to codes, or to distributions over them."""

from .base import DensityEncoder, Encoder, RowCodes
from .free import FreeFormEncoder
from .gaussian import BaseGaussianEncoder, GaussianEncoder
from .partial import (
    factor_net,
    index_net,
    partial_encoder,
    point_net,
    zero_imputing,
)
from .stochastic import StochasticEncoder

__all__ = [
    "BaseGaussianEncoder",
    "DensityEncoder",
    "Encoder",
    "FreeFormEncoder",
    "GaussianEncoder",
    "RowCodes",
    "StochasticEncoder",
    "factor_net",
    "index_net",
    "partial_encoder",
    "point_net",
    "zero_imputing",
]
