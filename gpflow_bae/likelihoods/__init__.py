"""Observation likelihoods with missing entries; GPflow likelihoods, extended."""

from .decoder import DecoderLikelihood
from .masked import Bernoulli, Gaussian, MaskedLikelihood, entrywise, masked
from .ordinal import Ordinal

__all__ = [
    "Bernoulli",
    "DecoderLikelihood",
    "Gaussian",
    "MaskedLikelihood",
    "Ordinal",
    "entrywise",
    "masked",
]
