"""Guides: inference of codes from observations, with an encoder and a prior."""

from .base import BoundGuide, CodeDraws, Guide
from .conditional import ConditionalGuide
from .flows import AmortizedPlanarGuide, FlowGuide, PointEstimate
from .gaussian import CodePosterior, GaussianGuide, MeanFieldGuide, SubsetGuide
from .implicit import ImplicitGuide

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
    "MeanFieldGuide",
    "PointEstimate",
    "SubsetGuide",
]
