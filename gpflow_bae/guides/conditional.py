"""Features of the inputs beside what networks see anyway: conditional autoencoders."""

from __future__ import annotations

import tensorflow as tf

from ..base import Batch
from ..encoders import Encoder
from ..inputs import Condition
from .gaussian import GaussianGuide

__all__ = ["ConditionalGuide"]


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
