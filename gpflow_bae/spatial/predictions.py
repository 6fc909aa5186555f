"""Monte Carlo predictions of counts and rates under a Gaussian posterior of the codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

from ..core.tracing import compiled
from ..likelihoods import CountLikelihood
from ..mcmc.noise import standard_noise
from ..posteriors import LatentSamples, Posterior

__all__ = [
    "DRAWS",
    "SpatialPrediction",
    "check_level",
    "count_draws",
    "counts_at",
    "rates_at",
    "with_channels_alike",
]

DRAWS = 100
"""Default number of draws of codes and parameters."""
_BYTES = 128 * 2**20  # bytes of draws in memory at a time
_MOST_COUNT = 2.0**63
_LEAST_RATE = 1e-30  # lower bound, for a finite logarithm


class SpatialPrediction(NamedTuple):
    """Expected counts of each gene and cell [N, P], and an interval."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def check_level(level: float) -> None:
    """Check that a level is between 0 and 1.

    :raises ValueError: if it is not.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}.")


def rates_at(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples,
    *,
    level: float,
    num_draws: int,
    seed: int,
    into: np.ndarray | None = None,
    columns: np.ndarray | None = None,
) -> SpatialPrediction:
    """Return expected counts, and central intervals of them.

    Intervals are lognormal, with the mean and standard deviation of log expected counts over draws
    of codes and parameters, in which they are about linear. So few draws are enough, and they are
    not stored.

    :param X: inputs [N, D + K + 2].
    :param codes: means and variances of each posterior sample [S, N, L].
    :param num_draws: total over all samples, at least one of each.
    :param into: row of the result for each row [N]; None for the same order.
    :param columns: column indices of genes [p]; None for all.
    """
    into = np.arange(len(X)) if into is None else into
    width = posterior.model.decoder.output_dim if columns is None else len(columns)
    found = _empty_prediction(len(X), width)

    def moments(likelihood: CountLikelihood, F: tf.Tensor, seed: tf.Tensor) -> tuple[Any, ...]:
        expected = likelihood.moments(F)[0]
        if columns is not None:
            expected = tf.gather(expected, columns, axis=-1)
        logs = tf.math.log(tf.maximum(expected, _LEAST_RATE))
        mean, variance = tf.nn.moments(logs, 0)
        return tf.reduce_mean(expected, 0), mean, variance

    spreads = stats.norm.ppf(0.5 + 0.5 * level)
    for rows, parts in _chunks_of_draws(posterior, X, codes, moments, num_draws, seed):
        expected, means, variances = (np.stack(v) for v in zip(*parts, strict=True))
        spread = np.sqrt(variances.mean(0) + means.var(0))
        centre = means.mean(0)
        at = into[rows]
        found.mean[at] = expected.mean(0)
        found.lower[at] = np.exp(centre - spreads * spread)
        found.upper[at] = np.exp(centre + spreads * spread)
    return found


def counts_at(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples,
    *,
    level: float,
    num_draws: int,
    seed: int,
) -> SpatialPrediction:
    """Return expected counts, and central intervals of counts from draws.

    Arguments as in :func:`rates_at`.
    """
    ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
    found = _empty_prediction(len(X), posterior.model.decoder.output_dim)
    for rows, parts in _chunks_of_draws(posterior, X, codes, _mean_and_draws, num_draws, seed):
        means, draws = zip(*parts, strict=True)
        found.mean[rows] = np.mean(means, 0)
        # The inverted CDF returns counts without interpolation.
        counts = np.concatenate(draws)
        found.lower[rows], found.upper[rows] = np.quantile(counts, ends, 0, method="inverted_cdf")
    return found


def _empty_prediction(*shape: int) -> SpatialPrediction:
    return SpatialPrediction(*(np.zeros(shape, np.float32) for _ in range(3)))


def _mean_and_draws(
    likelihood: CountLikelihood, F: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    return tf.reduce_mean(likelihood.moments(F)[0], 0), likelihood.draw(F, seed)


def with_channels_alike(codes: Any, num_spatial: int) -> LatentSamples:
    """Rotate the cell channels of each sample to match those of the first (Procrustes).

    Their prior is isotropic, so a chain may rotate them together with the decoder, and means over
    samples would mix channels. Spatial channels have different lengthscales. Use the result to
    interpret codes, not to decode them.

    :param codes: means and variances [S, N, L].
    :param num_spatial: number of channels that are not rotated, which come first.
    """
    means, variances = codes.mean.copy(), codes.variance.copy()
    reference = means[0, :, num_spatial:]
    for mean, variance in zip(means[1:], variances[1:], strict=True):
        left, _, right = np.linalg.svd(mean[:, num_spatial:].T @ reference)
        turn = left @ right
        mean[:, num_spatial:] = mean[:, num_spatial:] @ turn
        variance[:, num_spatial:] = variance[:, num_spatial:] @ np.square(turn)
    return LatentSamples(means, variances)


def count_draws(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples,
    num_draws: int,
    seed: int,
) -> np.ndarray:
    """Draw counts [num_draws, N, P], int64; arguments as in :func:`rates_at`.

    :raises ValueError: for sizes at which counts exceed int64.
    """
    found = []
    for _, parts in _chunks_of_draws(posterior, X, codes, _mean_and_draws, num_draws, seed):
        draws = np.concatenate([draws for _, draws in parts])
        if not (draws < _MOST_COUNT).all():
            raise ValueError(
                f"sizes are up to {X[:, -2].max():.3g}, and counts at them more than int64 can "
                "hold: give sizes of which 1 is the median of the fit's cells."
            )
        found.append(draws[:num_draws].astype(np.int64))
    return np.concatenate(found, 1)


def _chunks_of_draws(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples,
    reduced: Callable[[CountLikelihood, tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]],
    num_draws: int,
    seed: int,
) -> Iterator[tuple[slice, list[tuple[np.ndarray, ...]]]]:
    """Yield chunks of rows with the results of ``reduced`` for each sample.

    :param reduced: function of a likelihood, draws of its parameters F [draws, rows, P] and a seed.
    """
    model = posterior.model
    assert isinstance(model.likelihood, CountLikelihood)
    P, S = model.decoder.output_dim, len(codes.mean)
    of_sample = -(-num_draws // S)
    size = max(1, _BYTES // (4 * S * of_sample * P))

    @compiled
    def drawn(values: Any, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, seed: Any) -> Any:
        bound: Any = model.bind(values)
        shape = tf.concat([[of_sample], tf.shape(mean)], 0)
        latents = mean + tf.sqrt(variance) * standard_noise(shape, seed, mean.dtype)
        F = bound.decode(tf.broadcast_to(X, tf.concat([[of_sample], tf.shape(X)], 0)), latents)
        return reduced(bound.likelihood, F, tf.random.fold_in(seed, 1, alg="philox"))

    samples = [[tf.constant(v[s]) for v in posterior.parameters] for s in range(S)]
    for start in range(0, len(X), size):
        rows, found = slice(start, start + size), []
        for s, values in enumerate(samples):
            parts = (
                tf.constant(v) for v in (X[rows], codes.mean[s, rows], codes.variance[s, rows])
            )
            of_draws = drawn(values, *parts, tf.constant([seed, start * S + s], tf.int32))
            found.append(tuple(v.numpy() for v in of_draws))
        yield rows, found
