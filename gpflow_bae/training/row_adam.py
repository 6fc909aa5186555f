"""Adam for variables of which a step sees a few rows: the others, and their moments, rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["RowAdam"]


class RowAdam:
    """Adam (Kingma and Ba 2015) whose step costs as much as the rows of the gradient.

    Each row has moments and a step count of its own, so a row's path is that of Adam on the steps
    that saw it. (Keras's optimisers make a dense gradient of a sparse one: with a million rows that
    is the whole cost of a step.)
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
        :param variables: first axis: rows.
        :param learning_rate: a number, or a Keras schedule of the steps taken.
        """
        self.variables = list(variables)
        self.learning_rate, self.epsilon = learning_rate, epsilon
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._slots = [
            (
                tf.Variable(tf.zeros_like(v), trainable=False),
                tf.Variable(tf.zeros_like(v), trainable=False),
                tf.Variable(tf.zeros([v.shape[0]], v.dtype), trainable=False),
            )
            for v in self.variables
        ]

    @property
    def state(self) -> list[tf.Variable]:
        """What a checkpoint must hold."""
        if not self.variables:
            return []
        return [self.iterations, *(slot for slots in self._slots for slot in slots)]

    def apply(self, gradients: Sequence[tf.IndexedSlices]) -> None:
        """One step along gradients whose rows are distinct.

        :raises TypeError: for a dense gradient: something read the whole variable.
        """
        if not self.variables:
            return
        rate = self.learning_rate
        if callable(rate):
            rate = rate(self.iterations)
        for variable, slots, gradient in zip(self.variables, self._slots, gradients, strict=True):
            if gradient is None:  # such as the variances of a point estimate
                continue
            if not isinstance(gradient, tf.IndexedSlices):
                raise TypeError(
                    f"The gradient of {variable.name} {variable.shape} is dense: gather its rows "
                    "from the variable itself, with tf.gather(variable, indices)."
                )
            rows, g = gradient.indices, gradient.values
            step_size = tf.cast(rate, g.dtype) if tf.is_tensor(rate) else tf.constant(rate, g.dtype)
            first, second, count = slots
            steps = tf.gather(count, rows) + 1.0
            m = self.beta_1 * tf.gather(first, rows) + (1.0 - self.beta_1) * g
            v = self.beta_2 * tf.gather(second, rows) + (1.0 - self.beta_2) * tf.square(g)
            shape = tf.concat([tf.shape(steps), tf.ones([g.shape.rank - 1], tf.int32)], 0)
            steps_column = tf.reshape(steps, shape)
            corrected = m / (1.0 - self.beta_1**steps_column)
            scale = tf.sqrt(v / (1.0 - self.beta_2**steps_column)) + self.epsilon
            for target, values in (
                (first, m),
                (second, v),
                (count, steps),
                (variable, tf.gather(variable, rows) - step_size * corrected / scale),
            ):
                target.scatter_update(tf.IndexedSlices(values, rows))
        self.iterations.assign_add(1)
