"""Variances of a network's layers given the weights."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_probability as tfp

from ...base import Batch
from ...decoders import HierarchicalDecoder
from ...models import BayesianAutoencoder
from .base import Move, Moved, number_of

__all__ = ["LayerVariances"]


class LayerVariances(Move):
    r"""Conjugate draws of the variances of a :class:`~gpflow_bae.decoders.HierarchicalDecoder`.

    Given the n weights w of a tensor, :math:`1 / v \sim Gamma(a + n / 2, b + |w|^2 / (2 s^2))`
    (Neal 1996, section 3.2). The sampler leaves v alone. In a tensor of many weights v follows
    their mean square closely, which changes no faster than the weights.
    """

    name = "layer_variances"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        if not isinstance(model.decoder, HierarchicalDecoder):
            raise self._refuse(
                f"its decoder is a {type(model.decoder).__name__} with weights of fixed scales, "
                "not a HierarchicalDecoder."
            )
        place = number_of(self.sampled.parameters)
        self._pairs = [
            (place[id(variance)], place[id(weight)])
            for variance, weight in zip(
                model.decoder.layer_variances, model.decoder.weights, strict=True
            )
            if id(variance) in place and id(weight) in place
        ]

    @property
    def owned(self) -> tuple[str, ...]:
        return tuple(self.sampled.paths[i] for i, _ in self._pairs)

    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        parameters = list(state.parameters)
        decoder = self.model.decoder
        seeds = tf.unstack(tf.random.split(seed, len(self._pairs), alg="philox"))
        for (i, j), own_seed in zip(self._pairs, seeds, strict=True):
            weights = parameters[j]
            dtype = parameters[i].dtype
            scale = self.sampled.parameters[j].prior.base_scale
            squares = tf.cast(tf.reduce_sum(tf.square(weights)), dtype) / scale**2
            count = tf.cast(tf.size(weights), dtype)
            precision = tfp.distributions.Gamma(
                decoder.concentration + 0.5 * count, decoder.rate + 0.5 * squares
            ).sample(seed=own_seed)
            parameters[i] = self.sampled.parameters[i].transform.inverse(1.0 / precision)
        return state._replace(parameters=tuple(parameters))
