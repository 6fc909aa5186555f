"""Tempered MCMC over the weights of an autoencoder (Chandra et al. 2022), compiled in blocks.

A block is a number of swap intervals: steps of all replicas at once, then a round of swaps, and
again. Nothing in it returns to Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..base import Batch
from ..data import Observations
from ..mcmc import (
    adaptive_langevin,
    hmc,
    langevin,
    metropolis,
    parallel_tempering,
    random_walk,
    targets,
)
from ..mcmc.schedules import geometric_ladder
from ..models import TemperedBAE
from .loops import repeat
from .tempered_settings import TemperedSettings
from .whitening import Whitening

__all__ = ["TemperedBlocks", "TemperedChain", "TemperedTrace"]

_BURNIN_STEPS_PER_BLOCK = 50


class TemperedChain(NamedTuple):
    """Where the replicas are, and the noise scale of each rung."""

    tempering: parallel_tempering.State
    log_noise_scale: tf.Tensor  # [R], by rung
    step: tf.Tensor  # int32, steps taken


class TemperedTrace(NamedTuple):
    """Statistics of every step, by replica: [steps, R] each."""

    log_likelihood: tf.Tensor
    log_prior: tf.Tensor
    is_accepted: tf.Tensor
    temperature: tf.Tensor
    noise_scale: tf.Tensor


class TemperedBlocks:
    """The compiled blocks of one model on one data set; each phase is traced once."""

    def __init__(
        self,
        model: TemperedBAE,
        data: Observations,
        settings: TemperedSettings,
        coordinates: Whitening,
        jit_compile: bool = False,
    ):
        """
        :param coordinates: what the sampler's positions mean; its Jacobian is constant.
        """
        self.model, self.settings, self.coordinates = model, settings, coordinates
        batch = Batch(None, data.Y, data.mask)
        self.target = targets.target(
            lambda position: model.log_likelihood(coordinates.values(position), batch),
            lambda position: model.log_prior(coordinates.values(position)),
            with_gradient=settings.method != "random_walk",
        )
        self._compiled = {
            phase: tf.function(
                lambda chain, seed, num_intervals, phase=phase: self._block(
                    chain, seed, num_intervals, phase
                ),
                autograph=False,
                jit_compile=jit_compile,
            )
            for phase in ("burnin", "sampling")
        }

    @property
    def tracing_count(self) -> int:
        """How often blocks were traced: at most once for each phase in a healthy run."""
        return sum(f.experimental_get_tracing_count() for f in self._compiled.values())

    def initial_chain(self) -> TemperedChain:
        """Replicas at the centre of the coordinates.

        :raises ValueError: if the target is not finite there.
        """
        settings = self.settings
        ladder = geometric_ladder(settings.num_replicas, settings.max_temperature)
        adaptive = settings.method in ("adapt_lg", "adapt_lg_star")
        init = adaptive_langevin.init if adaptive else metropolis.init
        replicas = init(self.coordinates.centre(), self.target)
        tempering = parallel_tempering.init(replicas, ladder)
        scale = np.full(settings.num_replicas, np.log(settings.noise_scale))
        return TemperedChain(
            tempering,
            tf.constant(scale, replicas.evaluation.tempered.dtype),
            tf.zeros([], tf.int32),
        )

    def __call__(
        self, chain: TemperedChain, seed: int, num_steps: int
    ) -> tuple[TemperedChain, TemperedTrace]:
        """Go on until the next sample is due, in burn-in at most to ``num_steps``.

        Seeds depend on ``seed`` and on the number of steps taken only, so that a chain does not
        depend on how it was cut into blocks.
        """
        settings, step = self.settings, int(chain.step)
        phase = "burnin" if step < settings.num_burnin else "sampling"
        if phase == "burnin":
            count = min(_BURNIN_STEPS_PER_BLOCK, settings.num_burnin - step, num_steps - step)
        else:
            count = settings.steps_per_sample
            if step == settings.num_burnin:
                chain = self._start_sampling(chain)
        base_seed = tf.constant([seed, 0x7E9], tf.int32)
        num_intervals = tf.constant(-(-count // settings.swap_interval))
        return self._compiled[phase](chain, base_seed, num_intervals)

    def _start_sampling(self, chain: TemperedChain) -> TemperedChain:
        """The end of burn-in: every rung at temperature 1, with the first rung's noise scale."""
        tempering = chain.tempering
        scale = tf.fill(tf.shape(chain.log_noise_scale), chain.log_noise_scale[0])
        tempering = tempering._replace(ladder=tf.ones_like(tempering.ladder))
        return TemperedChain(tempering, scale, chain.step)

    def _block(
        self, chain: TemperedChain, seed: tf.Tensor, num_intervals: tf.Tensor, phase: str
    ) -> tuple[TemperedChain, TemperedTrace]:
        interval = self.settings.swap_interval
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
                step_seed = tf.random.fold_in(seed, 2 * chain.step, alg="philox")
                chain = self._step(chain, step_seed, phase)
                row = self._statistics(chain)
                arrays = TemperedTrace(
                    *(a.write(i * interval + j, r) for a, r in zip(arrays, row, strict=True))
                )
                return chain, arrays

            chain, arrays = repeat(interval, one_step, carried)
            if phase == "burnin":  # afterwards all temperatures are equal, and a swap does nothing
                swap_seed = tf.random.fold_in(seed, 2 * chain.step + 1, alg="philox")
                chain = chain._replace(
                    tempering=parallel_tempering.swap(chain.tempering, swap_seed)
                )
            return chain, arrays

        chain, arrays = repeat(num_intervals, one_interval, (chain, arrays))
        return chain, TemperedTrace(*(a.stack() for a in arrays))

    def _step(self, chain: TemperedChain, seed: tf.Tensor, phase: str) -> TemperedChain:
        settings, tempering = self.settings, chain.tempering
        common: dict[str, Any] = {
            "noise_scale": tf.exp(tf.gather(chain.log_noise_scale, tempering.rung)),
            "inverse_temperature": parallel_tempering.inverse_temperature(tempering),
        }
        method: str = settings.method
        replicas: Any
        if method == "adapt_lg_star":
            method = "adapt_lg" if phase == "burnin" else "lg"
        if method == "random_walk":
            replicas = random_walk.update(tempering.replicas, self.target, seed, **common)
        elif method == "hmc":
            replicas = hmc.update(
                tempering.replicas,
                self.target,
                seed,
                step_size=common["noise_scale"],
                max_leapfrog_steps=settings.max_leapfrog_steps,
                inverse_temperature=common["inverse_temperature"],
            )
        elif method == "lg":
            replicas = langevin.update(
                metropolis.State(*tempering.replicas[:3]),
                self.target,
                seed,
                learning_rate=settings.learning_rate,
                gradient_probability=settings.gradient_probability,
                **common,
            )
        else:
            replicas = adaptive_langevin.update(
                tempering.replicas,
                self.target,
                seed,
                learning_rate=settings.adam_learning_rate,
                adapt=True,
                gradient_probability=settings.gradient_probability,
                **common,
            )
        if len(replicas) < len(tempering.replicas):  # Adam's statistics rest after burn-in
            replicas = type(tempering.replicas)(*replicas, *tempering.replicas[len(replicas) :])
        tempering = tempering._replace(replicas=replicas)
        scale = chain.log_noise_scale
        if settings.target_acceptance is not None and phase == "burnin":
            # Robbins and Monro (1951); the gain sums to infinity and its square does not.
            gain = tf.pow(tf.cast(chain.step + 1, scale.dtype), -0.6)
            ratio = replicas.counts.log_accept_ratio
            acceptance = parallel_tempering.by_rung(tf.exp(tf.minimum(ratio, 0.0)), tempering)
            scale += gain * (acceptance - settings.target_acceptance)
        return TemperedChain(tempering, scale, chain.step + 1)

    def _statistics(self, chain: TemperedChain) -> TemperedTrace:
        replicas = chain.tempering.replicas
        return TemperedTrace(
            replicas.evaluation.tempered,
            replicas.evaluation.untempered,
            replicas.counts.is_accepted,
            1.0 / parallel_tempering.inverse_temperature(chain.tempering),
            tf.exp(tf.gather(chain.log_noise_scale, chain.tempering.rung)),
        )
