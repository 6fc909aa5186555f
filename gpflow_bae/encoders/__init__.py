"""Maps from observations to codes, or to distributions over them."""

from .free import FreeFormEncoder
from .gaussian import BaseGaussianEncoder, GaussianEncoder
from .inputs import side_inputs
from .partial import factor_net, index_net, partial_encoder, point_net, zero_imputing
from .points import (
    AmortizedPlanarPosterior,
    CodeDraws,
    FlowPosterior,
    GaussianPosterior,
    PointEstimate,
    PointPosterior,
)
from .stochastic import StochasticEncoder

__all__ = [
    "AmortizedPlanarPosterior",
    "BaseGaussianEncoder",
    "CodeDraws",
    "FlowPosterior",
    "FreeFormEncoder",
    "GaussianEncoder",
    "GaussianPosterior",
    "PointEstimate",
    "PointPosterior",
    "StochasticEncoder",
    "factor_net",
    "index_net",
    "partial_encoder",
    "point_net",
    "side_inputs",
    "zero_imputing",
]
