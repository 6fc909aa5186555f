"""Features of the inputs, for networks that take them beside codes or observations."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType

from ..core.annotations import check_arguments

__all__ = ["Condition"]


class Condition:
    """Features ``[..., N, condition_dim]`` of the inputs ``X [..., N, D]``, to be appended."""

    @check_arguments(num_features=1)
    def __init__(self, features: Callable[[tf.Tensor], tf.Tensor] | None, num_features: int):
        """
        :param features: function of the inputs; None for the inputs themselves.
        """
        # tf.identity is not a lambda, so that models can be pickled.
        self._features, self.num_features = features or tf.identity, int(num_features)

    def join(self, values: TensorType, X: TensorType | None) -> tf.Tensor:
        """Concatenate ``values [..., N, K]`` and the features of ``X``.

        :raises ValueError: if ``X`` is None, or for another number of features.
        """
        if X is None:
            raise ValueError("The networks see features of the inputs: X is needed, got None.")
        values = tf.convert_to_tensor(values)
        features = tf.cast(self._features(tf.convert_to_tensor(X)), values.dtype)
        if features.shape[-1] != self.num_features:
            raise ValueError(
                f"condition returned {features.shape[-1]} features per point, but condition_dim is "
                f"{self.num_features}."
            )
        shape = tf.concat([tf.shape(values)[:-1], [self.num_features]], 0)
        return tf.concat([values, tf.broadcast_to(features, shape)], -1)
