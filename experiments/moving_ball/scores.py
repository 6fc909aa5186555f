"""Recovered codes as trajectories, in the units of the truth and with their uncertainty."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from gpflow_bae import diagnostics, metrics
from gpflow_bae.posteriors import LatentSamples, Posterior

__all__ = ["aligned_moments", "convergence", "trajectories"]


def aligned_moments(
    train: LatentSamples, latents: LatentSamples, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of ``latents`` as trajectories [T, N, 2], in the units of the truth.

    Each posterior sample has its own affine map, fitted on the training truth, because samples
    may be rotated against each other.
    """
    means, variances = [], []
    for train_mean, mean, variance in zip(train.mean, latents.mean, latents.variance, strict=True):
        affine = metrics.fit_affine(train_mean, truth)
        means.append(affine(mean))
        variances.append(affine.map_variance(variance))
    return LatentSamples(np.stack(means), np.stack(variances)).moments()


def trajectories(
    train: LatentSamples, latents: LatentSamples, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`aligned_moments`, with a variance for the part of the chart that is not affine.

    That part is no error of the posterior, which does not know the true coordinates, but of the
    affine map that scores it. Per coordinate it is the smallest variance with which the 90 %
    interval covers 90 % of the **training** trajectories; 0 where they are covered without it.
    """
    z = statistics.NormalDist().inv_cdf(0.95)
    train_mean, train_variance = aligned_moments(train, train, truth)
    wanted = np.square((truth - train_mean) / z) - train_variance
    chart = np.maximum(np.quantile(wanted, 0.9, axis=(0, 1)), 0.0)
    mean, variance = aligned_moments(train, latents, truth)
    return mean, variance + chart


def convergence(posterior: Posterior) -> dict[str, float]:
    """How well several chains agree: rank-normalised split R-hat of functions of the samples.

    Of the pixels' probabilities at the training frames (95 % of those that vary have no larger
    one), of the log likelihood and of the log prior. Nothing for a single chain. The best log
    likelihood of a round says which chain found the most.
    """
    trace = posterior.bank.trace
    if "log_likelihood" not in trace:
        return {}
    rounds = posterior.bank.settings.get("burnin_rounds", 0)
    likelihood, prior = (trace[k][:, rounds:] for k in ("log_likelihood", "log_prior"))
    found = {"log_likelihood_best": float(likelihood.max())}
    if len(likelihood) < 2 or posterior.latents is None:
        return found
    probabilities = np.stack(
        [
            _probabilities(posterior.model, values, codes)
            for *values, codes in zip(*posterior.parameters, posterior.latents, strict=True)
        ]
    )
    by_chain = probabilities.reshape(*posterior.bank.latents.shape[:2], -1)
    agreement = diagnostics.function_space_diagnostics(by_chain)
    numbers = {"log_likelihood": likelihood, "log_prior": prior}
    found |= {
        f"rhat_{name}": float(diagnostics.rank_normalised_rhat(values[..., None])[0])
        for name, values in numbers.items()
    }
    return found | {"rhat_median": agreement.rhat_median, "rhat_q95": agreement.rhat_q95}


def _probabilities(model: Any, values: list[np.ndarray], codes: np.ndarray) -> np.ndarray:
    """Of the pixels of the training frames, decoded from the chain's own codes: no fresh noise."""
    bound = model.bind(values)
    mean, _ = bound.likelihood.moments(bound.decode(None, codes))
    return mean.numpy()
