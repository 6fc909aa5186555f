"""Scales of a network's layers at fixed standardised weights."""

from __future__ import annotations

import gpflow
import tensorflow as tf

from ...base import Batch
from ...mcmc.slice_sampling import slice_step
from ...models import BayesianAutoencoder
from .base import Moved
from .layer_variances import LayerVariances

__all__ = ["LayerScales"]

_WIDTH = 0.1  # of the first interval, in log variance


class LayerScales(LayerVariances):
    r"""Slice sampling of each layer's log variance while its weights keep their proportions.

    Given :math:`\epsilon = w / (s \sqrt{v})` the data have a say: all weights of a tensor grow or
    shrink together with v. Given the weights alone, v of a tensor with n of them moves by a factor
    of :math:`1 \pm \sqrt{2 / n}`, so the two kinds of draws are made in turn (interweaving: Yu and
    Meng 2011). Each costs some forward passes over all data.
    """

    name = "layer_scales"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        self._check_codes()

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        parameters = list(state.parameters)
        seeds = tf.unstack(tf.random.split(seed, len(self._pairs), alg="philox"))
        for (i, j), own_seed in zip(self._pairs, seeds, strict=True):
            parameters = self._moved(parameters, i, j, state.codes, batch, own_seed)
        return state._replace(parameters=tuple(parameters))

    def _moved(
        self,
        parameters: list[tf.Tensor],
        i: int,
        j: int,
        codes: tf.Tensor,
        batch: Batch,
        seed: tf.Tensor,
    ) -> list[tf.Tensor]:
        """One layer: its variance is parameter i, its weights are parameter j."""
        variance = self.sampled.parameters[i]
        transform = variance.transform
        old = transform.forward(tf.identity(parameters[i]))

        def at(t: tf.Tensor) -> list[tf.Tensor]:
            moved = list(parameters)
            t = tf.cast(t, old.dtype)
            moved[i] = transform.inverse(old * tf.exp(t))
            moved[j] = parameters[j] * tf.cast(tf.exp(0.5 * t), parameters[j].dtype)
            return moved

        def log_density(t: tf.Tensor) -> tf.Tensor:
            bound = self.model.bind(at(t))
            F = bound.decode(batch.X, codes)
            rows = bound.likelihood.masked_log_prob(F, batch.Y, batch.mask)
            found = tf.reduce_sum(tf.cast(rows, gpflow.default_float()))
            # In log v, at a fixed epsilon, whose prior does not change.
            found += variance.prior.log_prob(old * tf.exp(tf.cast(t, old.dtype)))
            return tf.cast(found, tf.float64) + t

        return at(slice_step(log_density, seed, width=_WIDTH))
