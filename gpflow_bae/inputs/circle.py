"""The uniform distribution of an angle, or of another periodic variable."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..core.arguments import check_positive

__all__ = ["UniformOnCircle"]


class UniformOnCircle:
    """The uniform distribution of x modulo a period, with density 1 / period on the whole line.

    It implements what ``gpflow.Parameter`` needs of a TFP distribution as a prior. The density is
    periodic, so samplers and optimisers need no bounds. (TFP's ``Uniform`` has bounds, at which
    gradients and random walks stop.)
    """

    name = "UniformOnCircle"
    batch_shape = event_shape = tf.TensorShape([])

    def __init__(self, period: float, dtype: tf.DType | None = None):
        """
        :param period: in the units of x, such as 2 pi for angles in radians.
        """
        check_positive(period=period)
        self.period = float(period)
        self.dtype = gpflow.default_float() if dtype is None else tf.as_dtype(dtype)

    @property
    def parameters(self) -> dict[str, float]:
        """Arguments by name, as of a TFP distribution."""
        return {"period": self.period}

    def log_prob(self, value: TensorType) -> tf.Tensor:
        """Return -log(period) for each element."""
        value = tf.convert_to_tensor(value)
        return tf.zeros_like(value) - tf.cast(np.log(self.period), value.dtype)

    def sample(self, sample_shape: Any = (), seed: Any = None) -> tf.Tensor:
        """Draw from [0, period); ``seed`` is two integers."""
        unit = tf.random.stateless_uniform(
            tf.TensorShape(sample_shape), seed, dtype=self.dtype, alg="philox"
        )
        return self.period * unit

    def stddev(self) -> float:
        """Return the standard deviation of a draw from [0, period)."""
        return self.period / np.sqrt(12.0)

    def wrap(self, value: TensorType) -> tf.Tensor:
        """Return values modulo the period, in [0, period)."""
        return tf.math.floormod(value, tf.cast(self.period, value.dtype))
