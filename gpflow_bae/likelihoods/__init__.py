"""Observation likelihoods: GPflow likelihoods that omit missing entries, and further ones."""

from .by_column import ByColumn
from .counts import CountLikelihood, NegativeBinomial, Poisson, ZeroInflatedNegativeBinomial
from .decoder import DecoderLikelihood
from .entrywise import entrywise
from .masked import Bernoulli, Gaussian, MaskedLikelihood, masked
from .ordinal import Ordinal

__all__ = [
    "Bernoulli",
    "ByColumn",
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
