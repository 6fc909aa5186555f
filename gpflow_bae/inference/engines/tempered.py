"""Tempered MCMC over the weights of an autoencoder (Chandra et al. 2022), compiled in blocks.

A block is a number of swap intervals, each of several steps of all replicas at once and a round of
swaps, in one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...core.tracing import compiled
from ...data import Observations
from ...mcmc.calibrated import (
    adaptive_langevin,
    hmc,
    langevin,
    metropolis,
    parallel_tempering,
    random_walk,
    targets,
)
from ...mcmc.noise import fold_in
from ...mcmc.schedules import geometric_ladder
from ...models import TemperedBAE
from ..loops import repeat
from ..preconditioning import AffineMap, unfitted_map
from ..runs.naming import from_arrays, to_arrays
from ..runs.run import Algorithm, Trace
from ..tempered_settings import TemperedSettings

__all__ = ["TemperedChain", "TemperedSampling", "TemperedTrace"]

_BURNIN_STEPS_PER_BLOCK = 50


class TemperedChain(NamedTuple):
    """State of the replicas, and the noise scale of each rung."""

    tempering: parallel_tempering.State
    log_noise_scale: tf.Tensor  # [R], by rung
    step: tf.Tensor  # int32, steps taken
    coordinates: AffineMap  # of the positions; its Jacobian is constant


class TemperedTrace(NamedTuple):
    """Statistics of every step, by replica: [steps, R] each."""

    log_likelihood: tf.Tensor
    log_prior: tf.Tensor
    is_accepted: tf.Tensor
    temperature: tf.Tensor
    noise_scale: tf.Tensor


class TemperedSampling(Algorithm):
    """Tempered replicas of one model on one data set, sampled in compiled blocks.

    Burn-in and sampling are traced once each.
    """

    label = "tempering"

    def __init__(
        self,
        model: TemperedBAE,
        data: Observations,
        settings: TemperedSettings,
        *,
        seed: int = 0,
        jit_compile: bool = False,
    ):
        """
        :param seed: seeds of a step depend only on it and on the number of steps taken, so that a
            chain does not depend on its division into blocks.
        """
        self.model, self.data, self.settings = model, data, settings
        self.num_steps = settings.num_samples
        self._seed = tf.constant([seed, 0x7E9], tf.int32)
        self._compiled = {
            phase: compiled(
                lambda chain, num_intervals, phase=phase: self._block(chain, num_intervals, phase),
                jit_compile=jit_compile,
            )
            for phase in ("burnin", "sampling")
        }

    @property
    def tracing_count(self) -> int:
        """Number of times that blocks were traced: at most once per phase in a healthy run."""
        return sum(f.experimental_get_tracing_count() for f in self._compiled.values())

    def target(self, coordinates: AffineMap) -> Any:
        """Return the log densities of positions, with gradients unless for a random walk."""
        model, batch = self.model, self.data.gather(None)
        return targets.target(
            lambda position: model.log_likelihood(coordinates.forward(position), batch),
            lambda position: model.log_prior(coordinates.forward(position)),
            with_gradient=self.settings.proposal.method != "random_walk",
        )

    def replicated_values(self) -> tuple[tf.Tensor, ...]:
        """Return the model's unconstrained values [R, ...], the same for each replica."""
        replicas = self.settings.num_replicas
        return tuple(tf.stack([v] * replicas) for v in self.model.sampled.values())

    def initial_chain(self, coordinates: AffineMap) -> TemperedChain:
        """Start the replicas at the centre of ``coordinates``.

        :raises ValueError: if the target is not finite there.
        """
        settings = self.settings
        ladder = geometric_ladder(settings.num_replicas, settings.max_temperature)
        adaptive = settings.proposal.method in ("adapt_lg", "adapt_lg_star")
        init = adaptive_langevin.init if adaptive else metropolis.init
        # Compiled, because vectorized_map would otherwise trace, with a warning in loops.
        start = compiled(lambda position: init(position, self.target(coordinates)))
        replicas = start(coordinates.centre())
        metropolis.check_initial(replicas.evaluation)
        tempering = parallel_tempering.init(replicas, ladder)
        scale = np.full(settings.num_replicas, np.log(settings.proposal.noise_scale))
        return TemperedChain(
            tempering,
            tf.constant(scale, replicas.evaluation.tempered.dtype),
            tf.zeros([], tf.int32),
            coordinates,
        )

    def step(
        self, state: TemperedChain, number: int, stop: int
    ) -> tuple[TemperedChain, int, Trace]:
        """Take steps until the next sample is due, or, in burn-in, at most until ``stop``."""
        settings = self.settings
        phase = "burnin" if number < settings.num_burnin else "sampling"
        if phase == "burnin":
            count = min(_BURNIN_STEPS_PER_BLOCK, settings.num_burnin - number, stop - number)
        else:
            count = settings.steps_per_sample
            if number == settings.num_burnin:
                state = self._start_sampling(state)
        num_intervals = -(-count // settings.swap_interval)
        state, trace = self._compiled[phase](state, tf.constant(num_intervals))
        taken = num_intervals * settings.swap_interval
        return state, taken, {k: v.numpy() for k, v in trace._asdict().items()}

    def sample(self, state: TemperedChain, number: int) -> dict[str, np.ndarray] | None:
        """Return the replicas' unconstrained values [R, ...] by path; None in burn-in."""
        if number <= self.settings.num_burnin:
            return None
        values = state.coordinates.forward(state.tempering.replicas.position)
        return {
            f"parameters/{path}": v.numpy()
            for path, v in zip(self.model.sampled.paths, values, strict=True)
        }

    def summary(self, number: int, trace: Trace) -> tuple[str, dict[str, str]]:
        """Return the phase, and the replicas' mean log likelihood per row, in nats."""
        phase = "burn-in" if number <= self.settings.num_burnin else "sampling"
        likelihood = float(trace["log_likelihood"][-1].mean()) / self.data.num_points
        return phase, {"log_likelihood": f"{likelihood:.4g}"}

    def arrays(self, state: TemperedChain) -> dict[str, np.ndarray]:
        """Return every leaf by name."""
        return to_arrays(state, self._names)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> TemperedChain:
        """Invert :meth:`arrays`."""
        values = self.replicated_values()
        like = self.initial_chain(unfitted_map(self.settings.whitening.kind, values))
        return from_arrays(like, arrays, self._names)

    @property
    def _names(self) -> dict[str, Sequence[str]]:
        paths = self.model.sampled.paths
        return dict.fromkeys(
            (
                "position",
                "start",
                "tempered_gradient",
                "untempered_gradient",
                "first_moment",
                "second_moment",
            ),
            paths,
        )

    def _start_sampling(self, chain: TemperedChain) -> TemperedChain:
        """End burn-in: set every rung to temperature 1, with the first rung's noise scale."""
        tempering = chain.tempering
        scale = tf.fill(tf.shape(chain.log_noise_scale), chain.log_noise_scale[0])
        tempering = tempering._replace(ladder=tf.ones_like(tempering.ladder))
        return chain._replace(tempering=tempering, log_noise_scale=scale)

    def _block(
        self, chain: TemperedChain, num_intervals: tf.Tensor, phase: str
    ) -> tuple[TemperedChain, TemperedTrace]:
        interval, seed = self.settings.swap_interval, self._seed
        dtype = chain.log_noise_scale.dtype
        kinds = TemperedTrace(dtype, dtype, tf.bool, dtype, dtype)
        arrays = TemperedTrace(
            *(
                tf.TensorArray(
                    kind,
                    size=num_intervals * interval,
                    element_shape=[self.settings.num_replicas],
                )
                for kind in kinds
            )
        )

        def one_interval(i: tf.Tensor, carried: Any) -> Any:
            def one_step(j: tf.Tensor, carried: Any) -> Any:
                chain, arrays = carried
                step_seed = fold_in(seed, 2 * chain.step)
                chain = self._step(chain, step_seed, phase)
                row = self._statistics(chain)
                arrays = TemperedTrace(
                    *(a.write(i * interval + j, r) for a, r in zip(arrays, row, strict=True))
                )
                return chain, arrays

            chain, arrays = repeat(interval, one_step, carried)
            if phase == "burnin":  # afterwards all temperatures are equal, so swaps have no effect
                swap_seed = fold_in(seed, 2 * chain.step + 1)
                chain = chain._replace(
                    tempering=parallel_tempering.swap(chain.tempering, swap_seed)
                )
            return chain, arrays

        chain, arrays = repeat(num_intervals, one_interval, (chain, arrays))
        return chain, TemperedTrace(*(a.stack() for a in arrays))

    def _proposed(self, chain: TemperedChain, seed: tf.Tensor, phase: str) -> Any:
        """Return the replicas after one proposal of each."""
        proposal, tempering = self.settings.proposal, chain.tempering
        method: str = proposal.method
        if method == "adapt_lg_star":
            method = "adapt_lg" if phase == "burnin" else "lg"
        scale = tf.exp(tf.gather(chain.log_noise_scale, tempering.rung))
        noise = {"noise_scale": scale}
        langevin_options = noise | {"gradient_probability": proposal.gradient_probability}
        kernels: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
            "random_walk": (random_walk.update, noise),
            "hmc": (
                hmc.update,
                {"step_size": scale, "max_leapfrog_steps": proposal.max_leapfrog_steps},
            ),
            "lg": (langevin.update, langevin_options | {"learning_rate": proposal.learning_rate}),
            "adapt_lg": (
                adaptive_langevin.update,
                langevin_options | {"learning_rate": proposal.adam_learning_rate, "adapt": True},
            ),
        }
        update, options = kernels[method]
        replicas = tempering.replicas
        beta = parallel_tempering.inverse_temperature(tempering)
        target = self.target(chain.coordinates)
        found = update(replicas, target, seed, inverse_temperature=beta, **options)
        # Adam's moments stay fixed after burn-in.
        return type(replicas)(*found, *replicas[len(found) :])

    def _step(self, chain: TemperedChain, seed: tf.Tensor, phase: str) -> TemperedChain:
        proposal, tempering = self.settings.proposal, chain.tempering
        replicas = self._proposed(chain, seed, phase)
        tempering = tempering._replace(replicas=replicas)
        scale = chain.log_noise_scale
        if proposal.target_acceptance is not None and phase == "burnin":
            # Robbins and Monro (1951); the gain sums to infinity and its square does not.
            gain = tf.pow(tf.cast(chain.step + 1, scale.dtype), -0.6)
            ratio = replicas.counts.log_accept_ratio
            acceptance = parallel_tempering.by_rung(tf.exp(tf.minimum(ratio, 0.0)), tempering)
            scale += gain * (acceptance - proposal.target_acceptance)
        return chain._replace(tempering=tempering, log_noise_scale=scale, step=chain.step + 1)

    def _statistics(self, chain: TemperedChain) -> TemperedTrace:
        replicas = chain.tempering.replicas
        return TemperedTrace(
            replicas.evaluation.tempered,
            replicas.evaluation.untempered,
            replicas.counts.is_accepted,
            1.0 / parallel_tempering.inverse_temperature(chain.tempering),
            tf.exp(tf.gather(chain.log_noise_scale, chain.tempering.rung)),
        )
