"""Base class of stochastic-gradient MCMC: state, compiled rounds, checkpoints and diagnosis.

A round is a number of sampler steps and the algorithm's other updates. It is compiled once for all
step sizes, and for both burn-in and sampling.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ...base import Batch
from ...core.parameter_set import ParameterSet
from ...core.tracing import compiled
from ...data import BatchReader, Observations, StreamedObservations
from ...mcmc import State, Target, adaptive_sghmc
from ...mcmc.algorithm import SamplingAlgorithm
from ...mcmc.calibrated import targets
from ...mcmc.mean_temperatures import with_mean_temperatures
from ...models.default_priors import check_priors, set_default_likelihood_priors
from ..chain_state import Chain, Point, RoundStatistics
from ..chains import chain_seeds, map_chains, of_chain, stack_chains
from ..checks.chain_checks import check_chain
from ..checks.divergence import against_divergence, what_diverged
from ..moves import Move
from ..preconditioning import FisherPreconditioner, Preconditioner
from ..runs.naming import from_arrays, leaf_names, to_arrays
from ..runs.run import Algorithm, Trace
from ..settings import AmortizedSettings
from ..sharding.spread import Spread
from .control_variates import Reference, controlled

__all__ = ["PRIOR_DRAWS", "ChainSampling"]

PRIOR_DRAWS = 0x9D
"""Folded into the seed of a step, for the draws of a prior over codes."""
_ORDER = 0x7A2  # second part of the seed of the order in which a chain reads a stream


class ChainSampling(Algorithm):
    """Chains of one model on one data set, sampled in compiled rounds.

    A subclass defines a round (:meth:`_round`) and the start of a chain (:meth:`initial_chain`).
    """

    label = "sampling"
    coordinates: tuple[str, ...] = ()  # allowed in settings, besides "none"
    has_control_variates = False
    samples_codes = False  # whether codes are sampled, besides parameters

    def __init__(
        self,
        model: Any,
        data: Observations | StreamedObservations,
        settings: AmortizedSettings,
        sampler: SamplingAlgorithm | None = None,
        *,
        seed: int = 0,
        num_chains: int = 1,
        jit_compile: bool = False,
        spread: Spread | None = None,
        point_estimates: tuple[str, ...] = (),
        moves: tuple[str, ...] | None = None,
    ):
        """
        :param sampler: any :class:`~gpflow_bae.mcmc.SamplingAlgorithm`; None for the published
            one, adaptive SGHMC with its defaults.
        :param seed: seed of the first chain; chain c has ``seed + c``.
        :param spread: replicas that share chains or minibatches; None for this device alone.
        :param point_estimates: prefixes of the paths of parameters that are optimised instead of
            sampled, at temperature 0 in the same steps: ``(".decoder",)`` or
            ``(".latent_prior",)`` is an ablation of Tran et al. (2023, appendix F).
        :param moves: names among :data:`gpflow_bae.inference.moves.MOVES` of the updates that are
            made after the sampler steps of each round, if codes are sampled; None for those that
            the coordinates of the steps need.
        :raises ValueError: for fewer chains than one, a parameter that has no prior and gets none
            by default, point estimates that name no parameter, a sampler that cannot be used here,
            or a model, data or settings that replicas cannot share.
        :raises TypeError: if ``sampler`` is not a ``SamplingAlgorithm``.
        """
        if num_chains < 1:
            raise ValueError(f"num_chains must be at least 1, got {num_chains}.")
        set_default_likelihood_priors(model.likelihood)
        check_priors(model)
        self.model, self.settings = model, settings
        self.point_estimates = tuple(point_estimates)
        self.data: Any = data
        self.sampler = adaptive_sghmc.build() if sampler is None else sampler
        self.num_chains, self.seed = int(num_chains), int(seed)
        self.num_steps = settings.num_rounds
        self.sampled: ParameterSet = model.sampled
        self.spread = Spread() if spread is None else spread
        check_chain(self)
        self.spread.check(model, data, settings, self.num_chains, jit_compile)
        self._fixed_shapes = bool(jit_compile)
        self.preconditioner: Preconditioner | None = None
        # Rounds report the mean over their steps.
        self.sampler = with_mean_temperatures(self.sampler, settings.num_sampler_steps)
        numbers = chain_seeds(seed, self.num_chains)
        seeds = [[s, 0] for s in numbers]
        self._base_seeds = tf.constant(seeds, tf.int32)  # [C, 2]
        self.moves = self._build_moves(moves)
        count, size = self.batches_per_round, settings.batch_size
        readers = [self.data.reader(size, count, [s, _ORDER], model) for s in numbers]
        self._readers: list[BatchReader] = [r for r in readers if r is not None]
        self._compiled = compiled(self._all_chains, jit_compile=jit_compile)

    @property
    def batches_per_round(self) -> int:
        """Number of minibatches of a round."""
        steps = self.settings.num_sampler_steps
        return steps // (self.settings.steps_per_batch or steps)

    @property
    def tracing_count(self) -> int:
        """Number of times that the round was traced: 1 in a healthy run."""
        return self._compiled.experimental_get_tracing_count()

    # Starts of chains.

    @abstractmethod
    def initial_chain(self, seed: tf.Tensor, latents: tf.Tensor | None = None) -> Chain:
        """Start a chain at the model's current values; codes at ``latents`` [T, N, L] or drawn."""

    def initial(self, latents: Sequence[tf.Tensor] | None = None) -> Chain:
        """Start all chains at the model's current values, each with its own codes."""
        return stack_chains(
            [
                self.initial_chain(self.seed_of(c, -1), None if latents is None else latents[c])
                for c in range(self.num_chains)
            ]
        )

    def _build_moves(self, names: tuple[str, ...] | None) -> tuple[Move, ...]:
        """Build the moves of a run: none if no codes are sampled."""
        if names:
            raise ValueError(
                f"moves={names!r} are for models whose codes are sampled, such as SGPBAE: leave "
                "them out."
            )
        return ()

    @property
    def owned(self) -> tuple[str, ...]:
        """Paths of parameters that are updated by moves only, not by the sampler."""
        return tuple(path for move in self.moves for path in move.owned)

    def _sampler_state(self, position: Point) -> State:
        """Start the sampler at a position, with temperature 0 for parameters it does not sample."""
        state = self.sampler.init(position, Target())
        cold, owned = self.point_estimates, self.owned
        if not cold and not owned:
            return state
        temperature = state.shared.get("temperature")
        if not isinstance(temperature, Point) or (cold and self.sampler.rests_when_cold):
            who = "point_estimates" if cold else f"moves, which own {', '.join(owned)},"
            raise ValueError(
                f"{who} need a sampler with a temperature for each parameter that descends at 0, "
                f"and {self.sampler.name} is none; use sghmc, adaptive_sghmc or sgld "
                "with a number as its temperature."
            )
        of_parameters = tuple(
            tf.zeros_like(t) if path.startswith(cold) or path in owned else t
            for path, t in zip(self.sampled.paths, temperature.parameters, strict=True)
        )
        temperature = temperature._replace(parameters=of_parameters)
        return state._replace(shared=state.shared | {"temperature": temperature})

    def _build_preconditioner(self) -> None:
        """Build the preconditioner of the settings, if they name one."""
        settings, shared = self.settings, (self.owned, self.settings.batch_size)
        if settings.coordinates == "prior":
            self.preconditioner = Preconditioner(self.model, self.data, *shared)
        elif settings.coordinates == "fisher":
            self.preconditioner = FisherPreconditioner(
                self.model, self.data, settings.burnin_rounds, self._sampler_state, *shared
            )

    def _initial_metric(self) -> Any:
        """Return a chain's preconditioner state before the first fit."""
        return () if self.preconditioner is None else self.preconditioner.initial()

    # The target, for algorithms with a density.

    def log_prior(self, position: Point) -> tf.Tensor:
        """Return the log prior of one chain's parameters."""
        return self.sampled.log_prior(position.parameters)

    def log_likelihood(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the log density of one chain's codes and observations, summed over the batch.

        :param seed: seed of the prior's draws, if it makes any; None for the prior's own seed.
        """
        raise NotImplementedError

    def log_density_gradient(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> Point:
        """Estimate the gradient of the log posterior from ``batch`` in one backward pass.

        The parameters' gradient is scaled by N/B, and is zero for those that moves own. That of a
        code is not scaled, as only its own point informs it (eq. 3 of Tran et al. 2023 and their
        code scale it too, which over-concentrates it).
        """
        found = self.spread.gradients.log_density_gradient(
            lambda position, own: self.log_likelihood(position, own, seed),
            self.log_prior,
            position,
            batch,
            self.data.axis,
        )
        if owned := self.owned:
            moved = zip(self.sampled.paths, found.parameters, strict=True)
            kept = tuple(tf.zeros_like(g) if path in owned else g for path, g in moved)
            found = found._replace(parameters=kept)
        if not tf.is_tensor(found.codes):
            return found
        return found._replace(codes=found.codes / tf.cast(batch.scale, found.codes.dtype))

    def target(self, batch: Batch, reference: Reference | None = None) -> Target:
        """Return the gradient oracle of ``batch``, and the density oracle if that is all data.

        :param reference: start of the round, for gradients with control variates.
        """

        def gradient(position: Point, seed: tf.Tensor) -> Point:
            prior_seed = tf.random.fold_in(seed, PRIOR_DRAWS, alg="philox")
            here = self.log_density_gradient(position, batch, prior_seed)
            if reference is None:
                return here
            seen = batch if reference.batch is None else reference.batch
            there = self.log_density_gradient(reference.position, seen, prior_seed)
            return controlled(here, there, reference)

        if batch.scale != 1.0:
            return Target(gradient)
        evaluate = targets.target(lambda p: self.log_likelihood(p, batch), self.log_prior)
        return Target(gradient, evaluate)

    def reference(self, position: Point, seed: tf.Tensor) -> Reference | None:
        """Return a round's start and the gradient of all data there; None without control variates.

        :param seed: seed of the prior's draws, if it makes any.
        """
        if self.settings.gradients != "control_variates":
            return None
        full = self.log_density_gradient(position, self.data.gather(None), seed)
        return Reference(position, full.parameters)

    def seed_of(self, chain: int, number: int) -> tf.Tensor:
        """Return the seed of a chain's round; round -1 draws the initial codes."""
        return tf.random.fold_in(self._base_seeds[chain], number, alg="philox")

    # Rounds.

    @abstractmethod
    def _round(
        self, chain: Chain, seed: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        """Make one round of one chain.

        :param first: int32, sampler steps of the chain before this round.
        :param adapt: whether the sampler may adapt.
        :param fed: the round's minibatches, if the data are a stream.
        """

    def _all_chains(
        self, chains: Chain, seeds: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        specification = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape[1:], v.dtype), chains)
        number = tf.TensorSpec([], gpflow.default_float())
        count = len(tf.nest.flatten((chains.sampler.position, chains.sampler.elements)))
        blocks = tf.TensorSpec([self._count_temperatures(chains.sampler)], number.dtype)
        finite = tf.TensorSpec([count], tf.bool)
        said = "step_size" in self.sampler.info(of_chain(chains.sampler, 0))
        step_size = tf.TensorSpec([int(said)], number.dtype)
        statistics = RoundStatistics(number, number, number, finite, blocks, step_size)

        def mapped(chains: Chain, seeds: tf.Tensor, fed: Any) -> tuple[Chain, RoundStatistics]:
            return map_chains(
                lambda chain, seed, fed: self._round(chain, seed, first, adapt, fed),
                (chains, seeds, fed),
                (specification, statistics),
            )

        return self.spread.chains.over_devices(mapped, (chains, seeds, fed))

    def _count_temperatures(self, state: State) -> int:
        """Return the number of leaves with a kinetic temperature: all or none.

        :param state: state of all chains.
        """
        found = self.sampler.temperatures(of_chain(state, 0))
        return 0 if found is None else len(tf.nest.flatten(found))

    def round(self, chains: Chain, number: int) -> tuple[Chain, RoundStatistics]:
        """Make round ``number`` of all chains, after a fit of the preconditioner if one is due."""
        seeds = tf.stack([self.seed_of(c, number) for c in range(self.num_chains)])
        if self.preconditioner is not None:
            chains = self.preconditioner.before_round(chains, number, seeds)
        first = tf.constant(number * self.settings.num_sampler_steps)
        adapt = tf.constant(number < self.settings.burnin_rounds)
        batches = [reader.read(number * self.batches_per_round) for reader in self._readers]
        return self.advance(chains, seeds, first, adapt, stack_chains(batches) if batches else ())

    def advance(
        self, chains: Chain, seeds: tf.Tensor, first: tf.Tensor, adapt: tf.Tensor, fed: Any = ()
    ) -> tuple[Chain, RoundStatistics]:
        """Make a compiled round of all chains.

        :param seeds: one for each chain [C, 2].
        :param first: int32, sampler steps of the chains before this round.
        :param adapt: bool, whether the sampler may adapt.
        :param fed: each chain's minibatches from :class:`BatchReader`, if the data are a stream.
        """
        return self.spread.round(self._compiled, chains, seeds, first, adapt, fed)

    def step(self, state: Chain, number: int, stop: int) -> tuple[Chain, int, Trace]:
        """Make a round; its statistics are [1, C]."""
        state, statistics = self.round(state, number)
        names = RoundStatistics._fields
        return state, 1, {k: v.numpy()[None] for k, v in zip(names, statistics, strict=True)}

    def fresh_batch(self, seed: tf.Tensor, i: tf.Tensor, fed: Any = ()) -> Batch:
        """Return the minibatch of step i of a round; it changes every ``steps_per_batch`` steps."""
        settings = self.settings
        number = i // (settings.steps_per_batch or settings.num_sampler_steps)
        batch_seed = tf.random.fold_in(seed, number, alg="philox")
        return self.data.minibatch(settings.batch_size, batch_seed, fed, number)

    def statistics(
        self, state: State, log_prior: tf.Tensor, log_likelihood: tf.Tensor, loss: tf.Tensor
    ) -> RoundStatistics:
        """Return the statistics of a round, and whether each leaf of the sampler is finite."""
        held = tf.nest.flatten((state.position, state.elements))
        finite = tf.stack([tf.reduce_all(tf.math.is_finite(v)) for v in held])
        dtype = gpflow.default_float()
        found = self.sampler.temperatures(state)
        kinetic = [] if found is None else [tf.cast(t, dtype) for t in tf.nest.flatten(found)]
        step_size = self.sampler.info(state).get("step_size")
        return RoundStatistics(
            tf.cast(log_prior, dtype),
            tf.cast(log_likelihood, dtype),
            tf.cast(loss, dtype),
            finite,
            tf.stack(kinetic) if kinetic else tf.zeros([0], dtype),
            tf.zeros([0], dtype) if step_size is None else tf.cast(step_size, dtype)[None],
        )

    # Methods that a run calls.

    def diagnose(self, state: Chain, number: int, trace: Trace, saved: str) -> Exception | None:
        """Return an error that names a chain's non-finite quantities; None if all are finite."""
        density = trace["log_prior"][-1] + trace["log_likelihood"][-1]  # [C]
        finite = trace["finite"][-1]  # [C, leaves]
        losses = trace["encoder_loss"][-1]
        good = finite.all(1) & np.isfinite(density) & np.isfinite(losses)
        if good.all():
            return None
        chain = int(np.argmin(good))
        words = self.sampler.diagnose(of_chain(state, chain).sampler)
        if words is not None:
            return ValueError(words)
        held = (state.sampler.position, state.sampler.elements)
        leaves = leaf_names(held, {"parameters": self.sampled.paths})
        bad = [n.rsplit("/", 1)[-1] for n, ok in zip(leaves, finite[chain], strict=True) if not ok]
        names = list(dict.fromkeys("the latent codes" if n == "codes" else n for n in bad))
        who = "The chain" if self.num_chains == 1 else f"Chain {chain}"
        given = self.sampler.settings
        return FloatingPointError(
            f"{who} diverged in round {number + 1}: {what_diverged(names, density[chain])}. The "
            f"last good state is that of round {number}{saved}. {against_divergence(given)}"
        )

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """Return the phase, burn-in or sampling, and current means over the chains.

        These are log likelihood per point, in nats, kinetic temperature, and step size.
        """
        likelihood = float(np.mean(trace["log_likelihood"][-1])) / self.data.num_points
        phase = "burn-in" if number <= self.settings.burnin_rounds else "sampling"
        numbers = {"log_likelihood": f"{likelihood:.4g}"}
        blocks = trace["kinetic_temperature"][-1].mean(0)[: len(self.sampled.paths)]
        sizes = [np.prod(p.unconstrained_variable.shape) for p in self.sampled.parameters]
        if blocks.any():
            weights = np.where(blocks > 0.0, sizes, 0.0)  # fixed parameters have no temperature
            numbers["temperature"] = f"{np.average(blocks, weights=weights):.3g}"
        if trace["step_size"].size:
            numbers["step_size"] = f"{np.mean(trace['step_size'][-1]):.2g}"
        return phase, numbers

    def codes(self, chain: Chain, seed: tf.Tensor) -> tf.Tensor:
        """Return one chain's codes [T, N, L] of all points, if codes are sampled and in memory.

        :param seed: seed of the prior's draws, if it makes any.
        """
        raise NotImplementedError

    def sample(self, state: Chain, number: int) -> dict[str, np.ndarray] | None:
        """Return the chains' current state, [C, ...] by path, if a sample is due; else None."""
        settings = self.settings
        after = number - settings.burnin_rounds
        if after <= 0 or after % settings.rounds_per_sample:
            return None
        arrays = {
            f"parameters/{path}": v.numpy()
            for path, v in zip(self.sampled.paths, state.sampler.position.parameters, strict=True)
        }
        if state.encoder:
            arrays |= {
                f"encoder/{path}": w.numpy()
                for path, w in zip(self.model.amortized.paths, state.encoder.weights, strict=True)
            }
        if not self.samples_codes or self._readers:  # codes of a stream are the encoder's
            return arrays
        codes = [
            self.codes(of_chain(state, c), self.seed_of(c, number - 1))
            for c in range(self.num_chains)
        ]
        return arrays | {"latents": np.stack([np.asarray(v) for v in codes])}

    def assign(self, state: Chain) -> None:
        """Assign the first chain's parameters and encoder to the model."""
        chain = of_chain(state, 0)
        self.sampled.assign(chain.sampler.position.parameters)
        if chain.encoder:
            self.model.amortized.assign(chain.encoder.weights)

    @property
    def _names(self) -> Mapping[str, Sequence[str]]:
        weights = self.model.amortized.paths
        sampled = self.sampled.paths
        return {
            "parameters": sampled,
            **dict.fromkeys(("weights", "first", "second"), weights),  # and Adam's moments
        }

    def arrays(self, state: Chain) -> dict[str, np.ndarray]:
        """Return every leaf by name."""
        return to_arrays(state, self._names)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Chain:
        """Invert :meth:`arrays`."""
        return from_arrays(self.initial(), arrays, self._names)
