"""SGLD: its equation, and reductions to samplers that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import noise, sghmc, sgld
from tests.mcmc.theory.assertions import assert_near, run
from tests.mcmc.theory.densities import GAUSSIAN
from tests.mcmc.theory.harness import case_named

SEED = tf.constant([1, 2])
POSITION = [tf.constant([1.0, -2.0], tf.float64), tf.constant([[3.0]])]
GRADIENT = [tf.constant([-4.0, 0.5], tf.float64), tf.constant([[2.0]])]


def test_update_is_the_equation() -> None:
    xi = noise.noise_like(POSITION, SEED)
    new = sgld.update(sgld.init(POSITION), GRADIENT, SEED, step_size=0.1, temperature=1.7)
    for q, g, z, got in zip(POSITION, GRADIENT, xi, new.position, strict=True):
        np.testing.assert_allclose(got, q + 0.05 * g + np.sqrt(0.17) * z, rtol=1e-6)
        assert got.dtype == q.dtype


@pytest.mark.parametrize("kind", noise.KINDS)
def test_it_is_sghmc_without_memory(kind: str) -> None:
    e = 0.08
    one, other = sgld.init(POSITION), sghmc.init(POSITION)
    for step in range(3):
        seed = tf.constant([4, step])
        one = sgld.update(one, one.position, seed, step_size=e, noise=kind)
        other = sghmc.update(
            other,
            other.position,
            seed,
            step_size=np.sqrt(e / 2),
            momentum_decay=1.0,
            noise=kind,
        )
    for a, b in zip(one.position, other.position, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_gradient_noise_heats_as_documented() -> None:
    # Also the closed form: the covariance is T' [A - e A^2 / 4]^-1.
    e, deviation = 0.2, 2.0
    path = run(
        case_named("sgld"),
        GAUSSIAN.log_prob,
        step_size=e,
        num_burnin_steps=300,
        gradient_noise=(deviation, deviation),
    )
    precision, temperature = GAUSSIAN.precision, 1 + e * deviation**2 / 4  # 1.2
    covariance = temperature * np.linalg.inv(precision - e / 4 * precision @ precision)
    assert_near(path.second_about(GAUSSIAN.mean), covariance)


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("step_size", 0.0, "step_size must be positive"),
        ("temperature", -1.0, "temperature must be finite and not negative"),
        ("noise", "cauchy", "noise must be one of"),
    ],
)
def test_bad_settings_are_refused(setting: str, value: Any, message: str) -> None:
    settings = {"step_size": 0.1, setting: value}
    with pytest.raises(ValueError, match=message):
        sgld.update(sgld.init(POSITION), GRADIENT, SEED, **settings)
