"""How codes are inferred from observations: what stands between an encoder and a prior."""

from .base import BoundGuide, CodeDraws, Guide
from .conditional import ConditionalGuide
from .flows import AmortizedPlanarGuide, FlowGuide, PointEstimate
from .gaussian import (
    CodePosterior,
    GaussianGuide,
    JointCodePosterior,
    MeanFieldGuide,
    RankOneGuide,
)
from .implicit import ImplicitGuide
from .sites import SiteGuide

__all__ = [
    "AmortizedPlanarGuide",
    "BoundGuide",
    "CodeDraws",
    "CodePosterior",
    "ConditionalGuide",
    "FlowGuide",
    "GaussianGuide",
    "Guide",
    "ImplicitGuide",
    "JointCodePosterior",
    "MeanFieldGuide",
    "PointEstimate",
    "RankOneGuide",
    "SiteGuide",
]
