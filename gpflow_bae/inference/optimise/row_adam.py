"""Adam with sparse row updates: rows without a gradient, and their moments, do not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["RowAdam"]


class RowAdam:
    """Adam (Kingma and Ba 2015) at a cost per step proportional to the rows of the gradient.

    Each row has its own moments and step count, so it follows Adam on the steps whose minibatch
    includes it. (Keras's optimisers convert sparse gradients to dense ones, which with a million
    rows is the whole cost of a step.)
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        learning_rate: Any,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
    ):
        """
        :param variables: variables whose first axis is rows.
        :param learning_rate: a number, or a Keras schedule of the number of steps.
        """
        self.variables = list(variables)
        self.learning_rate, self.epsilon = learning_rate, epsilon
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        # First moments, second moments and the count of a row are adjacent in memory: a large table
        # does not fit into the cache, and adjacent numbers are fetched together.
        self._slots = [
            tf.Variable(tf.zeros([v.shape[0], 2 * _width(v) + 1], v.dtype), trainable=False)
            for v in self.variables
        ]

    @property
    def state(self) -> list[tf.Variable]:
        """Variables that a checkpoint must hold."""
        if not self.variables:
            return []
        return [self.iterations, *self._slots]

    def apply(self, gradients: Sequence[tf.IndexedSlices]) -> None:
        """Take one step along gradients whose rows are distinct.

        :raises TypeError: for a dense gradient, which means that the loss read the whole variable.
        """
        if not self.variables:
            return
        rate = self.learning_rate
        if callable(rate):
            rate = rate(self.iterations)
        for variable, slot, gradient in zip(self.variables, self._slots, gradients, strict=True):
            if gradient is None:  # such as the variances of a point estimate
                continue
            if not isinstance(gradient, tf.IndexedSlices):
                raise TypeError(
                    f"The gradient of {variable.name} {variable.shape} is dense: gather its rows "
                    "from the variable itself, with tf.gather(variable, indices)."
                )
            rows, width = gradient.indices, _width(variable)
            g = tf.reshape(gradient.values, [-1, width])
            step_size = tf.cast(rate, g.dtype) if tf.is_tensor(rate) else tf.constant(rate, g.dtype)
            first, second, count = tf.split(tf.gather(slot, rows), [width, width, 1], -1)
            steps = count + 1.0
            m = self.beta_1 * first + (1.0 - self.beta_1) * g
            v = self.beta_2 * second + (1.0 - self.beta_2) * tf.square(g)
            corrected = m / (1.0 - self.beta_1**steps)
            scale = tf.sqrt(v / (1.0 - self.beta_2**steps)) + self.epsilon
            change = tf.reshape(step_size * corrected / scale, tf.shape(gradient.values))
            slot.scatter_update(tf.IndexedSlices(tf.concat([m, v, steps], -1), rows))
            variable.scatter_sub(tf.IndexedSlices(change, rows))
        self.iterations.assign_add(1)


def _width(variable: tf.Variable) -> int:
    """Return the number of elements of a row."""
    return math.prod(variable.shape[1:])
