"""Embedding of places by their expected counts, in standard deviations of one cell's counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..core.tracing import compiled
from ..likelihoods import CountLikelihood
from ..posteriors import Posterior
from .covariates import reference_inputs

__all__ = ["places_embedded", "stabilised"]

_BYTES = 16 * 2**20  # bytes of expected counts in memory at a time
_COMPONENTS = 16
_EXACT_GENES = 2048  # up to this many genes the covariance is decomposed exactly
_SKETCH = 64  # dimension of the random subspace for more genes
_FOR_AXES = 100_000_000  # entries of the evenly spaced rows that the axes are of
_DECODED = 4_000_000_000  # entries of the expected counts of all cells, genes and samples
_FURTHEST, _STEPS = 8.0, 128  # half-width of the grid of log counts, and steps on either side


def stabilised(likelihood: CountLikelihood, logs: tf.Tensor, centre: tf.Tensor) -> tf.Tensor:
    """Transform expected counts so that the standard deviation of counts is 1 everywhere.

    It is the integral of d mean / sd(mean) from ``centre``: 2 sqrt(mean) for Poisson counts, and
    closer to a logarithm for more dispersed ones (Bartlett 1947).

    :param logs: parameters of the likelihood, logarithms of expected counts [N, P].
    :param centre: log expected counts that map to zero [P]; differences are clipped at eight nats.
    """
    offsets = tf.linspace(-_FURTHEST, _FURTHEST, 2 * _STEPS + 1)
    offsets = tf.cast(offsets, logs.dtype)
    mean, variance = likelihood.moments(centre + offsets[:, None])
    slope = mean * tf.math.rsqrt(variance)  # derivative with respect to the log count
    steps = 0.5 * (slope[1:] + slope[:-1]) * (_FURTHEST / _STEPS)
    scale = tf.concat([tf.zeros_like(steps[:1]), tf.cumsum(steps)], 0)
    scale = tf.transpose(scale - scale[_STEPS])  # of each gene, at the grid's points
    place = tf.clip_by_value((logs - centre) / _FURTHEST, -1.0, 1.0) * _STEPS + _STEPS
    below = tf.minimum(tf.floor(place), 2.0 * _STEPS - 1.0)
    index = tf.cast(below, tf.int32) + tf.range(tf.shape(scale)[0]) * tf.shape(scale)[1]
    low, high = (tf.gather(tf.reshape(scale, [-1]), index + i) for i in (0, 1))
    return low + (place - below) * (high - low)


def places_embedded(
    posterior: Posterior, means: np.ndarray, num_spatial: int, num_covariates: int = 0
) -> np.ndarray:
    """Embed places by their expected counts: [N, at most 16].

    The embedding is the principal components of :func:`stabilised` expected counts, averaged over
    posterior samples (some of them where cells and genes are many), with cell channels at zero, for
    cells of median size in the first slice and with average covariates.
    Distances are in standard deviations of a single cell's counts, whatever the scales of channels:
    genes with low or highly dispersed counts contribute little.

    :param means: means of the codes [S, N, L].
    :param num_spatial: number of spatial channels, which come first.
    :param num_covariates: number of columns of covariates in the inputs.
    """
    model = posterior.model
    reference = tf.constant(reference_inputs(posterior.data.X[0, :1].numpy(), num_covariates))

    @compiled
    def expected(values: Any, codes: tf.Tensor) -> tf.Tensor:
        bound: Any = model.bind(values)
        space = tf.concat([codes[:, :num_spatial], tf.zeros_like(codes[:, num_spatial:])], -1)
        logs = bound.decode(tf.repeat(reference, tf.shape(codes)[0], 0), space)
        centre = bound.decode(reference, tf.zeros_like(codes[:1]))[0]
        return stabilised(bound.likelihood, logs, centre)

    N, P = means.shape[1], model.decoder.output_dim
    # Evenly spaced, so that each chain has its share.
    number = max(posterior.bank.num_chains, min(len(means), _DECODED // (N * P)))
    chosen = np.unique(np.linspace(0, len(means) - 1, number).round().astype(int))
    samples = [[tf.constant(v[s]) for v in posterior.parameters] for s in chosen]
    size = max(1, _BYTES // (8 * P))

    def blocks(step: int) -> Iterator[np.ndarray]:
        for start in range(0, N, size * step):
            rows = slice(start, start + size * step, step)
            total: Any = 0.0
            for values, mean in zip(samples, means[chosen], strict=True):
                total += expected(values, tf.constant(mean[rows])).numpy().astype(float)
            yield total / len(samples)

    return _principal_components(blocks, N, P)


def _principal_components(
    blocks: Callable[[int], Iterator[np.ndarray]], N: int, P: int
) -> np.ndarray:
    """Return principal components [N, at most 16] of rows [N, P].

    Axes are those of some of the rows, if these are many. For many columns they come from a
    randomised range finder (Halko et al. 2011), which suits rows that are decoded from few channels
    and so have low rank.

    :param blocks: function of a number n that iterates over blocks of every n-th row.
    """
    step = max(1, N * P // _FOR_AXES)
    centre = sum(values.sum(0) for values in blocks(step)) / len(range(0, N, step))
    basis = np.eye(P)
    if P > _EXACT_GENES:
        basis = np.random.default_rng(0).normal(size=(P, _SKETCH))
        for _ in range(2):
            basis = sum((v - centre).T @ ((v - centre) @ basis) for v in blocks(step))
            basis, _ = np.linalg.qr(basis)
    covariance = np.zeros((basis.shape[1],) * 2)
    for values in blocks(step):
        part = values - centre if P <= _EXACT_GENES else (values - centre) @ basis
        covariance += part.T @ part
    _, vectors = np.linalg.eigh(covariance)
    vectors = basis @ vectors[:, ::-1][:, :_COMPONENTS]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])])
    return np.concatenate([(values - centre) @ vectors for values in blocks(1)])
