"""One round of Algorithm 1 (Tran et al. 2023), compiled whole.

A round draws a minibatch and seeds, starts its codes from the encoder (or where the chain left
them), makes K SG-MCMC updates of (parameters, codes) jointly, and then J Adam steps that fit the
encoder to the sampled codes. Nothing in it returns to Python.
"""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import keras
import tensorflow as tf

from .. import functional
from ..base import Batch
from ..data import Observations, draw_indices
from ..encoders import side_inputs
from ..mcmc import adaptive_sghmc
from ..models import BayesianAutoencoder, State
from .encoder_losses import check_encoder_loss, encoder_loss
from .loops import repeat
from .settings import AmortizedSettings

__all__ = ["AmortizedRound", "Chain", "RoundStatistics"]

SamplerState = adaptive_sghmc.State

_PRIOR_DRAWS = 0x9D  # seeds of the draws of a prior over codes, folded into those of a step


class Chain(NamedTuple):
    """Where the sampler is: state of the parameters, and of the codes of every data point.

    Statistics that belong to a code stay with its data point, never with a row of a minibatch.
    """

    parameters: SamplerState  # leaves are tuples in the order of model.sampled_parameters
    codes: SamplerState  # leaves are [T, N, L]


class RoundStatistics(NamedTuple):
    """What a round reports."""

    log_prior: tf.Tensor  # of the parameters, at the end of the round
    log_likelihood: tf.Tensor  # of codes and observations, times N/B
    encoder_loss: tf.Tensor  # mean over the round's Adam steps
    finite: tf.Tensor  # [number of parameters + 1], the last one for the codes


def _join(parameters: SamplerState, codes: SamplerState) -> SamplerState:
    return SamplerState(*((p, c) for p, c in zip(parameters, codes, strict=True)))


def _split(state: SamplerState) -> tuple[SamplerState, SamplerState]:
    return SamplerState(*(part[0] for part in state)), SamplerState(*(part[1] for part in state))


class AmortizedRound:
    """The compiled round of one model on one data set; traced once."""

    def __init__(
        self,
        model: BayesianAutoencoder,
        data: Observations,
        settings: AmortizedSettings,
        jit_compile: bool = False,
    ):
        check_encoder_loss(settings.encoder_loss, model.encoder)
        self.model, self.data, self.settings = model, data, settings
        self.encoder_variables = model.encoder_variables
        self.optimizer = keras.optimizers.Adam(settings.encoder_learning_rate)
        self.optimizer.build(self.encoder_variables)
        batch_size = settings.batch_size or data.num_items
        if model.whitened_codes and settings.codes != "carried":
            raise ValueError('whitened_codes needs codes="carried": no encoder draws them.')
        self.scale = data.num_items / batch_size  # N/B, the only place
        self.temperatures = self._temperatures()
        self._compiled = tf.function(self._round, autograph=False, jit_compile=jit_compile)

    def _temperatures(self) -> tuple[tuple[float, ...], float]:
        """The temperature of each parameter, and of the codes."""
        settings, paths = self.settings, self.model.sampled_paths
        for start in settings.point_estimates:
            if not any(path.startswith(start) for path in paths):
                raise ValueError(
                    f"point_estimates holds {start!r}, with which no sampled parameter's path "
                    f"begins; paths are such as {paths[0]!r} and {paths[-1]!r}."
                )
        if settings.point_estimates and settings.subtract_gradient_noise:
            raise ValueError(
                "point_estimates have no noise from which subtract_gradient_noise could take some; "
                "set one of them only."
            )
        return tuple(
            0.0 if path.startswith(settings.point_estimates) else settings.temperature
            for path in paths
        ), settings.temperature

    @property
    def tracing_count(self) -> int:
        """How often the round was traced: 1 in a healthy run."""
        return self._compiled.experimental_get_tracing_count()

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """At the model's present values; the codes at ``latents``, else drawn by the encoder."""
        if latents is None:
            latents = self._draw_codes(self.data.gather(None), seed)
        latents = tf.cast(latents, gpflow.default_float())
        latents = self.model.whiten(self.data.X, latents)
        values = functional.unconstrained_values(self.model.sampled_parameters)
        return Chain(adaptive_sghmc.init(values), adaptive_sghmc.init(latents))

    def _draw_codes(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        encoder = self.model.encoder
        return encoder.sample(batch.Y, seed, **side_inputs(encoder, batch.mask))

    def latents(self, chain: Chain, seed: tf.Tensor | None = None) -> tf.Tensor:
        """The codes of all points [T, N, L]; ``seed`` of draws of the prior, if it makes some."""
        if not self.model.whitened_codes:
            return chain.codes.position
        bound = self.model.bind(chain.parameters.position, seed=seed)
        return bound.colour(self.data.X, chain.codes.position)

    def __call__(self, chain: Chain, seed: tf.Tensor, adapt: bool) -> tuple[Chain, RoundStatistics]:
        """Run one round; the encoder's variables change in place."""
        return self._compiled(chain, seed, tf.constant(adapt))

    def _round(
        self, chain: Chain, seed: tf.Tensor, adapt: tf.Tensor
    ) -> tuple[Chain, RoundStatistics]:
        settings, data = self.settings, self.data
        seeds = tf.unstack(tf.random.split(seed, 4, alg="philox"))
        indices = draw_indices(data.num_items, settings.batch_size, seeds[0])
        batch = data.gather(indices)
        codes = self._gather_codes(chain.codes, indices)
        if settings.codes == "encoder":
            fresh = tf.cast(self._draw_codes(batch, seeds[1]), codes.position.dtype)
            fresh = tf.ensure_shape(fresh, codes.position.shape)
            codes = codes._replace(position=fresh, momentum=tf.zeros_like(fresh))

        if settings.steps_per_batch is None or indices is None:
            state = self._sampler_steps(
                _join(chain.parameters, codes), batch, seeds[2], adapt, settings.num_sampler_steps
            )
        else:
            chain, state, indices = self._sampler_steps_on_fresh_batches(chain, seeds, adapt)
            batch = data.gather(indices)
        parameters, codes = _split(state)
        latents = codes.position
        batch = batch._replace(seed=tf.random.fold_in(seed, _PRIOR_DRAWS, alg="philox"))
        if self.model.whitened_codes:
            bound = self.model.bind(parameters.position, seed=batch.seed)
            latents = bound.colour(batch.X, latents)
        loss = self._encoder_steps(batch, latents, seeds[1], seeds[3])

        point = State(parameters.position, codes.position)
        finite = [
            tf.reduce_all(tf.math.is_finite(p)) & tf.reduce_all(tf.math.is_finite(m))
            for p, m in zip(
                tf.nest.flatten(state.position), tf.nest.flatten(state.momentum), strict=True
            )
        ]
        statistics = RoundStatistics(
            self.model.log_prior(point),
            self.scale * self.model.log_likelihood(point, batch),
            loss,
            tf.stack(finite),
        )
        return Chain(parameters, self._scatter_codes(chain.codes, codes, indices)), statistics

    def log_density_gradient(
        self, position: tuple[tuple[tf.Tensor, ...], tf.Tensor], batch: Batch
    ) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """Gradient of the log posterior, estimated from ``batch``, in one backward pass.

        The parameters' gradient carries N/B. A code's own conditional does not: only its own
        point informs it (the paper's eq. 3 and code scale it too; ``scale_codes``).
        """
        parameters, latents = position
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            state = State(parameters, latents)
            objective = self.scale * self.model.log_likelihood(state, batch)
            objective += self.model.log_prior(state)
        to_parameters, to_latents = tape.gradient(objective, (parameters, latents))
        if not self.settings.scale_codes:
            to_latents /= tf.cast(self.scale, to_latents.dtype)
        return to_parameters, to_latents

    def _sampler_steps_on_fresh_batches(
        self, chain: Chain, seeds: list[tf.Tensor], adapt: tf.Tensor
    ) -> tuple[Chain, SamplerState, tf.Tensor]:
        """K updates, a few on each minibatch; the chain, and state and items of the last batch."""
        settings, data = self.settings, self.data
        size = settings.steps_per_batch or settings.num_sampler_steps

        def update(i: tf.Tensor, chain: Chain) -> tuple[SamplerState, tf.Tensor]:
            indices = draw_indices(
                data.num_items,
                settings.batch_size,
                tf.random.fold_in(seeds[0], i, alg="philox"),
            )
            codes = self._gather_codes(chain.codes, indices)
            seed = tf.random.fold_in(seeds[2], i, alg="philox")
            joined = _join(chain.parameters, codes)
            state = self._sampler_steps(joined, data.gather(indices), seed, adapt, size)
            return state, indices

        def body(i: tf.Tensor, chain: Chain) -> Chain:
            state, indices = update(i, chain)
            parameters, codes = _split(state)
            return Chain(parameters, self._scatter_codes(chain.codes, codes, indices))

        last = settings.num_sampler_steps // size - 1
        chain = repeat(last, body, chain) if last else chain
        return chain, *update(tf.constant(last), chain)

    def _sampler_steps(
        self,
        state: SamplerState,
        batch: Batch,
        seed: tf.Tensor,
        adapt: tf.Tensor,
        num_steps: int,
    ) -> SamplerState:
        settings = self.settings

        def body(i: tf.Tensor, state: SamplerState) -> SamplerState:
            step_seed = tf.random.fold_in(seed, i, alg="philox")
            prior_seed = tf.random.fold_in(step_seed, _PRIOR_DRAWS, alg="philox")
            gradient = self.log_density_gradient(state.position, batch._replace(seed=prior_seed))
            return adaptive_sghmc.update(
                state,
                gradient,
                step_seed,
                step_size=settings.step_size,
                momentum_decay=settings.momentum_decay,
                temperature=self.temperatures,
                adapt=adapt,
                noise=settings.noise,
                subtract_gradient_noise=settings.subtract_gradient_noise,
            )

        def valid(state: SamplerState) -> tf.Tensor:
            # Stop where eq. 17's variance is negative, with the preconditioner that made it so.
            largest = adaptive_sghmc.largest_valid_step_size(
                state,
                momentum_decay=settings.momentum_decay,
                temperature=settings.temperature,
            )
            return settings.step_size <= largest

        go_on = valid if settings.subtract_gradient_noise else None
        return repeat(num_steps, body, state, go_on)

    def _encoder_steps(
        self, batch: Batch, latents: tf.Tensor, start_seed: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """J Adam steps on (observation, sampled code) pairs; the mean loss."""
        settings = self.settings
        Y = tf.reshape(batch.Y, [-1, batch.Y.shape[-1]])
        mask = None if batch.mask is None else tf.reshape(batch.mask, tf.shape(Y))
        codes = tf.reshape(latents, [-1, latents.shape[-1]])
        size = settings.encoder_batch_size
        whole = size is None or size >= Y.shape[0]
        if settings.num_encoder_steps == 0:
            return tf.zeros([], codes.dtype)

        def body(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            step_seeds = tf.unstack(
                tf.random.split(tf.random.fold_in(seed, i, alg="philox"), alg="philox")
            )
            targets, inputs, seen = codes, Y, mask
            if not whole:
                rows = tf.random.stateless_uniform(
                    [size], step_seeds[0], 0, Y.shape[0], tf.int32, alg="philox"
                )
                targets, inputs = tf.gather(codes, rows), tf.gather(Y, rows)
                seen = None if mask is None else tf.gather(mask, rows)
            # The paper's squared error compares with the very noise that started the codes.
            paired = settings.encoder_loss == "mse" and whole and settings.codes == "encoder"
            with tf.GradientTape() as tape:
                loss = encoder_loss(
                    self.model.encoder,
                    inputs if not paired else batch.Y,
                    targets if not paired else latents,
                    start_seed if paired else step_seeds[1],
                    settings.encoder_loss,
                    seen if not paired else batch.mask,
                )
            gradients = tape.gradient(loss, self.encoder_variables)
            self.optimizer.apply(gradients, self.encoder_variables)
            return total + loss

        total = repeat(settings.num_encoder_steps, body, tf.zeros([], codes.dtype))
        return total / settings.num_encoder_steps

    def _gather_codes(self, codes: SamplerState, indices: tf.Tensor | None) -> SamplerState:
        if indices is None:
            return codes
        return SamplerState(*(tf.gather(part, indices, axis=self.data.axis) for part in codes))

    def _scatter_codes(
        self, store: SamplerState, codes: SamplerState, indices: tf.Tensor | None
    ) -> SamplerState:
        if indices is None:
            return codes
        where = indices[:, None]

        def scatter(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            if self.data.axis == 0:
                return tf.tensor_scatter_nd_update(old, where, new)
            return tf.tensor_scatter_nd_update(old[0], where, new[0])[None]

        return SamplerState(*(scatter(o, n) for o, n in zip(store, codes, strict=True)))
