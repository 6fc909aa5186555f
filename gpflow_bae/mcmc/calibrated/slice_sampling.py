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
_LEVEL, _RIGHT, _LEFT, _WITHIN, _END = range(5)  # stages of an update


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
    left = -width * draws[1]
    # The limit of steps to the left is random, which makes the update reversible.
    of_left = tf.cast(tf.floor(draws[2] * (max_expansions + 1)), tf.int32)

    of_right = max_expansions - of_left

    def body(
        stage: tf.Tensor,
        i: tf.Tensor,
        level: tf.Tensor,
        left: tf.Tensor,
        right: tf.Tensor,
        t: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Compute one log density, so that it is traced once for all stages."""
        first, to_right, to_left, within = (tf.equal(stage, s) for s in range(_END))
        t = left + draws[3 + tf.minimum(i, _MAX_SHRINKS - 1)] * (right - left)
        t = tf.where(first, zero, tf.where(to_right, right, tf.where(to_left, left, t)))
        found = log_density(t)
        above = found > level  # False for NaN
        level = tf.where(first, found + tf.math.log(draws[0]), level)
        grown = above & ((to_right & (i < of_right)) | (to_left & (i < of_left)))
        outside = within & ~above
        right = tf.where(grown & to_right, right + width, tf.where(outside & (t >= 0.0), t, right))
        left = tf.where(grown & to_left, left - width, tf.where(outside & (t < 0.0), t, left))
        stays = grown | outside
        return (
            tf.where(stays, stage, stage + 1),
            tf.where(stays, i + 1, 0),
            level,
            left,
            right,
            t,
        )

    stage, *_, t = tf.while_loop(
        lambda stage, i, *_: (stage < _WITHIN) | ((stage < _END) & (i < _MAX_SHRINKS)),
        body,
        (tf.constant(_LEVEL), tf.constant(0), zero, left, left + width, zero),
        parallel_iterations=1,
    )
    return tf.where(tf.equal(stage, _END), t, zero)
