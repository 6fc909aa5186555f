"""Rounds that sample a variational model's parameters, and optimise its encoder on the bound."""

from __future__ import annotations

import tensorflow as tf

from .. import functional
from ..base import Batch
from ..data import draw_indices
from ..mcmc import adaptive_sghmc
from .amortized import AmortizedRound, Chain, RoundStatistics, SamplerState
from .loops import repeat

__all__ = ["ElboRound"]


class ElboRound(AmortizedRound):
    r"""SG-MCMC on p(parameters) exp(ELBO(parameters, encoder)), Adam on the encoder alongside.

    The codes have no chain of their own: they are integrated out under q(codes), so what is
    sampled is the posterior of the parameters with the evidence replaced by its lower bound
    (BVAE-SGHMC in appendix F of Tran et al. 2023). One draw of the codes estimates the bound in
    every step, and encoder and parameters share its backward pass.
    """

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """At the model's present values; there are no codes."""
        values = functional.unconstrained_values(self.model.sampled_parameters)
        return Chain(adaptive_sghmc.init(values), adaptive_sghmc.init(tf.zeros([0], tf.float64)))

    def latents(self, chain: Chain, seed: tf.Tensor | None = None) -> None:
        """None: the codes are the encoder's."""
        return None

    def _bound(
        self, values: tuple[tf.Tensor, ...], batch: Batch, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Log prior of the parameters, and N/B times the batch's bound."""
        elbo = self.model.bind(values).elbo(batch, seed)
        return functional.log_prior_density(self.model.sampled_parameters, values), (
            self.scale * elbo
        )

    def _round(
        self, chain: Chain, seed: tf.Tensor, adapt: tf.Tensor
    ) -> tuple[Chain, RoundStatistics]:
        settings, data = self.settings, self.data
        seeds = tf.unstack(tf.random.split(seed, 4, alg="philox"))
        steps_per_batch = settings.steps_per_batch or settings.num_sampler_steps
        num_points = float(data.Y.shape[0] * data.Y.shape[1])

        def batch_of(i: tf.Tensor) -> Batch:
            batch_seed = tf.random.fold_in(seeds[0], i // steps_per_batch, alg="philox")
            return data.gather(draw_indices(data.num_items, settings.batch_size, batch_seed))

        def body(
            i: tf.Tensor, carried: tuple[SamplerState, tf.Tensor]
        ) -> tuple[SamplerState, tf.Tensor]:
            state, total = carried
            codes_seed = tf.random.fold_in(seeds[1], i, alg="philox")
            with tf.GradientTape() as tape:
                tape.watch(state.position)
                objective = tf.add_n(self._bound(state.position, batch_of(i), codes_seed))
            to_parameters, to_encoder = tape.gradient(
                objective, (state.position, self.encoder_variables)
            )
            state = adaptive_sghmc.update(
                state,
                to_parameters,
                tf.random.fold_in(seeds[2], i, alg="philox"),
                step_size=settings.step_size,
                momentum_decay=settings.momentum_decay,
                temperature=self.temperatures[0],
                adapt=adapt,
                noise=settings.noise,
                subtract_gradient_noise=settings.subtract_gradient_noise,
            )
            self.optimizer.apply([-g / num_points for g in to_encoder], self.encoder_variables)
            return state, total - objective / num_points

        start = (chain.parameters, tf.zeros([], tf.float64))
        state, total = repeat(settings.num_sampler_steps, body, start)
        last = tf.constant(settings.num_sampler_steps - 1)
        log_prior, bound = self._bound(state.position, batch_of(last), seeds[3])
        finite = [
            tf.reduce_all(tf.math.is_finite(p)) & tf.reduce_all(tf.math.is_finite(m))
            for p, m in zip(state.position, state.momentum, strict=True)
        ]
        statistics = RoundStatistics(
            log_prior, bound, total / settings.num_sampler_steps, tf.stack([*finite, True])
        )
        return Chain(state, chain.codes), statistics
