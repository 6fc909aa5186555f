"""SG-MCMC of all weights, encoder included, of an autoencoder without sampled codes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...base import Batch
from ...mcmc import Step, Target
from ...mcmc.noise import split
from ...models import TemperedBAE
from ..chain_state import Chain, Point, RoundStatistics
from .chain_sampling import ChainSampling
from .sampler_steps import sampler_steps

__all__ = ["WeightSampling"]


class WeightSampling(ChainSampling):
    """SG-MCMC on the posterior of a :class:`~gpflow_bae.models.TemperedBAE`, in minibatches.

    The encoder's weights are sampled with the other parameters. Settings of encoder fits are not
    used, and a round draws a new minibatch every ``steps_per_batch`` steps.
    """

    model: TemperedBAE
    coordinates = ("fisher",)
    has_control_variates = True

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """Start at the model's current values."""
        return self._start(Point(self.sampled.values(), ()))

    def log_likelihood(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return log p(Y | parameters) of one chain, summed over the batch."""
        # Not vectorised over one chain: XLA compiles gradients of vectorised maps in every call.
        return self.model.bind(position.parameters).data_log_likelihood(batch)

    def _round(
        self, chain: Chain, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        seeds = tf.unstack(split(seed, 2))
        num_steps = self.settings.num_sampler_steps
        reference = self.reference(chain.sampler.position, seed)

        def target_of(i: tf.Tensor) -> Target:
            return self.target(self.fresh_batch(seeds[0], i, fed), reference)

        preconditioning = None
        if self.preconditioner is not None:
            values = chain.sampler.position.parameters
            preconditioning = self.preconditioner.map_at(chain.metric, values, None)
        state = sampler_steps(
            self.sampler,
            chain.sampler,
            target_of,
            seeds[1],
            Step(first, adapt),
            num_steps,
            preconditioning,
        )
        batch = self.fresh_batch(seeds[0], tf.constant(num_steps - 1), fed)
        log_likelihood = batch.scale * self.log_likelihood(state.position, batch)
        log_prior = self.log_prior(state.position)
        nothing = tf.zeros_like(log_prior)
        statistics = self.statistics(state, log_prior, log_likelihood, nothing)
        return chain._replace(sampler=state), statistics
