"""Maps from observations to codes, or to distributions over them."""

from .base import DensityEncoder, Encoder, RowCodes
from .free import FreeFormEncoder
from .gaussian import BaseGaussianEncoder, GaussianEncoder
from .likelihood import LikelihoodEncoder
from .partial import (
    factor_net,
    index_net,
    partial_encoder,
    point_net,
    rank_one_factor_net,
    zero_imputing,
)
from .rank_one import RankOneEncoder
from .sites import SiteEncoder
from .stochastic import StochasticEncoder

__all__ = [
    "BaseGaussianEncoder",
    "DensityEncoder",
    "Encoder",
    "FreeFormEncoder",
    "GaussianEncoder",
    "LikelihoodEncoder",
    "RankOneEncoder",
    "RowCodes",
    "SiteEncoder",
    "StochasticEncoder",
    "factor_net",
    "index_net",
    "partial_encoder",
    "point_net",
    "rank_one_factor_net",
    "zero_imputing",
]
