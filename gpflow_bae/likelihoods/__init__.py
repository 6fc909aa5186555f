"""Observation likelihoods with missing entries; GPflow likelihoods, extended."""

from .masked import Bernoulli, Gaussian, MaskedLikelihood, masked

__all__ = ["Bernoulli", "Gaussian", "MaskedLikelihood", "masked"]
