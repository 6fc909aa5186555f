"""Recovered codes as trajectories, in the units of the truth and with their uncertainty."""

from __future__ import annotations

import statistics

import numpy as np

from gpflow_bae import metrics
from gpflow_bae.posteriors import LatentSamples

__all__ = ["aligned_moments", "trajectories"]


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
