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
from ...core.tracing import compiled
from ...data import BatchReader, Observations, StreamedObservations
from ...mcmc import State, Target, adaptive_sghmc
from ...mcmc.algorithm import SamplingAlgorithm
from ...mcmc.mean_temperatures import with_mean_temperatures
from ...mcmc.noise import fold_in
from ...models.default_priors import check_priors, set_default_likelihood_priors
from ..chain_state import Chain, Point, RoundStatistics
from ..chains import chain_seeds, map_chains, of_chain, stack_chains
from ..checks.chain_checks import check_chain
from ..checks.divergence import divergence_of
from ..moves import Move
from ..preconditioning import FisherPreconditioner, Preconditioner
from ..runs.naming import from_arrays, to_arrays
from ..runs.run import Algorithm, Trace
from ..settings import AmortizedSettings
from ..sharding.spread import Spread
from .chain_target import ChainTarget

__all__ = ["ChainSampling"]

_ORDER = 0x7A2  # second part of the seed of the order in which a chain reads a stream


class ChainSampling(ChainTarget, Algorithm):
    """Chains of one model on one data set, sampled in compiled rounds.

    A subclass defines a round (:meth:`_round`) and the start of a chain (:meth:`initial_chain`).
    """

    label = "sampling"
    unit = "rounds"
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
        self.sampled = model.sampled
        self.spread = Spread() if spread is None else spread
        check_chain(self)
        self.spread.check(model, data, settings, self.num_chains, jit_compile)
        self._fixed_shapes = bool(jit_compile)
        # Rounds report the mean over their steps.
        self.sampler = with_mean_temperatures(self.sampler, settings.num_sampler_steps)
        numbers = chain_seeds(seed, self.num_chains)
        seeds = [[s, 0] for s in numbers]
        self._base_seeds = tf.constant(seeds, tf.int32)  # [C, 2]
        self.moves = self._build_moves(moves)
        self.preconditioner = self._build_preconditioner()
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

    def _build_preconditioner(self) -> Preconditioner | None:
        """Build the preconditioner of the settings, if they name one."""
        settings, shared = self.settings, (self.owned, self.settings.batch_size)
        if settings.coordinates == "none":
            return None
        if settings.coordinates == "prior":
            return Preconditioner(self.model, self.data, *shared)
        return FisherPreconditioner(
            self.model, self.data, settings.burnin_rounds, self._sampler_state, *shared
        )

    def _start(self, position: Point, encoder: Any = ()) -> Chain:
        """Start a chain at a position, with a preconditioner that is not fitted yet.

        :param encoder: initial state of the encoder, if there is one to fit.
        """
        metric = () if self.preconditioner is None else self.preconditioner.initial()
        return Chain(self._sampler_state(position), encoder, metric)

    def seed_of(self, chain: int, number: int) -> tf.Tensor:
        """Return the seed of a chain's round; round -1 draws the initial codes."""
        return fold_in(self._base_seeds[chain], number)

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
        def mapped(chains: Chain, seeds: tf.Tensor, fed: Any) -> tuple[Chain, RoundStatistics]:
            def like() -> tuple[Chain, RoundStatistics]:
                one, zero = of_chain(chains, 0), tf.zeros([])
                return one, self.statistics(one.sampler, zero, zero, zero)

            return map_chains(
                lambda chain, seed, fed: self._round(chain, seed, first, adapt, fed),
                (chains, seeds, fed),
                like,
            )

        return self.spread.chains.over_devices(mapped, (chains, seeds, fed))

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
        batch_seed = fold_in(seed, number)
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
        return divergence_of(self, state, number, trace, saved)

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """Return the phase, burn-in or sampling, and current means over the chains.

        These are log likelihood per point, in nats, kinetic temperature, and step size.
        """
        likelihood = float(np.mean(trace["log_likelihood"][-1])) / self.data.num_points
        phase = "burn-in" if number <= self.settings.burnin_rounds else "sampling"
        numbers = {"log_likelihood": f"{likelihood:.4g}"}
        blocks = trace["kinetic_temperature"][-1].mean(0)[: len(self.sampled.paths)]
        sizes = [np.prod(p.unconstrained_variable.shape) for p in self.sampled.parameters]
        moving = blocks > 0.0  # others have no temperature
        if moving.any():
            mean = np.average(blocks[moving], weights=np.array(sizes)[moving])
            numbers["temperature"] = f"{mean:.3g}"
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
