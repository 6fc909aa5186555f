"""The table of samplers that are tested alike.

To add a sampler, add a :class:`SamplerCase` to ``CASES``: ``make(log_prob_fn, temperature,
step_size=None, **overrides)`` returns a :class:`Sampler`, and the other fields say what is known of
its errors. A sampler with an accept-reject step sets ``calibrated=True`` and leaves the biases 0.
assertions.py and calibration.py have what each of them has to pass, test_harness.py asks it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_bae.mcmc import (
    adaptive_sghmc,
    preconditioned_sgld,
    sghmc,
    sgld,
    sgnht,
)
from gpflow_bae.mcmc.noise import split
from gpflow_bae.mcmc.structures import value_and_gradient


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


def from_gradient(
    module: ModuleType,
    gradient_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    temperature: Any,
    *,
    step_size: Any,
    num_adaptation_steps: int | None = None,
    friction: float | None = None,
    **settings: Any,
) -> Sampler:
    """A functional stochastic-gradient sampler; its state here counts its steps."""
    if friction is not None:
        settings["momentum_decay"] = friction * step_size

    def init(position: tf.Tensor, seed: tf.Tensor) -> Any:
        thermostat = {}
        if module is sgnht:
            thermostat = {"momentum_decay": settings["momentum_decay"], "chain_ndims": 1}
        return module.init(position, **thermostat), tf.constant(0)

    def step(state: Any, seed: tf.Tensor) -> Any:
        inner, count = state
        adapt = {} if num_adaptation_steps is None else {"adapt": count < num_adaptation_steps}
        seeds = tf.unstack(split(seed))
        gradient = gradient_fn(inner.position, seeds[0])
        common = {"step_size": step_size, "temperature": temperature}
        inner = module.update(inner, gradient, seeds[1], **common, **adapt, **settings)
        return inner, count + 1

    return Sampler(init, step, lambda state: state[0].position)


def stochastic_case(
    name: str, module: ModuleType, *, settings: dict[str, Any] | None = None, **fields: Any
) -> SamplerCase:
    """A row for a module with ``init`` and ``update(state, gradient, seed, ...)``."""

    def make_stochastic(
        gradient_fn: Any, temperature: Any, step_size: Any = None, **overrides: Any
    ) -> Sampler:
        step_size = fields["step_size"] if step_size is None else step_size
        used = {**(settings or {}), **overrides}
        return from_gradient(module, gradient_fn, temperature, step_size=step_size, **used)

    def make(log_prob_fn: Any, temperature: Any, **overrides: Any) -> Sampler:
        return make_stochastic(
            lambda x, _: value_and_gradient(log_prob_fn, x, "log_prob_fn")[1],
            temperature,
            **overrides,
        )

    return SamplerCase(name, make, make_stochastic=make_stochastic, **fields)


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
    "preconditioner": lambda state: 1 / np.sqrt(state[0].mean_square_gradient.numpy() + 1.0),
    "bias_step_sizes": (0.6, 0.48, 0.36),
}
ADAPTIVE_SETTINGS = {"momentum_decay": 0.2, "num_adaptation_steps": 200, "jitter": 1.0}
# The P that is found depends on the path, and so on the step size; the order is that at a fixed P.
FROZEN = {"num_adaptation_steps": 0}

# BAOAB's bias is not visible above the Monte Carlo error: test_integrators.py has its order.
CASES = (
    stochastic_case("sgld", sgld, sbc_step_size=0.004, **LANGEVIN),
    stochastic_case(
        "preconditioned_sgld",
        preconditioned_sgld,
        settings={"num_adaptation_steps": 300, "jitter": 1.0},
        preconditioner=lambda state: 1 / (np.sqrt(state[0].mean_square_gradient.numpy()) + 1),
        bias_settings=FROZEN,
        **{**LANGEVIN, "step_size": 0.14, "num_steps": 700},
    ),
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
        bias_order=2,
        bias_settings=FROZEN,
        **ADAPTIVE,
    ),
    stochastic_case(
        "adaptive_sghmc_baoab",
        adaptive_sghmc,
        settings={**ADAPTIVE_SETTINGS, "integrator": "baoab"},
        **ADAPTIVE,
    ),
    # The momentum decay is 0.05 at the step size 0.15: covariances are 2.5 per cent too small.
    stochastic_case(
        "sgnht",
        sgnht,
        settings={"friction": 1 / 3},
        step_size=0.15,
        num_burnin_steps=400,
        num_steps=400,
        gaussian_bias=lambda h: h**2 / 4,
        relative_bias=0.03,
        bias_order=1,
        bias_settings={"friction": 2.0},
        bias_step_sizes=(0.1, 0.07, 0.05),
    ),
)
