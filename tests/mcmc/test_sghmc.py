"""SGHMC: stationary moments against exact ones, and the contract of a functional sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import sghmc

SEED = tf.constant([1, 2])


@pytest.mark.parametrize(
    "temperature, noise",
    [(0.5, "gaussian"), (1.0, "gaussian"), (2.0, "gaussian"), (1.0, "binomial")],
)
@pytest.mark.parametrize("momentum_decay", [0.2, 1.0])
def test_stationary_moments(
    gaussian: Any, temperature: float, noise: str, momentum_decay: float
) -> None:
    step_size = 0.2 if momentum_decay < 1 else 0.4  # at 1 it is SGLD with step h^2
    _, moments = gaussian.run(
        lambda state, gradient, seed: sghmc.update(
            state,
            gradient,
            seed,
            step_size=step_size,
            momentum_decay=momentum_decay,
            temperature=temperature,
            noise=noise,
        ),
        sghmc.init(tf.zeros([4000, 2])),
        num_burnin_steps=300,  # at least 20 relaxation times
        num_steps=300,
    )
    moments.assert_near(moments.mean, gaussian.mean)
    expected = gaussian.sghmc_covariance(step_size, momentum_decay, temperature)
    moments.assert_near(moments.second, expected)
    # And the target itself, up to the step-size bias that the docstring states, h^2 A / (2 (2 - a))
    # relative to the eigenvector with the largest precision, 2.45.
    precision = gaussian.precision
    closed_form = temperature * np.linalg.inv(
        precision - step_size**2 * precision @ precision / (2 * (2 - momentum_decay))
    )
    np.testing.assert_allclose(expected, closed_form, rtol=1e-9)
    bias = np.abs(closed_form - temperature * gaussian.covariance).max()
    assert bias < (0.03 if momentum_decay < 1 else 0.15) * temperature
    moments.assert_near(moments.second, temperature * gaussian.covariance, bias)


def test_gradient_noise_heats_as_documented(gaussian: Any) -> None:
    step_size, momentum_decay, deviation = 0.2, 0.2, 2.0
    _, moments = gaussian.run(
        lambda state, gradient, seed: sghmc.update(
            state, gradient, seed, step_size=step_size, momentum_decay=momentum_decay
        ),
        sghmc.init(tf.zeros([4000, 2])),
        num_burnin_steps=300,
        num_steps=300,
        gradient_noise=deviation,
    )
    temperature = 1 + step_size**2 * deviation**2 / (2 * momentum_decay)  # 1.4
    moments.assert_near(
        moments.second, gaussian.sghmc_covariance(step_size, momentum_decay, temperature)
    )


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


def run(state: sghmc.State, first: tf.Tensor, last: tf.Tensor, step_size: tf.Tensor) -> sghmc.State:
    """Steps first..last-1 on a standard normal, each with its own seed."""
    for i in tf.range(first, last):
        seed = tf.random.fold_in(SEED, i, alg="philox")
        gradient = tf.nest.map_structure(tf.negative, state.position)
        state = sghmc.update(
            state, gradient, seed, step_size=step_size, momentum_decay=0.1, temperature=1.0
        )
    return state


def start() -> sghmc.State:
    return sghmc.init([tf.ones([5, 2]), tf.ones([5], tf.float64)])


def test_resumed_chain_is_the_same_chain_and_is_traced_once() -> None:
    traces = []

    @tf.function
    def compiled(*args: Any) -> sghmc.State:
        traces.append(None)
        return run(*args)

    zero, ten, twenty, h = tf.constant(0), tf.constant(10), tf.constant(20), tf.constant(0.1)
    whole = compiled(start(), zero, twenty, h)
    halves = compiled(compiled(start(), zero, ten, h), ten, twenty, h)
    tf.nest.map_structure(np.testing.assert_array_equal, whole, halves)
    compiled(start(), zero, twenty, tf.constant(0.05))  # a schedule does not retrace either
    assert len(traces) == 1


def test_eager_graph_and_xla_agree() -> None:
    args = (start(), tf.constant(0), tf.constant(20), tf.constant(0.1))
    eager_state = args[0]
    for i in range(20):
        eager_state = run(eager_state, i, i + 1, args[3])
    for compiled in (tf.function(run), tf.function(run, jit_compile=True)):
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), compiled(*args), eager_state
        )


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
