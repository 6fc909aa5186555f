"""Observation likelihoods: GPflow likelihoods that omit missing entries, and further ones."""

from .counts import CountLikelihood, NegativeBinomial, Poisson, ZeroInflatedNegativeBinomial
from .decoder import DecoderLikelihood
from .masked import Bernoulli, Gaussian, MaskedLikelihood, entrywise, masked
from .ordinal import Ordinal

__all__ = [
    "Bernoulli",
    "CountLikelihood",
    "DecoderLikelihood",
    "Gaussian",
    "MaskedLikelihood",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "ZeroInflatedNegativeBinomial",
    "entrywise",
    "masked",
]
