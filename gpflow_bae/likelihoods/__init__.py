"""Observation likelihoods with missing entries; GPflow likelihoods, extended."""

from .decoder import DecoderLikelihood
from .masked import Bernoulli, Gaussian, MaskedLikelihood, entrywise, masked

__all__ = [
    "Bernoulli",
    "DecoderLikelihood",
    "Gaussian",
    "MaskedLikelihood",
    "entrywise",
    "masked",
]
