"""Scale-adapted SGHMC: stationary moments at the preconditioner it found, and its recursions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import adaptive_sghmc, sghmc
from tests.mcmc.theory.assertions import assert_gaussian, assert_near, run
from tests.mcmc.theory.densities import GAUSSIAN, lyapunov_covariance
from tests.mcmc.theory.harness import case_named, stochastic_case

SEED = tf.constant([1, 2])


# The table of harness.py has three temperatures, with a jitter of 1 and Gaussian noise.
BINOMIAL = stochastic_case(
    "adaptive_sghmc, binomial",
    adaptive_sghmc,
    settings={"momentum_decay": 0.2, "num_adaptation_steps": 400, "noise": "binomial"},
    preconditioner=lambda state: (
        1 / np.sqrt(state[0].elements["mean_square_gradient"].numpy().astype(float) + 1e-6)
    ),
    gaussian_bias=lambda h: h**2 / (2 * (2 - 0.2)),
    step_size=0.2,
    num_burnin_steps=800,
    num_steps=500,
)


def test_stationary_moments_with_binomial_noise() -> None:
    # Each chain found another P, and is a linear chain with a known stationary covariance.
    covariance = assert_gaussian(BINOMIAL, 1.0)
    # Which is the target's, averaged over chains, up to 3 per cent or less.
    assert np.abs(covariance.mean(axis=0) - GAUSSIAN.covariance).max() < 0.03


def with_known_noise(state: Any) -> Any:
    """V is the variance of the gradients' noise: 4 and 1."""
    inner, count = state
    squares = tf.ones_like(inner.position) * tf.constant([4.0, 1.0])
    elements = {**inner.elements, "mean_square_gradient": squares}
    return inner._replace(elements=elements), count


@pytest.mark.parametrize("subtract", [True, False])
def test_subtracted_gradient_noise(subtract: bool) -> None:
    # With gradient noise of variance v = V (the signal's part of V left out), h^4 P^2 v = h^4: what
    # the term takes off. Without it the chain is hotter by the factor 1 + h^2 / (2 a T P) = 1.4.
    step_size, momentum_decay, preconditioner = 0.2, 0.2, np.array([0.5, 1.0])
    path = run(
        case_named("adaptive_sghmc"),
        GAUSSIAN.log_prob,
        num_burnin_steps=400,
        overrides={
            "num_adaptation_steps": 0,
            "jitter": 0.0,
            "subtract_gradient_noise": subtract,
        },
        gradient_noise=(2.0, 1.0),
        begin=with_known_noise,
    )
    # The excess differs between the two scalars, so it enters the covariance of the noise.
    excess = 0.0 if subtract else step_size**2 / (2 * momentum_decay * preconditioner)
    expected = lyapunov_covariance(step_size, momentum_decay, 1 + excess, preconditioner)
    assert_near(path.second_about(GAUSSIAN.mean), expected)


def test_statistics_match_a_numpy_recursion_and_freeze() -> None:
    traces = []

    @tf.function(autograph=False)
    def update(state: Any, gradient: tf.Tensor, seed: tf.Tensor, adapt: tf.Tensor) -> Any:
        traces.append(None)
        return adaptive_sghmc.update(
            state, gradient, seed, step_size=0.01, momentum_decay=0.1, adapt=adapt
        )

    rng = np.random.default_rng(0)
    # Per element: noise, noise about a signal, signal only, never a gradient.
    gradients = rng.normal(size=[40, 5, 4]) * [3.0, 1.0, 0.0, 0.0] + [0.0, 2.0, -5.0, 0.0]
    tau, mean, mean_square = np.ones([3, 5, 4])
    state = adaptive_sghmc.init(tf.zeros([5, 4], tf.float64))
    for step, g in enumerate(gradients):
        state = update(state, tf.constant(g), SEED, tf.constant(step < 30))
        if step < 30:
            rate = 1 / (1 + tau)
            tau = tau + 1 - tau * mean**2 / mean_square
            mean = mean + rate * (g - mean)
            mean_square = mean_square + rate * (g**2 - mean_square)
            assert np.all(state.tau >= 1)
        np.testing.assert_allclose(state.tau, tau, rtol=1e-9)
        np.testing.assert_allclose(state.mean_gradient, mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.mean_square_gradient, mean_square, rtol=1e-9)
    assert len(traces) == 1
    # The window: noise lengthens it by about a half per step, to 16, a signal keeps it short.
    assert 12 < np.mean(state.tau[:, 0]) < 20 and np.all(state.tau[:, 2] < 5)


def test_adaptation_survives_a_gradient_that_underflows() -> None:
    state = adaptive_sghmc.init(tf.zeros([3]))._replace(
        mean_gradient=tf.zeros([3]), mean_square_gradient=tf.zeros([3])
    )
    for _ in range(3):
        state = adaptive_sghmc.update(
            state, tf.zeros([3]), SEED, step_size=0.01, momentum_decay=0.1, adapt=True
        )
    for part in state:
        assert np.all(np.isfinite(part))


@pytest.mark.parametrize("subtract", [True, False])
def test_update_is_the_equation(subtract: bool) -> None:
    h, a, t, jitter = 0.1, 0.3, 1.7, 0.01
    g = tf.constant([3.0, -4.0], tf.float64)
    v = tf.constant([2.0, 5.0], tf.float64)
    r = tf.constant([0.5, -0.5], tf.float64)
    state = adaptive_sghmc.init(tf.ones(2, tf.float64))._replace(momentum=r, mean_square_gradient=v)
    new = adaptive_sghmc.update(
        state,
        g,
        SEED,
        step_size=h,
        momentum_decay=a,
        temperature=t,
        adapt=False,
        subtract_gradient_noise=subtract,
        jitter=jitter,
    )
    # Plain SGHMC at rest without a gradient, with 2 a T h^2 = 1, shows xi.
    rest = sghmc.init(tf.zeros(2, tf.float64))
    xi = sghmc.update(rest, rest.position, SEED, step_size=1.0, momentum_decay=0.5).momentum
    p = 1 / np.sqrt(v + jitter)
    variance = 2 * a * t * h**2 * p - (h**4 if subtract else 0)
    momentum = (1 - a) * r + h**2 * p * g + np.sqrt(variance) * xi
    np.testing.assert_allclose(new.momentum, momentum, rtol=1e-12)
    np.testing.assert_allclose(new.position, 1 + momentum, rtol=1e-12)


@pytest.mark.parametrize("adapt", [True, False])
def test_nothing_moves_without_forces(adapt: bool) -> None:
    position = {"w": tf.constant([[1.0, -2.0]]), "u": tf.constant([3.0], tf.float64)}
    state = adaptive_sghmc.init(position)
    for _ in range(3):
        state = adaptive_sghmc.update(
            state,
            tf.nest.map_structure(tf.zeros_like, position),
            SEED,
            step_size=0.1,
            momentum_decay=0.05,
            temperature=0.0,
            adapt=adapt,
        )
    tf.nest.map_structure(np.testing.assert_array_equal, state.position, position)


def state_with(mean_squares: list[list[float]]) -> adaptive_sghmc.State:
    parts = [tf.constant(v) for v in mean_squares]
    return adaptive_sghmc.init(parts)._replace(mean_square_gradient=parts)


def test_largest_valid_step_size_is_where_the_variance_vanishes() -> None:
    state = state_with([[4.0, 0.01], [25.0]])
    settings = {"momentum_decay": 0.05, "temperature": 2.0, "jitter": 0.0}
    largest = float(adaptive_sghmc.largest_valid_step_size(state, **settings))
    np.testing.assert_allclose(largest, np.sqrt(2 * 0.05 * 2.0 / 5.0), rtol=1e-7)

    def step(step_size: float) -> tf.Tensor:
        gradient = tf.nest.map_structure(tf.zeros_like, state.position)
        new = adaptive_sghmc.update(
            state,
            gradient,
            SEED,
            step_size=step_size,
            adapt=False,
            subtract_gradient_noise=True,
            **settings,
        )
        return new.position

    assert all(np.all(np.isfinite(part)) for part in step(0.999 * largest))
    # Never clamped in silence: the scalar whose variance is negative is NaN, the others are not.
    parts = step(1.001 * largest)
    assert np.all(np.isnan(parts[1])) and np.all(np.isfinite(parts[0]))


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("step_size", -0.1, "step_size must be positive and finite, got -0.1"),
        ("momentum_decay", 0.0, r"momentum_decay.*\(0, 1\], got 0.0"),
        ("temperature", -1.0, "temperature must be finite and not negative, got -1.0"),
        ("noise", "cauchy", "noise must be one of"),
    ],
)
def test_bad_settings_are_refused(setting: str, value: Any, message: str) -> None:
    settings = {"step_size": 0.1, "momentum_decay": 0.1, "adapt": True, setting: value}
    state = adaptive_sghmc.init(tf.zeros(2))
    with pytest.raises(ValueError, match=message):
        adaptive_sghmc.update(state, tf.zeros(2), SEED, **settings)
