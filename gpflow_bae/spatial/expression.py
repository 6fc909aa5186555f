"""What draws of expected counts say of genes: between groups of cells, and over space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..core.tracing import compiled
from ..likelihoods import CountLikelihood
from ..posteriors import Posterior

__all__ = ["between_groups", "false_discoveries", "over_space", "some_rows"]

_BYTES = 64 * 2**20  # of expected counts that are in memory together
_MOST_CELLS = 2000  # of a group; more would say nothing else


def some_rows(rows: np.ndarray, seed: int) -> np.ndarray:
    """Of many rows some, drawn at random, in their order."""
    if len(rows) <= _MOST_CELLS:
        return rows
    rng = np.random.default_rng([seed, 0xDE])
    return np.sort(rng.choice(rows, _MOST_CELLS, replace=False))


def _bound_calls(
    posterior: Posterior, function: Any, codes: np.ndarray, size: int
) -> Iterator[Any]:
    """``function(model at a sample, codes [d, n, L], number)`` of some draws at a time.

    :param codes: of each posterior sample [S, D, n, L].
    :param size: bytes of a result for one draw.
    """
    call = compiled(lambda values, *rest: function(posterior.model.bind(values), *rest))
    at_once, number = max(1, _BYTES // size), 0
    for s, of_sample in enumerate(codes):
        values = [tf.constant(v[s]) for v in posterior.parameters]
        for start in range(0, len(of_sample), at_once):
            part = of_sample[start : start + at_once]
            found = call(values, tf.constant(part), tf.constant(number))
            yield tf.nest.map_structure(lambda v: v.numpy(), found)
            number += 1


def _repeated(values: np.ndarray, codes: tf.Tensor) -> tf.Tensor:
    """[d, n, ...] of values [n, ...]."""
    values = tf.constant(values)
    return tf.broadcast_to(values, tf.concat([tf.shape(codes)[:1], tf.shape(values)], 0))


def between_groups(
    posterior: Posterior,
    groups: Sequence[np.ndarray],
    num_draws: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws [S D, P] of two groups' mean rates, for cells of median size in the first slice.

    A cell's rate is drawn given its codes and its count: what of it codes do not explain is not
    lost. Means are over cells with random weights (the Bayesian bootstrap of Rubin 1981), as the
    groups' cells stand for all such cells. So differences do not count as sure that are of these
    few cells alone.

    :param groups: rows of the cells of each.
    :param num_draws: of all posterior samples together, at least one of each.
    """
    model, rows = posterior.model, np.concatenate(groups)
    assert isinstance(model.likelihood, CountLikelihood)
    codes = posterior.code_samples(rows, -(-num_draws // posterior.num_samples), seed=seed)
    batch = posterior.data.gather(tf.constant(rows))
    X, Y = (v[0].numpy() for v in batch[:2])
    seen = np.ones(Y.shape, bool) if batch.mask is None else batch.mask[0].numpy()
    reference = _reference(X)

    def rates(bound: Any, codes: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        F = bound.decode(_repeated(X, codes), codes)
        at_reference = bound.decode(_repeated(reference, codes), codes)
        own = tf.random.fold_in(tf.constant([seed, 0xDE]), number, alg="philox")
        found = bound.likelihood.draw_rates(F, _repeated(Y, codes), _repeated(seen, codes), own)
        return found * tf.exp(at_reference - F)

    rng = np.random.default_rng([seed, 0xB0])
    means: list[list[np.ndarray]] = [[], []]
    places = np.split(np.arange(len(rows)), [len(groups[0])])
    for found in _bound_calls(posterior, rates, codes, 4 * Y.size):
        for mean, place in zip(means, places, strict=True):
            weights = rng.dirichlet(np.ones(len(place)), len(found))
            mean.extend(np.einsum("dn,dnp->dp", weights, found[:, place]))
    return np.array(means[0]), np.array(means[1])


def _reference(X: np.ndarray) -> np.ndarray:
    """The same places with cells of median size, in the first slice as decoders see it."""
    X = X.copy()
    X[:, -2], X[:, -1] = 1.0, 0.0
    return X


def false_discoveries(probability: np.ndarray) -> np.ndarray:
    """Expected share of false ones among each gene and all that are likelier to differ [P].

    The mean of what their probabilities leave (Newton et al. 2004).
    """
    order = np.argsort(-probability, kind="stable")
    share = np.cumsum(1.0 - probability[order]) / np.arange(1, len(order) + 1)
    found = np.empty(len(order))
    found[order] = share
    return found


def over_space(
    posterior: Posterior, rows: np.ndarray, num_spatial: int, num_draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Variances over cells that channels of space explain, of each draw [S D, P].

    That part is what varies between cells with their own places, and with channels of cells at
    their mean; of a decoder without a hidden layer the two parts of the logarithm add up.

    - ``count_share``: of the variance of counts of cells of median size.
    - ``rate_share``: of that of the logarithm of the rate.
    - ``spatial_sd``: root of that part of the logarithm's variance.
    - ``mean``: of the counts.

    :param rows: of the cells.
    :param num_spatial: channels of space, which come first.
    :param num_draws: as in :func:`between_groups`.
    """
    codes = posterior.code_samples(rows, -(-num_draws // posterior.num_samples), seed=seed)
    reference = _reference(posterior.data.X[0].numpy()[rows])

    def parts(bound: Any, codes: tf.Tensor, number: tf.Tensor) -> Any:
        X = _repeated(reference, codes)
        centre = tf.broadcast_to(tf.reduce_mean(codes, 1, keepdims=True), tf.shape(codes))
        space = tf.concat([codes[..., :num_spatial], centre[..., num_spatial:]], -1)
        cells = tf.concat([centre[..., :num_spatial], codes[..., num_spatial:]], -1)
        of_space, of_cells = (bound.decode(X, part) for part in (space, cells))
        mean, variance = bound.likelihood.moments(bound.decode(X, codes))
        log_space, log_cells = (tf.math.reduce_variance(f, 1) for f in (of_space, of_cells))
        # exp(a + b) of independent a and b varies with a as exp(a) times the mean of exp(b).
        smooth = tf.exp(of_space - tf.reduce_logsumexp(of_space, 1, keepdims=True))
        number = tf.cast(tf.shape(codes)[1], smooth.dtype)
        in_all = tf.reduce_mean(mean, 1)
        explained = tf.square(in_all * number) * tf.math.reduce_variance(smooth, 1)
        total = tf.math.reduce_variance(mean, 1) + tf.reduce_mean(variance, 1)
        return {
            "count_share": tf.minimum(explained / total, 1.0),
            "rate_share": log_space / tf.maximum(log_space + log_cells, 1e-12),
            "spatial_sd": tf.sqrt(log_space),
            "mean": in_all,
        }

    size = 4 * len(rows) * posterior.model.decoder.output_dim
    found = list(_bound_calls(posterior, parts, codes, size))
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}
