"""Bayesian and Gaussian-process autoencoders for GPflow."""

from . import (
    base,
    datasets,
    decoders,
    diagnostics,
    encoders,
    functional,
    inducing_variables,
    latent_priors,
    likelihoods,
    mcmc,
    metrics,
    models,
    plotting,
    posteriors,
    training,
)
from .posteriors import Posterior
from .versions import __version__

__all__ = [
    "Posterior",
    "__version__",
    "base",
    "datasets",
    "decoders",
    "diagnostics",
    "encoders",
    "functional",
    "inducing_variables",
    "latent_priors",
    "likelihoods",
    "mcmc",
    "metrics",
    "models",
    "plotting",
    "posteriors",
    "training",
]
