"""The table of builds: what a sampler's ``build`` and its module's ``update`` are given alike."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import tensorflow as tf

from gpflow_bae.mcmc import SamplingAlgorithm, Target, adaptive_sghmc, sghmc, sgld
from gpflow_bae.mcmc.calibrated import adaptive_langevin, hmc, langevin, random_walk, targets
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
        return self.module.init(POSITION, *([EVALUATE] if self.calibrated else []))

    def update(self, state: Any, seed: tf.Tensor, adapt: Any, **numbers: Any) -> Any:
        used = {**self.numbers, **numbers, **self.choices}
        part = EVALUATE if self.calibrated else noisy_gradient(state.position, seed)
        return self.module.update(state, part, seed, **used, **self.adapting(adapt))

    def adapting(self, adapt: Any) -> dict[str, Any]:
        return {"adapt": adapt} if self.adapts else {}

    @property
    def calibrated(self) -> bool:
        return self.module.build(**self.numbers).needs == "evaluate"


COLD = {"step_size": 0.1, "temperature": 0.7}
HAMILTONIAN = {**COLD, "momentum_decay": 0.3}
WALK = {"noise_scale": 0.3, "inverse_temperature": 0.6}
DRIFT = {**WALK, "learning_rate": 0.05, "gradient_probability": 0.5}
ADAM = {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 0.01}
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
    Row("random_walk", random_walk, WALK),
    Row("mala", langevin, WALK),
    Row("langevin", langevin, DRIFT),
    Row("adaptive_langevin", adaptive_langevin, {**DRIFT, **ADAM}, adapts=True),
    Row("hmc", hmc, {"step_size": 0.2, "inverse_temperature": 0.6}, {"max_leapfrog_steps": 3}),
]
GRADIENT = [row for row in ROWS if not row.calibrated]
CALIBRATED = [row for row in ROWS if row.calibrated]


def named(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)
