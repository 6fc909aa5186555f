r"""Slice sampling along a line, for a handful of scalars, without a step size to tune.

From x, with the log density f along x + t d, a direction d, and uniforms u (Neal 2003, figures 3
and 5)::

    level = f(0) + log u
    an interval of a given width is placed at random around t = 0, and stepped out while f > level
    t is drawn from it until f(t) > level; rejected t shrink the interval towards 0

The update leaves the density exactly invariant at any width; a good width saves evaluations.
Along a random direction it is hit-and-run; along the orbit of a group, with the density
multiplied by the Jacobian of the transformation, with respect to the Haar measure of t, it is the
generalised Gibbs step of Liu and Sabatti (2000).

References:

- Liu, Sabatti (2000). Generalised Gibbs sampler and multigrid Monte Carlo. Biometrika.
- Neal (2003). Slice sampling. Annals of Statistics.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from gpflow_bae.mcmc.noise import uniform
from gpflow_bae.mcmc.types import Seed, validate

__all__ = ["slice_step"]

_MAX_SHRINKS = 60  # by then the interval is 1e-18 of its width


def slice_step(
    log_density: Callable[[tf.Tensor], tf.Tensor],
    seed: Seed,
    *,
    width: float | tf.Tensor = 1.0,
    max_expansions: int = 8,
) -> tf.Tensor:
    """Return the new position on a line after one update from t = 0, a float64 scalar.

    :param log_density: function of a float64 scalar t, up to a constant; NaN and minus infinity
        mean zero density. If it is not finite at 0, t = 0 is returned.
    :param seed: two integers, used once.
    :param width: width of the first interval, in units of t.
    :param max_expansions: number of widths by which the interval may grow on both sides together.
    :raises ValueError: for a width that is not positive, or a negative number of expansions.
    """
    validate(width=width)
    if max_expansions < 0:
        raise ValueError(f"max_expansions must not be negative, got {max_expansions}.")
    width = tf.cast(width, tf.float64)
    zero = tf.zeros([], tf.float64)
    draws = uniform([3 + _MAX_SHRINKS], seed)
    level = log_density(zero) + tf.math.log(draws[0])
    left = -width * draws[1]
    # The limit of steps to the left is random, which makes the update reversible.
    of_left = tf.cast(tf.floor(draws[2] * (max_expansions + 1)), tf.int32)

    def above(t: tf.Tensor) -> tf.Tensor:
        return log_density(t) > level  # False for NaN

    def stepped_out(end: tf.Tensor, step: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
        _, end = tf.while_loop(
            lambda i, end: (i < most) & above(end),
            lambda i, end: (i + 1, end + step),
            (tf.constant(0), end),
            parallel_iterations=1,
        )
        return end

    right = stepped_out(left + width, width, max_expansions - of_left)
    left = stepped_out(left, -width, of_left)

    def shrink(
        i: tf.Tensor, left: tf.Tensor, right: tf.Tensor, t: tf.Tensor, done: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        t = left + draws[3 + i] * (right - left)
        done = above(t)
        below = t < 0.0
        return (
            i + 1,
            tf.where(below & ~done, t, left),
            tf.where(below | done, right, t),
            t,
            done,
        )

    *_, t, found = tf.while_loop(
        lambda i, left, right, t, done: ~done & (i < _MAX_SHRINKS),
        shrink,
        (tf.constant(0), left, right, zero, tf.constant(False)),
        parallel_iterations=1,
    )
    return tf.where(found, t, zero)
