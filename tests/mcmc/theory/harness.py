"""The table of samplers that are tested alike.

To add a sampler, add a :class:`SamplerCase` to ``CASES``: ``make(log_prob_fn, temperature,
step_size=None, **overrides)`` returns a :class:`Sampler`, and the other fields say what is known of
its errors. A sampler with an accept-reject step sets ``calibrated=True`` and leaves the biases 0;
its ``step_size`` is the scale of its noise, or of its leapfrog steps.
assertions.py and calibration.py have what each of them has to pass, test_harness.py asks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_bae.mcmc import SamplingAlgorithm, Step, Target, adaptive_sghmc, schedules, sghmc, sgld
from gpflow_bae.mcmc.calibrated import (
    adaptive_langevin,
    hmc,
    langevin,
    parallel_tempering,
    random_walk,
    targets,
)
from gpflow_bae.mcmc.noise import split


@dataclasses.dataclass(frozen=True)
class Sampler:
    """A sampler of positions [C, D], ready to run."""

    init: Callable[[tf.Tensor, tf.Tensor], Any]  # position, seed -> state
    step: Callable[[Any, tf.Tensor], Any]  # state, seed -> state
    position: Callable[[Any], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class SamplerCase:
    """A row of the table. ``temperature`` and ``step_size`` may be tensors for ``make``."""

    name: str
    make: Callable[..., Sampler]  # log_prob_fn, temperature, step_size=, **overrides
    step_size: float
    num_burnin_steps: int  # enough from the origin, for the Gaussian and the banana
    num_steps: int
    calibrated: bool = False  # has an accept-reject step: exact, and no temperature 0
    crosses_modes: bool = False
    num_chains: int = 2500
    # The stationary covariance on a Gaussian is T [A - c(step_size) A P A]^-1; this is c.
    gaussian_bias: Callable[[float], float] = lambda step_size: 0.0
    preconditioner: Callable[[Any], np.ndarray] | None = None  # state -> diagonal of P, [C, D]
    relative_bias: float = 0.0  # of covariances, beyond the closed form
    bias_order: int | None = None  # in step_size, with the settings and step sizes that follow
    bias_settings: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    bias_step_sizes: tuple[float, ...] = ()
    # Of stochastic-gradient samplers: gradient_fn(position, seed), temperature, step_size=.
    make_stochastic: Callable[..., Sampler] | None = None
    sbc_step_size: float | None = None


def from_algorithm(
    algorithm: SamplingAlgorithm, target: Target, num_adaptation_steps: int = 0
) -> Sampler:
    """One that engines know; its state here counts its steps."""

    def step(state: Any, seed: tf.Tensor) -> Any:
        inner, count = state
        at = Step(count, count < num_adaptation_steps)
        return algorithm.step(inner, target, seed, at), count + 1

    return Sampler(
        lambda position, _: (algorithm.init(position, target), tf.constant(0)),
        step,
        lambda state: state[0].position,
    )


def stochastic_case(
    name: str, module: ModuleType, *, settings: dict[str, Any] | None = None, **fields: Any
) -> SamplerCase:
    """A row for a sampler of gradients; ``friction`` is a momentum decay over the step size."""

    def make_stochastic(
        gradient_fn: Any, temperature: Any, step_size: Any = None, **overrides: Any
    ) -> Sampler:
        step_size = fields["step_size"] if step_size is None else step_size
        used = {**(settings or {}), **overrides, "step_size": step_size, "temperature": temperature}
        adapting = {k: used.pop(k) for k in ("num_adaptation_steps",) if k in used}
        if "friction" in used:
            used["momentum_decay"] = used.pop("friction") * step_size
        return from_algorithm(module.build(**used), Target(gradient_fn), **adapting)

    def make(log_prob_fn: Any, temperature: Any, **overrides: Any) -> Sampler:
        return make_stochastic(
            lambda x, _: targets.target(log_prob_fn)(x).tempered_gradient,
            temperature,
            **overrides,
        )

    return SamplerCase(name, make, make_stochastic=make_stochastic, **fields)


def tempered(
    module: ModuleType,
    log_prob_fn: Callable[[tf.Tensor], tf.Tensor],
    temperature: Any,
    *,
    noise_scale: Any,
    temperatures: tuple[float, ...],
) -> Sampler:
    """Parallel tempering of density ** (1 / temperature): an ensemble of R replicas per chain."""

    def every_replica(x: tf.Tensor) -> tf.Tensor:
        # [R, E, D] for the density: it may hold data of each ensemble, [E, ...].
        log_prob = log_prob_fn(tf.transpose(x, [1, 0, 2]))
        return tf.transpose(log_prob) / tf.cast(temperature, x.dtype)

    target = targets.target(every_replica, with_gradient=module is not random_walk)

    def init(position: tf.Tensor, seed: tf.Tensor) -> Any:
        replicas = tf.stack([position] * len(temperatures), axis=1)
        return parallel_tempering.init(module.init(replicas, target), temperatures)

    def step(state: Any, seed: tf.Tensor) -> Any:
        kernel_seed, swap_seed = tf.unstack(split(seed))
        beta = parallel_tempering.inverse_temperature(state)
        scale = tf.cast(noise_scale, beta.dtype) / tf.sqrt(beta)
        replicas = module.update(
            state.replicas, target, kernel_seed, noise_scale=scale, inverse_temperature=beta
        )
        return parallel_tempering.swap(state._replace(replicas=replicas), swap_seed)

    return Sampler(init, step, lambda s: parallel_tempering.by_rung(s.replicas.position, s)[:, 0])


def calibrated_case(
    name: str, module: ModuleType, *, settings: dict[str, Any] | None = None, **fields: Any
) -> SamplerCase:
    """A row for a module with an accept-reject step; over a ladder, if there is one."""
    size = "step_size" if module is hmc else "noise_scale"

    def make(
        log_prob_fn: Any, temperature: Any, step_size: Any = None, **overrides: Any
    ) -> Sampler:
        step_size = fields["step_size"] if step_size is None else step_size
        used = {**(settings or {}), size: step_size, **overrides}
        if "temperatures" in used:
            return tempered(module, log_prob_fn, temperature, **used)
        adapts, last = "num_adaptation_steps" in used, used.pop("num_adaptation_steps", 0)
        target = targets.target(log_prob_fn, with_gradient=module is not random_walk)

        def step(state: Any, seed: tf.Tensor) -> Any:
            inner, count = state
            adapting = {"adapt": count < last} if adapts else {}
            beta = 1.0 / temperature
            inner = module.update(inner, target, seed, **used, **adapting, inverse_temperature=beta)
            return inner, count + 1

        return Sampler(
            lambda position, _: (module.init(position, target), tf.constant(0)),
            step,
            lambda state: state[0].position,
        )

    return SamplerCase(name, make, calibrated=True, **fields)


LANGEVIN: dict[str, Any] = {
    "step_size": 0.08,
    "num_burnin_steps": 700,
    "num_steps": 400,
    "gaussian_bias": lambda e: e / 4,
    "bias_order": 1,
    "bias_step_sizes": (0.3, 0.2, 0.15),
}
HAMILTONIAN: dict[str, Any] = {
    "step_size": 0.2,
    "num_burnin_steps": 200,
    "num_steps": 300,
    "bias_step_sizes": (0.5, 0.4, 0.3),
}
# Both preconditioned samplers: on a calm stretch of its path a chain may find a P much larger than
# the others' (without gradient noise, adaptive SGHMC's V is little more than the last squared
# gradient). A jitter of 1 keeps P below 1; without it a few chains are unstable on the banana.
ADAPTIVE: dict[str, Any] = {
    "step_size": 0.2,
    "num_burnin_steps": 600,
    "num_steps": 400,
    "preconditioner": lambda state: (
        1 / np.sqrt(state[0].elements["mean_square_gradient"].numpy() + 1.0)
    ),
}
ADAPTIVE_SETTINGS = {"momentum_decay": 0.2, "num_adaptation_steps": 200, "jitter": 1.0}
# Neither has an order of its own: P depends on the path, and so on the step size; at a fixed P they
# are SGLD and SGHMC in scaled coordinates (test_sgld.py, test_integrators.py).

# At the hottest rung the barrier between the two modes is a nat.
LADDER = tuple(float(t) for t in schedules.geometric_ladder(4, 12.5))

# BAOAB's bias is not visible above the Monte Carlo error: test_integrators.py has its order.
CASES = (
    stochastic_case("sgld", sgld, sbc_step_size=0.004, **LANGEVIN),
    stochastic_case(
        "sghmc",
        sghmc,
        settings={"momentum_decay": 0.2},
        gaussian_bias=lambda h: h**2 / (2 * (2 - 0.2)),
        bias_order=2,
        sbc_step_size=0.025,
        **HAMILTONIAN,
    ),
    stochastic_case(
        "sghmc_obabo",
        sghmc,
        settings={"momentum_decay": 0.2, "integrator": "obabo"},
        gaussian_bias=lambda h: h**2 / 4,
        bias_order=2,
        **HAMILTONIAN,
    ),
    stochastic_case(
        "sghmc_baoab",
        sghmc,
        settings={"momentum_decay": 0.2, "integrator": "baoab"},
        **HAMILTONIAN,
    ),
    stochastic_case(
        "adaptive_sghmc",
        adaptive_sghmc,
        settings=ADAPTIVE_SETTINGS,
        gaussian_bias=lambda h: h**2 / (2 * (2 - 0.2)),
        **ADAPTIVE,
    ),
    stochastic_case(
        "adaptive_sghmc_baoab",
        adaptive_sghmc,
        settings={**ADAPTIVE_SETTINGS, "integrator": "baoab"},
        **ADAPTIVE,
    ),
    calibrated_case(
        "random_walk",
        random_walk,
        step_size=1.7,
        num_burnin_steps=100,
        num_steps=200,
        sbc_step_size=0.7,
    ),
    calibrated_case(
        "mala",
        langevin,
        step_size=1.0,
        num_burnin_steps=100,
        num_steps=150,
        sbc_step_size=0.4,
    ),
    # The learning rate is 0.3 of sigma ** 2, not the half that would follow it.
    calibrated_case(
        "langevin",
        langevin,
        settings={"learning_rate": 0.3, "gradient_probability": 0.75},
        step_size=1.0,
        num_burnin_steps=100,
        num_steps=150,
        sbc_step_size=0.6,
    ),
    calibrated_case(
        "adaptive_langevin",
        adaptive_langevin,
        settings={"learning_rate": 0.3, "num_adaptation_steps": 60, "beta_2": 0.95},
        step_size=1.0,
        num_burnin_steps=200,
        num_steps=200,
        sbc_step_size=0.5,
    ),
    calibrated_case(
        "hmc",
        hmc,
        settings={"max_leapfrog_steps": 4},
        step_size=0.7,
        num_burnin_steps=60,
        num_steps=100,
        sbc_step_size=0.2,
    ),
    calibrated_case(
        "tempered_random_walk",
        random_walk,
        settings={"temperatures": LADDER},
        crosses_modes=True,
        num_chains=1200,
        step_size=1.7,
        num_burnin_steps=150,
        num_steps=250,
        sbc_step_size=0.7,
    ),
    calibrated_case(
        "tempered_mala",
        langevin,
        settings={"temperatures": LADDER},
        crosses_modes=True,
        num_chains=1200,
        step_size=1.0,
        num_burnin_steps=150,
        num_steps=250,
        sbc_step_size=0.4,
    ),
)


def case_named(name: str) -> SamplerCase:
    return next(case for case in CASES if case.name == name)
