"""Counts and rates under a Gaussian posterior of the codes, by draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..likelihoods import CountLikelihood
from ..mcmc.noise import standard_noise
from ..posteriors import JointLatentSamples, LatentSamples, Posterior
from ..tracing import compiled

__all__ = [
    "SpatialPrediction",
    "count_draws",
    "places_embedded",
    "predicted",
    "with_channels_alike",
]

_BYTES = 128 * 2**20  # of draws that are in memory together
_COMPONENTS = 16


class SpatialPrediction(NamedTuple):
    """Of each gene of each cell [N, P]: expected counts, and an interval."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def predicted(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples | JointLatentSamples,
    *,
    of_counts: bool,
    level: float,
    num_draws: int,
    seed: int,
) -> SpatialPrediction:
    """Expected counts, and central intervals by draws of the codes.

    :param X: inputs [N, D + 2].
    :param codes: of each posterior sample, means and variances [S, N, L].
    :param of_counts: whether intervals are of counts, else of expected ones.
    :param num_draws: of all samples together, at least one of each.
    """
    ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
    # The smallest count with at least that probability; expected ones are interpolated.
    method: Any = "inverted_cdf" if of_counts else "linear"
    shape = (len(X), posterior.model.decoder.output_dim)
    found = SpatialPrediction(*(np.zeros(shape, np.float32) for _ in range(3)))
    for rows, mean, draws in _passes(posterior, X, codes, of_counts, num_draws, seed):
        found.mean[rows] = mean
        found.lower[rows], found.upper[rows] = np.quantile(draws, ends, 0, method=method)
    return found


def with_channels_alike(codes: Any, num_spatial: int) -> LatentSamples:
    """Codes of each sample with their channels of cells turned towards those of the first.

    The prior of these is the same in all directions, so a chain may turn them with the decoder, and
    means over samples would be of different channels. Channels of space have lengthscales of their
    own. For what is read of codes, not for what is decoded.

    :param codes: means and variances [S, N, L].
    :param num_spatial: channels that stay as they are, which come first.
    """
    means, variances = codes.mean.copy(), codes.variance.copy()
    reference = means[0, :, num_spatial:]
    for mean, variance in zip(means[1:], variances[1:], strict=True):
        left, _, right = np.linalg.svd(mean[:, num_spatial:].T @ reference)
        turn = left @ right
        mean[:, num_spatial:] = mean[:, num_spatial:] @ turn
        variance[:, num_spatial:] = variance[:, num_spatial:] @ np.square(turn)
    return LatentSamples(means, variances)


def places_embedded(
    posterior: Posterior, X: np.ndarray, means: np.ndarray, num_spatial: int
) -> np.ndarray:
    """How expected counts differ between places: [N, at most 16].

    Principal components of the logarithms of rates, averaged over posterior samples, with channels
    of cells at zero. Distances are those of the genes' logarithms, whatever the scales of channels.

    :param X: inputs [N, D + 2], of cells of one size.
    :param means: of the codes [S, N, L].
    """
    model = posterior.model

    @compiled
    def logs(values: Any, X: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
        bound: Any = model.bind(values)
        space = tf.concat([codes[:, :num_spatial], tf.zeros_like(codes[:, num_spatial:])], -1)
        return bound.decode(X, space)

    samples = [[tf.constant(v[s]) for v in posterior.parameters] for s in range(len(means))]
    N, P = len(X), model.decoder.output_dim
    size = max(1, _BYTES // (8 * P))

    def blocks() -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, N, size):
            rows = slice(start, start + size)
            at = tf.constant(X[rows])
            parts = (logs(v, at, tf.constant(m[rows])) for v, m in zip(samples, means, strict=True))
            yield rows, sum(part.numpy().astype(float) for part in parts) / len(samples)

    total, squares = np.zeros(P), np.zeros((P, P))
    for _, values in blocks():
        total += values.sum(0)
        squares += values.T @ values
    centre = total / N
    _, vectors = np.linalg.eigh(squares / N - np.outer(centre, centre))
    vectors = vectors[:, ::-1][:, :_COMPONENTS]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])])
    found = np.empty((N, vectors.shape[1]))
    for rows, values in blocks():
        found[rows] = (values - centre) @ vectors
    return found


def count_draws(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples | JointLatentSamples,
    num_draws: int,
    seed: int,
) -> np.ndarray:
    """Counts [num_draws, N, P], int32; arguments as of :func:`predicted`."""
    passes = _passes(posterior, X, codes, True, num_draws, seed)
    parts = [draws[:num_draws].astype(np.int32) for _, _, draws in passes]
    return np.concatenate(parts, 1)


def _passes(
    posterior: Posterior,
    X: np.ndarray,
    codes: LatentSamples | JointLatentSamples,
    of_counts: bool,
    num_draws: int,
    seed: int,
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Rows, their expected counts, and draws [at least num_draws, rows, P], some rows at a time."""
    model = posterior.model
    assert isinstance(model.likelihood, CountLikelihood)
    P, S = model.decoder.output_dim, len(codes.mean)
    of_sample = -(-num_draws // S)
    size = max(1, _BYTES // (4 * S * of_sample * P))

    @tf.function(reduce_retracing=True)
    def drawn(values: Any, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, seed: Any) -> Any:
        bound: Any = model.bind(values)
        shape = tf.concat([[of_sample], tf.shape(mean)], 0)
        latents = mean + tf.sqrt(variance) * standard_noise(shape, seed, mean.dtype)
        F = bound.decode(tf.broadcast_to(X, tf.concat([[of_sample], tf.shape(X)], 0)), latents)
        expected = bound.likelihood.moments(F)[0]
        if not of_counts:
            return tf.reduce_mean(expected, 0), expected
        seed = tf.random.fold_in(seed, 1, alg="philox")
        return tf.reduce_mean(expected, 0), bound.likelihood.draw(F, seed)

    samples = [[tf.constant(v[s]) for v in posterior.parameters] for s in range(S)]
    for start in range(0, len(X), size):
        rows, found = slice(start, start + size), []
        for s, values in enumerate(samples):
            parts = (
                tf.constant(v) for v in (X[rows], codes.mean[s, rows], codes.variance[s, rows])
            )
            found.append(drawn(values, *parts, tf.constant([seed, start * S + s], tf.int32)))
        means, draws = zip(*found, strict=True)
        yield rows, np.mean(means, 0), np.concatenate(draws)
