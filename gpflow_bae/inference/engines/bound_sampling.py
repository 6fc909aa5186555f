"""SG-MCMC of a variational model's parameters under its bound, with the encoder optimised on it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...base import Batch
from ...mcmc import State, Step, Target
from ...mcmc.noise import fold_in, split
from ...models import VariationalAutoencoder
from ...models.default_priors import set_default_priors
from ..chain_state import Chain, Point, RoundStatistics
from ..loops import repeat
from ..optimise.encoder_fit import EncoderFit, EncoderState
from ..sharding.replicas import Share
from .chain_sampling import ChainSampling

__all__ = ["BoundSampling"]


class BoundSampling(ChainSampling):
    r"""SG-MCMC on p(parameters) exp(ELBO(parameters, encoder)), Adam on the encoder alongside.

    The codes are not sampled: they are integrated out under q(codes), so the chain's target is the
    posterior of the parameters with the evidence replaced by its lower bound (BVAE-SGHMC in
    appendix F of Tran et al. 2023). One draw of the codes estimates the bound in every step, and
    encoder and parameters share its backward pass.
    """

    model: VariationalAutoencoder

    def __init__(self, model: VariationalAutoencoder, *arguments: Any, **options: Any):
        """Arguments as in :class:`~gpflow_bae.inference.engines.chain_sampling.ChainSampling`.

        Kernel parameters without a prior get the default ones of
        :func:`~gpflow_bae.models.set_default_kernel_priors`, because they are sampled, and inducing
        inputs a normal prior with twice their standard deviation.
        """
        set_default_priors(model.latent_prior)
        super().__init__(model, *arguments, **options)
        self.encoder_fit = EncoderFit(model.guide, self.settings.encoder, self.spread.gradients)
        self._num_points = float(self.data.num_seen)

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """Start at the model's current values, without codes."""
        return self._start(Point(self.sampled.values(), ()), self.encoder_fit.initial_state())

    def bound(
        self, values: tuple[tf.Tensor, ...], weights: Any, batch: Batch, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the log prior of the parameters, and N/B times the batch's bound."""
        elbo = self.model.bind(values, weights).batch_elbo(batch, seed)
        return self.sampled.log_prior(values), batch.scale * elbo

    def _round(
        self, chain: Chain, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        seeds = tf.unstack(split(seed, 4))
        num_steps, num_points = self.settings.num_sampler_steps, self._num_points

        def body(
            i: tf.Tensor, carried: tuple[State, EncoderState, tf.Tensor]
        ) -> tuple[State, EncoderState, tf.Tensor]:
            state, encoder, total = carried
            codes_seed = fold_in(seeds[1], i)
            values = state.position.parameters
            batch, axis = self.fresh_batch(seeds[0], i, fed), self.data.axis

            def bound(moved: Any, share: Share) -> tf.Tensor:
                values, weights = moved
                with share.noise(axis - 3):
                    terms = self.bound(values, weights, share.of(batch, axis), codes_seed)
                return tf.add_n(terms) if share.is_first else terms[1]

            objective, (to_values, to_weights) = self.spread.gradients.value_and_gradient(
                bound, (values, encoder.weights), batch.Y.shape[axis]
            )
            target = Target(lambda position, seed: Point(to_values, ()))
            step_seed = fold_in(seeds[2], i)
            state = self.sampler.step(state, target, step_seed, Step(first + i, adapt))
            encoder = self.encoder_fit.apply(
                encoder, [None if g is None else -g / num_points for g in to_weights]
            )
            return state, encoder, total - objective / num_points

        start = (chain.sampler, chain.encoder, tf.zeros([], tf.float64))
        state, encoder, total = repeat(num_steps, body, start)
        last = self.fresh_batch(seeds[0], tf.constant(num_steps - 1), fed)
        terms = self.bound(state.position.parameters, encoder.weights, last, seeds[3])
        loss = total / num_steps
        return Chain(state, encoder), self.statistics(state, *terms, loss)
