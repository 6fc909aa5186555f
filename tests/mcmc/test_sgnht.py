"""The thermostat: its equations, its stationary distribution, and the noise that it absorbs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import noise, sghmc, sgnht
from tests.mcmc.assertions import assert_near, run
from tests.mcmc.densities import GAUSSIAN
from tests.mcmc.harness import case_named

SEED = tf.constant([1, 2])


def test_update_is_the_equation() -> None:
    h, a, t = 0.1, 0.3, 1.7
    position = {"w": tf.ones([3, 2, 2]), "b": tf.ones([3], tf.float64)}
    gradient = {"w": tf.fill([3, 2, 2], 3.0), "b": tf.constant([1.0, -2.0, 0.0], tf.float64)}
    state = sgnht.init(position, momentum_decay=a, chain_ndims=1)
    assert state.thermostat.dtype == tf.float64
    np.testing.assert_array_equal(state.thermostat, [a] * 3)
    thermostat = np.array([0.1, -0.2, 0.5])
    momentum = {"w": tf.fill([3, 2, 2], 0.5), "b": tf.constant([1.0, 2.0, 3.0], tf.float64)}
    state = state._replace(momentum=momentum, thermostat=tf.constant(thermostat))
    new = sgnht.update(state, gradient, SEED, step_size=h, momentum_decay=a, temperature=t)
    xi = noise.noise_like(position, SEED)
    squares = np.zeros(3)
    for key, shape in (("w", [3, 1, 1]), ("b", [3])):
        r = (1 - thermostat.reshape(shape)) * momentum[key] + h**2 * gradient[key]
        r = r + np.sqrt(2 * a * t) * h * xi[key]
        np.testing.assert_allclose(new.momentum[key], r, rtol=1e-5)
        np.testing.assert_allclose(new.position[key], 1 + r, rtol=1e-5)
        squares += np.sum(np.reshape(r, [3, -1]) ** 2, axis=1)
    np.testing.assert_allclose(new.thermostat, thermostat + squares / 5 - h**2 * t, rtol=1e-5)


def test_with_a_held_thermostat_it_is_sghmc() -> None:
    settings = {"step_size": 0.1, "momentum_decay": 0.3}
    x = tf.constant([[1.0, -2.0]])
    one, other = sgnht.init(x, momentum_decay=0.3, chain_ndims=1), sghmc.init(x)
    for step in range(3):
        seed = tf.constant([4, step])
        one = sgnht.update(one, -one.position, seed, **settings)._replace(thermostat=[0.3])
        one = one._replace(thermostat=tf.constant([0.3]))
        other = sghmc.update(other, -other.position, seed, **settings)
    np.testing.assert_allclose(one.position, other.position, rtol=1e-6)


def test_it_absorbs_gradient_noise() -> None:
    # Noise that heats SGHMC by the factor 1 + h^2 v / (2 a T) = 1.9.
    h, a, deviation = 0.15, 0.05, 2.0
    path = run(
        case_named("sgnht"),
        GAUSSIAN.log_prob,
        step_size=h,
        num_burnin_steps=500,
        num_steps=500,
        overrides={"friction": a / h},
        gradient_noise=(deviation, deviation),
    )
    # The thermostat: mean b = a + h^2 v / (2 T), variance h^2 T / n. Both to first order in b: the
    # decay z at which momenta have the variance T h^2 solves z (2 - z) = 2 b where it is constant.
    b = a + h**2 * deviation**2 / 2
    thermostat = path.state[0].shared["thermostat"].numpy().astype(float)
    assert abs(thermostat.mean() - b) < b**2 + 5 * thermostat.std() / np.sqrt(thermostat.size)
    np.testing.assert_allclose(thermostat.std(), h / np.sqrt(2), rtol=0.1)
    # Positions: too cold by b / 2, as documented, and not too hot by 0.9.
    expected = (1 - b / 2) * GAUSSIAN.covariance
    assert_near(path.mean, GAUSSIAN.mean)
    assert_near(path.second_about(GAUSSIAN.mean), expected, bias=0.03)


def test_a_thermostat_for_each_chain_or_one() -> None:
    x = tf.ones([4, 3, 2])
    for chain_ndims in (0, 1, 2):
        state = sgnht.init(x, momentum_decay=0.1, chain_ndims=chain_ndims)
        assert state.thermostat.shape == x.shape[:chain_ndims]
        new = sgnht.update(state, -x, SEED, step_size=0.1, momentum_decay=0.1)
        assert new.thermostat.shape == x.shape[:chain_ndims]


@pytest.mark.parametrize(
    "position, chain_ndims, message",
    [
        ([], 0, "position has no tensors"),
        ([tf.ones(3), tf.ones([3, 2])], 2, "chain_ndims=2"),
        ([tf.ones([3, 2]), tf.ones([2, 2])], 1, r"got shapes \[\(3, 2\), \(2, 2\)\]"),
    ],
)
def test_bad_positions_are_refused(position: Any, chain_ndims: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sgnht.init(position, momentum_decay=0.1, chain_ndims=chain_ndims)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="momentum_decay"):
        sgnht.init(tf.ones(2), momentum_decay=0.0)
    state = sgnht.init(tf.ones(2), momentum_decay=0.1)
    with pytest.raises(ValueError, match="step_size must be positive"):
        sgnht.update(state, tf.ones(2), SEED, step_size=0.0, momentum_decay=0.1)
