"""A move of the likelihood's parameters given the decoder's outputs."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import tensorflow as tf

from ...base import Batch
from ...models import BayesianAutoencoder
from .base import Moved
from .sliced import SlicedParameters

__all__ = ["LikelihoodParameters"]


class LikelihoodParameters(SlicedParameters):
    """Slice sampling of the likelihood's parameters, such as a Gaussian's variance.

    Codes are decoded once; the density of all observations is then cheap. A noise variance is the
    stiffest scalar of most models, because every observation informs it.
    """

    name = "likelihood_parameters"

    def __init__(self, model: BayesianAutoencoder):
        super().__init__(model)
        if model.whitened_codes and model.latent_prior.draws:
            raise self._refuse("its codes are whitened by fresh draws of the prior.")
        own = {id(p) for p in model.likelihood.parameters}
        self._numbers = [i for i, p in enumerate(self.sampled.parameters) if id(p) in own]
        if not self._numbers:
            raise self._refuse("its likelihood has no parameter that is sampled.")

    def _log_likelihood(
        self, state: Moved, batch: Batch
    ) -> Callable[[tuple[tf.Tensor, ...]], tf.Tensor]:
        bound = self.model.bind(state.parameters)
        F = bound.decode(batch.X, bound.from_whitened(batch.X, state.codes))

        def of_observations(parameters: tuple[tf.Tensor, ...]) -> tf.Tensor:
            likelihood = self.model.bind(parameters).likelihood
            rows = likelihood.masked_log_prob(F, batch.Y, batch.mask)
            return tf.reduce_sum(tf.cast(rows, gpflow.default_float()))

        return of_observations
