"""Bayesian and Gaussian-process autoencoders for GPflow."""

from . import (
    base,
    bijectors,
    datasets,
    decoders,
    diagnostics,
    encoders,
    functional,
    inducing_variables,
    kernels,
    latent_priors,
    likelihoods,
    mcmc,
    metrics,
    models,
    plotting,
    posteriors,
    serving,
    training,
)
from .posteriors import Posterior
from .versions import __version__

__all__ = [
    "Posterior",
    "__version__",
    "base",
    "bijectors",
    "datasets",
    "decoders",
    "diagnostics",
    "encoders",
    "functional",
    "inducing_variables",
    "kernels",
    "latent_priors",
    "likelihoods",
    "mcmc",
    "metrics",
    "models",
    "plotting",
    "posteriors",
    "serving",
    "training",
]
