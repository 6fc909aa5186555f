"""Bayesian and Gaussian-process autoencoders for GPflow."""

import importlib
from typing import Any

from . import (
    base,
    bijectors,
    data,
    datasets,
    decoders,
    diagnostics,
    encoders,
    functional,
    guides,
    impute,
    inducing_variables,
    inference,
    kernels,
    latent_priors,
    likelihoods,
    mcmc,
    metrics,
    models,
    optimizers,
    plotting,
    posteriors,
    serving,
)
from .inference import fit
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
    "fit",
    "functional",
    "guides",
    "impute",
    "inducing_variables",
    "inference",
    "kernels",
    "latent_priors",
    "likelihoods",
    "mcmc",
    "metrics",
    "models",
    "optimizers",
    "plotting",
    "posteriors",
    "serving",
]


def __getattr__(name: str) -> Any:
    """``estimators`` on demand: of all rooms it alone needs scikit-learn, which takes a second."""
    if name == "estimators":
        return importlib.import_module(".estimators", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
