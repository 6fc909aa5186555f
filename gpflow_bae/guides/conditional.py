"""Features of the inputs beside what networks see anyway: conditional autoencoders."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType

from ..base import Batch
from ..encoders import Encoder
from .gaussian import GaussianGuide

__all__ = ["Condition", "ConditionalGuide"]


class Condition:
    """Features ``[..., N, condition_dim]`` of the inputs ``X [..., N, D]``, to be appended."""

    def __init__(self, features: Callable[[tf.Tensor], tf.Tensor] | None, num_features: int):
        """
        :param features: by default the inputs themselves.
        """
        # A name, not a lambda, so that models can be pickled.
        self._features, self.num_features = features or tf.identity, int(num_features)

    def join(self, values: TensorType, X: TensorType | None) -> tf.Tensor:
        """``values [..., N, K]`` and then the features of ``X``.

        :raises ValueError: without inputs, or for another number of features.
        """
        if X is None:
            raise ValueError("A CVAE's networks see features of the inputs: X is needed, got None.")
        values = tf.convert_to_tensor(values)
        features = tf.cast(self._features(tf.convert_to_tensor(X)), values.dtype)
        if features.shape[-1] != self.num_features:
            raise ValueError(
                f"condition returned {features.shape[-1]} features per point, but condition_dim is "
                f"{self.num_features}."
            )
        shape = tf.concat([tf.shape(values)[:-1], [self.num_features]], 0)
        return tf.concat([values, tf.broadcast_to(features, shape)], -1)


class ConditionalGuide(GaussianGuide):
    """A Gaussian guide whose encoder sees observations and features of the inputs."""

    def __init__(self, encoder: Encoder, condition: Condition):
        """The encoder takes P + condition_dim numbers, observations first."""
        super().__init__(encoder)
        self._condition = condition

    def moments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means and variances given observations and features of the inputs.

        The features are always observed: an encoder that takes the mask sees it with ones for them.
        """
        joined, mask = self._condition.join(batch.Y, batch.X), batch.mask
        if mask is not None:
            features = tf.ones_like(joined[..., tf.shape(batch.Y)[-1] :], tf.bool)
            mask = tf.concat([tf.cast(mask, tf.bool), features], -1)
        return super().moments(batch._replace(Y=joined, mask=mask))
