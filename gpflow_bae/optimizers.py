"""GPflow's SciPy optimiser for models with float32 networks and float64 kernels."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import tensorflow as tf

from .core import functional

__all__ = ["Scipy"]


class Scipy(gpflow.optimizers.Scipy):
    """``gpflow.optimizers.Scipy`` for variables of several float types.

    Networks are float32 and kernels float64, which GPflow's own optimiser cannot concatenate. With
    networks in float64 (``keras.config.set_floatx("float64")`` before they are built) GPflow's
    works too. Use it in the same way:

    >>> weight, lengthscale = tf.Variable(3.0), tf.Variable(2.0, dtype=tf.float64)
    >>> loss = lambda: (tf.cast(weight, tf.float64) - lengthscale) ** 2 + lengthscale**2
    >>> Scipy().minimize(loss, (weight, lengthscale)).success
    True
    """

    @staticmethod
    def pack_tensors(tensors: Sequence[tf.Tensor | tf.Variable]) -> tf.Tensor:
        """Concatenate tensors to one vector in ``default_float()``."""
        return functional.flatten(tensors)
