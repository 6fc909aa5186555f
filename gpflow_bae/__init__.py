"""Bayesian and Gaussian-process autoencoders for GPflow."""

from . import (
    base,
    bijectors,
    data,
    datasets,
    decoders,
    diagnostics,
    encoders,
    functional,
    inducing_variables,
    inference,
    kernels,
    latent_priors,
    likelihoods,
    mcmc,
    metrics,
    models,
    plotting,
    posteriors,
    serving,
)
from .posteriors import Posterior
from .versions import __version__

__all__ = [
    "Posterior",
    "__version__",
    "base",
    "bijectors",
    "data",
    "datasets",
    "decoders",
    "diagnostics",
    "encoders",
    "functional",
    "inducing_variables",
    "inference",
    "kernels",
    "latent_priors",
    "likelihoods",
    "mcmc",
    "metrics",
    "models",
    "plotting",
    "posteriors",
    "serving",
]
