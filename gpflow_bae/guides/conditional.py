"""The guide of conditional autoencoders, whose encoder also takes features of the inputs."""

from __future__ import annotations

import tensorflow as tf

from ..base import Batch
from ..encoders import Encoder
from ..inputs import Condition
from .gaussian import GaussianGuide

__all__ = ["ConditionalGuide"]


class ConditionalGuide(GaussianGuide):
    """A Gaussian guide whose encoder takes observations and features of the inputs."""

    def __init__(self, encoder: Encoder, condition: Condition):
        """
        :param encoder: an encoder of P + condition_dim numbers, observations first.
        """
        super().__init__(encoder)
        self._condition = condition

    def moments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's means and variances given observations and features of the inputs.

        For an encoder that takes the mask, the features are observed.
        """
        joined, mask = self._condition.join(batch.Y, batch.X), batch.mask
        if mask is not None:
            features = tf.ones_like(joined[..., tf.shape(batch.Y)[-1] :], tf.bool)
            mask = tf.concat([tf.cast(mask, tf.bool), features], -1)
        return super().moments(batch._replace(Y=joined, mask=mask))
