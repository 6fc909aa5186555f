"""The table of builds: what a sampler's ``build`` and its module's ``update`` are given alike."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import tensorflow as tf

from gpflow_bae.mcmc import SamplingAlgorithm, Target, adaptive_sghmc, sghmc, sgld
from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.noise import noise_like

# Two leaves that differ in shape and dtype; where there are chains, they are three.
POSITION = {
    "w": tf.constant([[1.0, -2.0], [0.5, 0.3], [-1.0, 0.2]]),
    "b": tf.constant([0.1, -0.4, 2.0], tf.float64),
}
SEEDS = [tf.constant([7, i]) for i in range(3)]


def noisy_gradient(position: Any, seed: tf.Tensor) -> Any:
    """A gradient that knows its seed."""
    return tf.nest.map_structure(lambda q, e: e - q, position, noise_like(position, seed))


def log_likelihood(position: Any) -> tf.Tensor:
    b = tf.cast(position["b"], tf.float32)
    return -tf.reduce_sum(tf.cosh(position["w"]), axis=-1) - b**2 * (1 + position["w"][:, 0] ** 2)


def log_prior(position: Any) -> tf.Tensor:
    b = tf.cast(position["b"], tf.float32)
    return -0.5 * tf.reduce_sum(position["w"] ** 2, axis=-1) - 0.5 * b**2


EVALUATE = targets.target(log_likelihood, log_prior)
TARGET = Target(noisy_gradient, EVALUATE)


@dataclasses.dataclass(frozen=True)
class Row:
    """A sampler: what ``build`` and ``update`` are given alike."""

    name: str
    module: ModuleType
    numbers: dict[str, float]
    choices: dict[str, Any] = dataclasses.field(default_factory=dict)
    adapts: bool = False
    per_leaf: bool = False  # a temperature for each leaf

    def build(self, **numbers: Any) -> SamplingAlgorithm:
        return self.module.build(**{**self.numbers, **numbers}, **self.choices)

    def init(self) -> Any:
        return self.module.init(POSITION)

    def update(self, state: Any, seed: tf.Tensor, adapt: Any, **numbers: Any) -> Any:
        used = {**self.numbers, **numbers, **self.choices}
        gradient = noisy_gradient(state.position, seed)
        return self.module.update(state, gradient, seed, **used, **self.adapting(adapt))

    def adapting(self, adapt: Any) -> dict[str, Any]:
        return {"adapt": adapt} if self.adapts else {}


COLD = {"step_size": 0.1, "temperature": 0.7}
HAMILTONIAN = {**COLD, "momentum_decay": 0.3}
ROWS = [
    Row("sgld", sgld, COLD, per_leaf=True),
    Row("sghmc", sghmc, HAMILTONIAN, per_leaf=True),
    Row(
        "sghmc, baoab",
        sghmc,
        HAMILTONIAN,
        {"integrator": "baoab", "noise": "binomial"},
        per_leaf=True,
    ),
    Row(
        "adaptive_sghmc",
        adaptive_sghmc,
        {**HAMILTONIAN, "jitter": 0.01},
        adapts=True,
        per_leaf=True,
    ),
    Row(
        "adaptive_sghmc, - h^4",
        adaptive_sghmc,
        {**HAMILTONIAN, "jitter": 0.01},
        {"subtract_gradient_noise": True},
        adapts=True,
        per_leaf=True,
    ),
]


def named(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)
