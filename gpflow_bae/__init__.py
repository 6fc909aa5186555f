"""Bayesian and Gaussian-process autoencoders for GPflow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .versions import __version__

if TYPE_CHECKING:
    from . import (
        base,
        bijectors,
        core,
        data,
        datasets,
        decoders,
        diagnostics,
        encoders,
        guides,
        impute,
        inducing_variables,
        inference,
        inputs,
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
        spatial,
    )
    from .core.terminal import quiet_tensorflow
    from .inference.fit import fit
    from .posteriors import Posterior

__all__ = [
    "Posterior",
    "__version__",
    "base",
    "bijectors",
    "core",
    "data",
    "datasets",
    "decoders",
    "diagnostics",
    "encoders",
    "fit",
    "guides",
    "impute",
    "inducing_variables",
    "inference",
    "inputs",
    "kernels",
    "latent_priors",
    "likelihoods",
    "mcmc",
    "metrics",
    "models",
    "optimizers",
    "plotting",
    "posteriors",
    "quiet_tensorflow",
    "serving",
    "spatial",
]

# Rooms of names that are no room.
_HOMES = {"Posterior": "posteriors", "fit": "inference", "quiet_tensorflow": "core.terminal"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Rooms are imported when they are asked for: TensorFlow takes seconds to load."""
        if name in _HOMES:
            return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        # The estimators alone need scikit-learn, so importing all names leaves them out.
        if name in __all__ or name == "estimators":
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
