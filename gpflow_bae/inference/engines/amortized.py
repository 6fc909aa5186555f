"""Algorithm 1 of Tran et al. (2023): sample codes and parameters jointly, and fit an encoder.

A round draws a minibatch, starts its codes at the chain's last ones (or at draws of the encoder, as
published), takes K steps of any sampler in (parameters, codes) jointly, and then J Adam steps that
fit the encoder to the sampled codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf

from ...base import Batch
from ...data.compressed_rows import rows_seen
from ...inputs import MissingInputs
from ...mcmc import State, Step
from ...mcmc.noise import fold_in, split
from ...models import BayesianAutoencoder
from ...models import State as ModelState
from ..chain_state import Chain, Point, RoundStatistics
from ..loops import repeat
from ..moves import Move, allowed_moves, build_moves
from ..moves.base import Moved
from ..optimise.encoder_fit import EncoderFit
from ..optimise.encoder_losses import check_encoder_loss
from .chain_sampling import ChainSampling
from .chain_target import PRIOR_DRAWS
from .control_variates import Reference
from .minibatch_codes import gather_codes, scatter_codes
from .sampler_steps import sampler_steps
from .surroundings import surroundings_of

__all__ = ["AmortizedSampling"]

_MOVES = 0x30  # folded into the seed of a round


class AmortizedSampling(ChainSampling):
    """Chains of codes, parameters and encoders."""

    model: BayesianAutoencoder
    samples_codes = True
    coordinates = ("prior", "fisher")
    has_control_variates = True

    def __init__(self, model: BayesianAutoencoder, *arguments: Any, **options: Any):
        """Arguments as in :class:`~gpflow_bae.inference.engines.chain_sampling.ChainSampling`.

        :raises ValueError: for an incompatible combination of encoder, loss, moves, coordinates and
            whitened codes.
        """
        super().__init__(model, *arguments, **options)
        check_encoder_loss(self.settings.encoder.loss, model.encoder)
        if model.whitened_codes and self.settings.codes != "carried":
            raise ValueError('whitened_codes needs codes="carried": no encoder draws them.')
        self.encoder_fit = EncoderFit(model.encoder, self.settings.encoder, self.spread.gradients)
        self._surroundings = surroundings_of(model, self.data, self.settings, self._fixed_shapes)

    def surrounded(self, batch: Batch, codes: tf.Tensor) -> Batch:
        """Return a minibatch with the codes on which its codes depend under a prior by neighbours.

        :param codes: codes of all items [T, N, L].
        """
        if batch.indices is None or self._surroundings is None:
            return batch
        near = self._surroundings.conditionals(batch.indices, self.data.X, codes)
        return batch._replace(near=near)

    def _minibatch(
        self, seed: tf.Tensor, fed: Any, number: int | tf.Tensor, codes: tf.Tensor
    ) -> Batch:
        """Draw a minibatch, or take one of a stream, and complete it by the codes around it.

        :param number: index of the minibatch among those of a stream in ``fed``.
        :param codes: codes of all items [T, N, L].
        """
        batch = self.data.minibatch(self.settings.batch_size, seed, fed, number)
        return self.surrounded(batch, codes)

    def _build_moves(self, names: tuple[str, ...] | None) -> tuple[Move, ...]:
        """Build the moves of a run.

        Missing inputs have conditionals that sampler steps do not suit, so they always have a move.

        :raises ValueError: for moves that would change the chain's stationary distribution.
        """
        settings, temperature = self.settings, self.sampler.settings.get("temperature", 1.0)
        why = ""
        if settings.codes != "carried":
            why = f'codes="{settings.codes}" draws the codes anew in each round'
        elif self.point_estimates or temperature != 1.0:
            what = (
                f"point_estimates={self.point_estimates!r}"
                if self.point_estimates
                else f"temperature {temperature!r}"
            )
            why = f"moves draw from the posterior at temperature 1, and the chain has {what}"
        if why:
            if names:
                raise ValueError(f"moves={names!r} cannot be: {why}. Leave one of them out.")
            return ()
        inputs = self.model.inputs
        missing = isinstance(inputs, MissingInputs) and any(p.trainable for p in inputs.parameters)
        always = ("unknown_inputs",) if missing and "unknown_inputs" not in (names or ()) else ()
        if names is None:
            fitting = allowed_moves(self.model) if settings.coordinates != "none" else ()
            return (*fitting, *build_moves(always, self.model))
        return build_moves((*names, *always), self.model)

    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """Start at the model's current values; codes at ``latents``, or drawn by the encoder."""
        if self._readers:  # codes of a stream are drawn for each minibatch
            latents = tf.zeros([1, self.settings.batch_size, self.model.latent_dim])
        elif latents is None:
            latents = self._draw_codes(self.model.encoder, self.data.gather(None), seed)
        latents = tf.cast(latents, gpflow.default_float())
        if self.model.whitened_codes:
            latents = self.model.to_whitened(self.data.X, latents)
        position = Point(self.sampled.values(), latents)
        return self._start(position, self.encoder_fit.initial_state())

    @staticmethod
    def _draw_codes(encoder: Any, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        return encoder.sample(batch.Y, seed, **encoder.side_inputs(batch.mask))

    def codes(self, chain: Chain, seed: tf.Tensor) -> tf.Tensor:
        """Return the codes of all points [T, N, L], for data in memory.

        :param seed: seed of the prior's draws, if it makes any.
        """
        position = chain.sampler.position
        if not self.model.whitened_codes:
            return position.codes
        bound = self.model.bind(position.parameters, seed=seed)
        return bound.from_whitened(self.data.X, position.codes)

    def log_likelihood(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        return self.model.log_likelihood(ModelState(*position), batch, seed)

    def _round(
        self, chain: Chain, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        seeds = tf.unstack(split(seed, 4))
        count = self.batches_per_round if self._has_fresh_batches else 1
        size = self.settings.num_sampler_steps // count
        reference = self.reference(chain.sampler.position, fold_in(seeds[2], -1))

        def seeds_of(i: int | tf.Tensor) -> list[tf.Tensor]:
            """Return the seeds of items, of codes drawn by the encoder, and of the steps."""
            return [fold_in(s, i) for s in seeds[:3]] if self._has_fresh_batches else seeds[:3]

        def on_minibatch(i: tf.Tensor, store: State) -> State:
            at = Step(first + i * size, adapt)
            return self._on_minibatch(chain, store, seeds_of(i), at, size, fed, i, reference)

        chain = chain._replace(sampler=repeat(count, on_minibatch, chain.sampler))
        if self.moves:
            chain = self._apply_moves(chain, seed)
        item_seed, code_seed, _ = seeds_of(count - 1)
        batch = self._minibatch(item_seed, fed, count - 1, chain.sampler.position.codes)
        return self._fit_encoder(chain, batch, seed, code_seed, seeds[3])

    def _fit_encoder(
        self,
        chain: Chain,
        batch: Batch,
        seed: tf.Tensor,
        code_seed: tf.Tensor,
        fit_seed: tf.Tensor,
    ) -> tuple[Chain, RoundStatistics]:
        """Fit the encoder to the codes of a minibatch, and compute the round's statistics."""
        prior_seed = fold_in(seed, PRIOR_DRAWS)
        state = gather_codes(chain.sampler, batch.indices, self.data.axis)
        position = state.position
        latents = position.codes
        if self.model.whitened_codes:
            bound = self.model.bind(position.parameters, seed=prior_seed)
            latents = bound.from_whitened(batch.X, latents)
        drawn = code_seed if self.settings.codes == "encoder" else None
        encoder, loss = self.encoder_fit.fit(chain.encoder, batch, latents, drawn, fit_seed)
        log_likelihood = batch.scale * self.log_likelihood(position, batch, prior_seed)
        statistics = self.statistics(state, self.log_prior(position), log_likelihood, loss)
        return chain._replace(encoder=encoder), statistics

    def _apply_moves(self, chain: Chain, seed: tf.Tensor) -> Chain:
        """Apply all moves in turn. Momenta stay: they are independent of positions."""
        state = chain.sampler
        position = state.position
        moved = Moved(position.parameters, position.codes, chain.encoder.weights)
        seeds = split(fold_in(seed, _MOVES), len(self.moves))
        batch = self.data.gather(None)
        for move, own_seed in zip(self.moves, tf.unstack(seeds), strict=True):
            moved = move(moved, batch, own_seed)
        position = Point(moved.parameters, tf.ensure_shape(moved.codes, state.position.codes.shape))
        encoder = chain.encoder._replace(weights=moved.encoder)
        return chain._replace(sampler=state._replace(position=position), encoder=encoder)

    def _redraw_codes(self, chain: Chain, state: State, batch: Batch, seed: tf.Tensor) -> State:
        """Set codes to draws of the encoder, with zero momenta; other statistics of codes stay.

        Codes of points without any observation, of which the encoder knows nothing, stay too. Those
        of a stream are not kept.
        """
        encoder = self.encoder_fit.at(chain.encoder.weights)
        old = state.position.codes
        codes = tf.cast(self._draw_codes(encoder, batch, seed), old.dtype)
        codes = tf.ensure_shape(codes, old.shape)
        drawn = tf.ones_like(codes, tf.bool)
        if batch.mask is not None and not self._readers:
            drawn &= rows_seen(batch.mask)
        codes, elements = tf.where(drawn, codes, old), dict(state.elements)
        if "momentum" in elements:
            momentum = elements["momentum"]
            still = tf.where(drawn, tf.zeros_like(codes), momentum.codes)
            elements["momentum"] = momentum._replace(codes=still)
        return state._replace(position=state.position._replace(codes=codes), elements=elements)

    @property
    def _has_fresh_batches(self) -> bool:
        """Return whether minibatches change within a round."""
        settings, data = self.settings, self.data
        whole = settings.batch_size is None or settings.batch_size >= data.num_items
        return settings.steps_per_batch is not None and (bool(self._readers) or not whole)

    def _on_minibatch(
        self,
        chain: Chain,
        store: State,
        seeds: Sequence[tf.Tensor],
        first: Step,
        num_steps: int,
        fed: Any,
        number: int | tf.Tensor,
        reference: Reference | None,
    ) -> State:
        """Take steps of the sampler on one minibatch, and return its state with all codes.

        :param store: the sampler's state with all codes.
        :param seeds: seeds of the items, of codes drawn by the encoder, and of the steps.
        :param first: number of the first of these steps, and whether the sampler may adapt.
        :param number: number of the minibatch among those of the round.
        """
        axis, batch = self.data.axis, self._minibatch(seeds[0], fed, number, store.position.codes)
        indices = batch.indices
        state = gather_codes(store, indices, axis)
        if self.settings.codes == "encoder":
            state = self._redraw_codes(chain, state, batch, seeds[1])
        if reference is not None:
            there = reference.position.codes
            codes = tf.gather(there, indices, axis=axis)
            seen = self.surrounded(batch, there)
            reference = Reference(reference.position._replace(codes=codes), reference.full, seen)
        target = self.target(batch, reference)
        fitted, preconditioning = self.preconditioner, None
        if fitted is not None:
            values = state.position.parameters
            preconditioning = fitted.map_at(chain.metric, values, batch.X, indices)
        state = sampler_steps(
            self.sampler,
            state,
            lambda i: target,
            seeds[2],
            first,
            num_steps,
            preconditioning,
        )
        # Statistics that did not change are not copied, unless every step would branch.
        changed = True if self._has_fresh_batches else first.adapt
        return scatter_codes(store, state, indices, axis, self.sampler.adapted, changed)
