"""Check whether inducing points are enough for the lengthscale of the kernel."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf

from ...core.arguments import warn_caller
from ...latent_priors.inducing import InducingLatentPrior
from ...posteriors import Posterior

__all__ = ["explained_by_inducing", "num_inducing_needed", "warn_of_inducing"]

_ENOUGH = 0.95  # share of the prior variance
_MOST_INPUTS = 500
_SAMPLES = 4  # posterior samples whose shares are averaged


def explained_by_inducing(posterior: Posterior) -> float | None:
    """Return the share of the prior variance of codes that inducing points explain.

    It is the mean of 1 - (k(x, x) - q(x, x)) / k(x, x) over training inputs and some samples, q
    being the covariance that goes through the inducing points, of the kernel that has least of it.
    None for a prior without inducing points of known inputs.
    """
    X = _inputs(posterior)
    if X is None:
        return None
    found = []
    for number in _some(posterior.num_samples):
        left = _prior_of(posterior, number).unexplained_share(X)
        found.append(1.0 - float(tf.reduce_max(left)))
    return float(np.mean(found))


def num_inducing_needed(kernel: gpflow.kernels.Kernel, X: np.ndarray) -> int:
    """Return how many of the inputs ``X`` [N, D], as inducing points, would explain enough.

    Each is the input of the largest variance given those before it (pivoted Cholesky), which is no
    optimum, so fewer may do.
    """
    covariance = np.array(kernel(X), np.float64)
    left = covariance.diagonal().copy()
    least = (1.0 - _ENOUGH) * left.sum()
    features = np.zeros((0, len(X)))
    while left.sum() > least and len(features) < len(X):
        i = int(np.argmax(left))
        row = (covariance[i] - features[:, i] @ features) / np.sqrt(left[i])
        features = np.vstack([features, row])
        left = np.maximum(left - np.square(row), 0.0)
    return len(features)


def warn_of_inducing(posterior: Posterior) -> None:
    """Warn if inducing points are too few for the kernel at the fitted parameters, with advice.

    :warns UserWarning: if they explain less than 95 % of the prior variance of the codes.
    """
    share, X = explained_by_inducing(posterior), _inputs(posterior)
    if share is None or X is None or share >= _ENOUGH:
        return
    prior = _prior_of(posterior, posterior.num_samples - 1)
    needed = max(num_inducing_needed(kernel, X) for kernel in prior.kernels)
    number = prior.num_inducing
    fault = f"The {number} inducing points are too few for the lengthscale that was found"
    advice = f"Take at least {needed}"
    if needed <= number:
        fault = f"The places of the {number} inducing points do not suit the lengthscale"
        advice = "Take as many at other places"
    warn_caller(
        f"{fault}: they explain {max(share, 0.0):.0%} of the prior variance of the codes at the "
        f"training inputs, and of the rest neighbouring points tell each other nothing. {advice} "
        "(inducing_variable=gpflow_bae.inducing_variables.k_means(X, M)), or an exact GP.",
    )


def _inputs(posterior: Posterior) -> np.ndarray | None:
    """Return distinct training inputs [N, D], or an even part of them."""
    prior = getattr(posterior.model, "latent_prior", None)
    if not isinstance(prior, InducingLatentPrior) or prior.inputs is not None:
        return None
    if posterior.data.X is None:
        return None
    X = np.asarray(posterior.data.X)
    X = np.unique(X.reshape(-1, X.shape[-1]), axis=0)
    return X[np.linspace(0, len(X) - 1, min(len(X), _MOST_INPUTS)).astype(int)]


def _some(number: int) -> np.ndarray:
    return np.unique(np.linspace(0, number - 1, _SAMPLES).astype(int))


def _prior_of(posterior: Posterior, number: int) -> InducingLatentPrior:
    bound = posterior.model.bind([tf.constant(v[number]) for v in posterior.parameters])
    prior: InducingLatentPrior = bound.latent_prior
    return prior
