"""SGHMC: stationary moments against exact ones, and the contract of a functional sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import sghmc
from tests.mcmc.theory.assertions import assert_gaussian, assert_near, run
from tests.mcmc.theory.densities import GAUSSIAN, lyapunov_covariance
from tests.mcmc.theory.harness import SamplerCase, case_named, stochastic_case

SEED = tf.constant([1, 2])


@pytest.mark.parametrize("step_size, momentum_decay, bias", [(0.2, 0.2, 0.03), (0.4, 1.0, 0.15)])
def test_the_closed_form_is_the_stationary_covariance(
    step_size: float, momentum_decay: float, bias: float
) -> None:
    # And near the target's: h^2 A / (2 (2 - a)) relative to the eigenvector with A = 2.45.
    precision = GAUSSIAN.precision
    for preconditioner in (np.ones(2), np.array([0.7, 1.2])):
        correction = step_size**2 * precision @ np.diag(preconditioner) @ precision
        closed_form = 1.7 * np.linalg.inv(precision - correction / (2 * (2 - momentum_decay)))
        exact = lyapunov_covariance(step_size, momentum_decay, 1.7, preconditioner)
        np.testing.assert_allclose(exact, closed_form, rtol=1e-9)
    exact = lyapunov_covariance(step_size, momentum_decay, 1.7)
    assert np.abs(exact - 1.7 * GAUSSIAN.covariance).max() < 1.7 * bias


# The table of harness.py has a = 0.2 with Gaussian noise. At a = 1 it is SGLD with step h^2.
AT_ONE, *BINOMIAL = (
    stochastic_case(
        f"sghmc, {noise}, {momentum_decay}",
        sghmc,
        settings={"momentum_decay": momentum_decay, "noise": noise},
        gaussian_bias=lambda h, a=momentum_decay: h**2 / (2 * (2 - a)),
        step_size=0.2 if momentum_decay < 1 else 0.4,
        num_burnin_steps=300,  # at least 20 relaxation times
        num_steps=300,
    )
    for noise, momentum_decay in [("gaussian", 1.0), ("binomial", 1.0), ("binomial", 0.2)]
)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_stationary_moments_without_memory(temperature: float) -> None:
    assert_gaussian(AT_ONE, temperature)


@pytest.mark.parametrize("case", BINOMIAL, ids=["1", "0.2"])
def test_stationary_moments_with_binomial_noise(case: SamplerCase) -> None:
    assert_gaussian(case, 1.0)


def test_gradient_noise_heats_as_documented() -> None:
    path = run(case_named("sghmc"), GAUSSIAN.log_prob, gradient_noise=(2.0, 2.0))
    temperature = 1 + 0.2**2 * 2.0**2 / (2 * 0.2)  # 1.4
    expected = lyapunov_covariance(0.2, 0.2, temperature)
    assert_near(path.second_about(GAUSSIAN.mean), expected)


def test_update_is_the_equation() -> None:
    # One step from given numbers; xi is recovered from a second step that differs in one term.
    state = sghmc.State(tf.constant([1.0, 2.0]), tf.constant([0.5, -0.5]))
    gradient = tf.constant([3.0, -4.0])
    settings = {"step_size": 0.1, "momentum_decay": 0.3, "temperature": 1.7}
    new = sghmc.update(state, gradient, SEED, **settings)
    still = sghmc.State(tf.zeros(2), tf.zeros(2))
    xi = sghmc.update(
        still, tf.zeros(2), SEED, step_size=1.0, momentum_decay=0.5, temperature=1.0
    ).position
    momentum = 0.7 * state.momentum + 0.01 * gradient + np.sqrt(2 * 0.3 * 1.7) * 0.1 * xi
    np.testing.assert_allclose(new.momentum, momentum, rtol=1e-5)
    np.testing.assert_allclose(new.position, state.position + momentum, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, tf.constant(0.0)])
def test_nothing_moves_without_forces(temperature: Any) -> None:
    position = {"w": tf.constant([[1.0, -2.0]]), "u": tf.constant([3.0], tf.float64)}
    state = sghmc.init(position)
    for _ in range(3):
        state = sghmc.update(
            state,
            tf.nest.map_structure(tf.zeros_like, position),
            SEED,
            step_size=0.1,
            momentum_decay=0.05,
            temperature=temperature,
        )
    tf.nest.map_structure(np.testing.assert_array_equal, state.position, position)


def test_leaves_keep_shape_dtype_and_precision() -> None:
    position = [tf.ones([3, 4]), (tf.ones([3], tf.float64), tf.ones([3, 2, 2], tf.bfloat16))]
    state = sghmc.update(
        sghmc.init(position), position, SEED, step_size=0.1, momentum_decay=0.1, temperature=0.0
    )
    tf.nest.assert_same_structure(state.position, position)
    for part in state:
        for new, old in zip(tf.nest.flatten(part), tf.nest.flatten(position), strict=True):
            assert new.shape == old.shape and new.dtype == old.dtype
    # 0.1 must not have been rounded to float32 on its way to the float64 leaf.
    np.testing.assert_allclose(state.momentum[1][0], 0.1**2, rtol=1e-15)


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("step_size", 0.0, "step_size must be positive and finite, got 0.0"),
        ("step_size", float("nan"), "step_size must be positive and finite, got nan"),
        ("momentum_decay", 0.0, r"momentum_decay.*\(0, 1\], got 0.0"),
        ("momentum_decay", 1.5, r"momentum_decay.*\(0, 1\], got 1.5"),
        ("temperature", -1.0, "temperature must be finite and not negative, got -1.0"),
        ("noise", "cauchy", "noise must be one of"),
    ],
)
def test_bad_settings_are_refused(setting: str, value: Any, message: str) -> None:
    settings = {"step_size": 0.1, "momentum_decay": 0.1, setting: value}
    state = sghmc.init(tf.zeros(2))
    with pytest.raises(ValueError, match=message):
        sghmc.update(state, tf.zeros(2), SEED, **settings)
