"""The uniform distribution of an angle, or of anything else that comes round again."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.arguments import check_positive

__all__ = ["UniformOnCircle"]


class UniformOnCircle:
    """Of x modulo a period, 1 / period everywhere.

    As much of a TFP distribution as a ``gpflow.Parameter`` asks of its prior. The density is the
    same at x and at x + period, so whoever moves x need not know where the circle was cut. (TFP's
    ``Uniform`` has walls there, which gradients and random walks run into.)
    """

    name = "UniformOnCircle"
    batch_shape = event_shape = tf.TensorShape([])

    def __init__(self, period: float, dtype: tf.DType | None = None):
        """
        :param period: in the units of x, such as 2 pi of angles in radians.
        """
        check_positive(period=period)
        self.period = float(period)
        self.dtype = gpflow.default_float() if dtype is None else tf.as_dtype(dtype)

    def log_prob(self, value: TensorType) -> tf.Tensor:
        """-log(period) of each element."""
        value = tf.convert_to_tensor(value)
        return tf.zeros_like(value) - tf.cast(np.log(self.period), value.dtype)

    def sample(self, sample_shape: Any = (), seed: Any = None) -> tf.Tensor:
        """Draws in [0, period); ``seed`` is two integers."""
        unit = tf.random.stateless_uniform(
            tf.TensorShape(sample_shape), seed, dtype=self.dtype, alg="philox"
        )
        return self.period * unit

    def stddev(self) -> float:
        """Of a draw in [0, period)."""
        return self.period / np.sqrt(12.0)

    def wrap(self, value: TensorType) -> tf.Tensor:
        """The same place on the circle, in [0, period)."""
        return tf.math.floormod(value, tf.cast(self.period, value.dtype))
