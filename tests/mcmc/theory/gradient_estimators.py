r"""Unbiased estimates of the gradient of a log posterior from minibatches.

With N data, a minibatch b of B of them drawn uniformly (with or without replacement, independently
of the position), l(position, b) its log likelihood, and g_b the estimate::

    minibatch           g_b(position) = grad [log prior(position) + (N / B) l(position, b)]
    control variates    g_b(position) - g_b(mode) + full gradient at the mode

Both have the full-data gradient as their mean over minibatches. The first has a variance of order
N^2 / B. That of the second grows with the squared distance from the mode: it is zero at the mode,
zero everywhere for a likelihood with the same curvature for each datum (a Gaussian mean), and
larger than the first's far away (Baker et al. 2019, section 3).

References:

- Johnson, Zhang (2013). Accelerating stochastic gradient descent using predictive variance
  reduction. NeurIPS.
- Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient MCMC. Statistics
  and Computing 29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.types import Position

__all__ = [
    "GradientFn",
    "LogLikelihoodFn",
    "LogPriorFn",
    "control_variates",
    "minibatch",
]

LogPriorFn: TypeAlias = Callable[[Position], tf.Tensor]
"""A function of a position that returns one number per chain."""

LogLikelihoodFn: TypeAlias = Callable[[Position, Any], tf.Tensor]
"""A function of a position and a minibatch that returns the sum over it, one number per chain."""

GradientFn: TypeAlias = Callable[[Position, Any], Position]
"""A function of a position and a minibatch that returns a gradient like the position."""


def minibatch(
    log_prior_fn: LogPriorFn,
    log_likelihood_fn: LogLikelihoodFn,
    num_data: int,
    *,
    batch_axis: int = 0,
) -> GradientFn:
    """Return the minibatch estimate, which is the full gradient if the batch is all data.

    :param log_prior_fn: log density of the prior.
    :param log_likelihood_fn: log likelihood, summed over the minibatch and not scaled.
    :param num_data: N.
    :param batch_axis: the axis of every leaf of a batch along which its B data lie: 0 if chains
        share their minibatches, 1 if leaves are [C, B, ...], a minibatch for each chain.
    :raises ValueError: if N is not positive; when called, if B is 0 or leaves of the batch differ
        in it, or if the log posterior does not depend on a leaf of the position.
    """
    if num_data < 1:
        raise ValueError(f"num_data, the size of the whole data set, must be >= 1, got {num_data}.")

    def gradient(position: Position, batch: Any) -> Position:
        size = _batch_size(batch, batch_axis)

        def estimate(position: Position) -> tf.Tensor:
            log_likelihood = tf.convert_to_tensor(log_likelihood_fn(position, batch))
            scale = num_data / tf.cast(size, log_likelihood.dtype)
            return log_prior_fn(position) + scale * log_likelihood

        return targets.target(estimate)(position).tempered_gradient

    return gradient


def control_variates(
    log_prior_fn: LogPriorFn,
    log_likelihood_fn: LogLikelihoodFn,
    num_data: int,
    *,
    mode: Position,
    full_gradient_at_mode: Position,
    batch_axis: int = 0,
) -> GradientFn:
    """Return the minibatch estimate, less its error at a fixed position.

    It computes two gradients of a minibatch per call. ``full_gradient_at_mode`` is the value of
    :func:`minibatch` at the mode with all data. The mode need not be exact: with any fixed position
    the estimate is unbiased, and with a better one its variance is smaller.

    :param log_prior_fn: log density of the prior.
    :param log_likelihood_fn: log likelihood, summed over the minibatch and not scaled.
    :param num_data: N.
    :param mode: structure like a position, whose leaves may lack the dimensions of its chains.
    :param full_gradient_at_mode: gradient of the log posterior there, all data, a structure like
        ``mode``.
    :param batch_axis: as for :func:`minibatch`.
    :raises ValueError: as :func:`minibatch` does, or if ``full_gradient_at_mode`` has another
        structure than ``mode``.
    """
    estimate = minibatch(log_prior_fn, log_likelihood_fn, num_data, batch_axis=batch_axis)
    try:
        tf.nest.assert_same_structure(mode, full_gradient_at_mode)
    except (TypeError, ValueError) as error:
        raise ValueError("full_gradient_at_mode must have the structure of mode.") from error

    def gradient(position: Position, batch: Any) -> Position:
        # Without the broadcast a mode without chains would have the sum of the chains' gradients.
        everywhere = tf.nest.map_structure(
            lambda m, q: tf.broadcast_to(tf.cast(m, q.dtype), tf.shape(q)), mode, position
        )
        return tf.nest.map_structure(
            lambda here, there, full: here - there + tf.cast(full, here.dtype),
            estimate(position, batch),
            estimate(everywhere, batch),
            full_gradient_at_mode,
        )

    return gradient


def _batch_size(batch: Any, axis: int) -> int | tf.Tensor:
    """Return the length of all leaves along ``axis``."""
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(batch)]
    sizes = {leaf.shape[axis] for leaf in leaves}
    known = sizes - {None}
    if not leaves or len(known) > 1 or known == {0}:
        raise ValueError(
            f"The leaves of a batch must have equal, positive lengths along axis {axis}, got "
            f"shapes {[tuple(leaf.shape) for leaf in leaves]}."
        )
    return known.pop() if known else tf.shape(leaves[0])[axis]
