"""Adam as a pure function; Keras's optimisers have no stateless form under TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

__all__ = ["AdamState", "init", "update"]

Values = tuple[tf.Tensor, ...]


class AdamState(NamedTuple):
    """Number of steps, and moving averages of the gradient and its square."""

    count: tf.Tensor  # int64
    first: Values
    second: Values


def init(values: Sequence[tf.Tensor]) -> AdamState:
    """Return the initial state: zero steps and zero moments."""
    zeros = tuple(tf.zeros_like(v) for v in values)
    return AdamState(tf.zeros([], tf.int64), zeros, zeros)


def update(
    values: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor | None],
    state: AdamState,
    learning_rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> tuple[Values, AdamState]:
    """Take one descent step (Kingma and Ba 2015). As in Keras, epsilon is outside of the bias
    correction. A value whose gradient is None does not change.
    """

    def one(
        value: tf.Tensor, g: tf.Tensor | None, m: tf.Tensor, v: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if g is None:
            return value, m, v
        g = tf.convert_to_tensor(g)
        step = tf.cast(state.count + 1, value.dtype)
        unbiased = tf.sqrt(1 - tf.pow(tf.cast(beta_2, value.dtype), step))
        alpha = tf.cast(learning_rate, value.dtype) * unbiased
        alpha /= 1 - tf.pow(tf.cast(beta_1, value.dtype), step)
        m += (g - m) * (1 - beta_1)
        v += (tf.square(g) - v) * (1 - beta_2)
        return value - m * alpha / (tf.sqrt(v) + epsilon), m, v

    moved = [
        one(*parts) for parts in zip(values, gradients, state.first, state.second, strict=True)
    ]
    following, first, second = (tuple(part) for part in zip(*moved, strict=True))
    return following, AdamState(state.count + 1, first, second)
