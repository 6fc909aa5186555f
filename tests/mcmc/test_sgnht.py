"""The thermostat: its equations, its stationary distribution, and the noise that it absorbs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc import Step, Target, noise, sghmc, sgnht
from gpflow_bae.tracing import compiled
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


def test_a_thermostat_for_each_leaf() -> None:
    """Each follows its own leaf, with the inertia of 1000 scalars where it has fewer."""
    h, a, t = 0.1, 0.3, 1.7
    position = {"w": tf.ones([2, 40, 30]), "b": tf.ones([2, 5])}
    gradient = {"w": tf.fill([2, 40, 30], 3.0), "b": tf.fill([2, 5], -1.0)}
    state = sgnht.init(position, momentum_decay=a, chain_ndims=1, thermostats="leaf")
    held = {"w": tf.constant([0.1, 0.2]), "b": tf.constant([0.3, -0.4])}
    state = state._replace(thermostat=held)
    new = sgnht.update(state, gradient, SEED, step_size=h, momentum_decay=a, temperature=t)
    xi = noise.noise_like(position, SEED)
    for key, inertia in (("w", 1200), ("b", 1000)):
        r = h**2 * gradient[key] + np.sqrt(2 * a * t) * h * xi[key]  # from rest
        np.testing.assert_allclose(new.momentum[key], r, atol=1e-6)  # float32
        size = np.size(r) // 2
        excess = np.sum(np.reshape(r, [2, -1]) ** 2, axis=1) - size * h**2 * t
        np.testing.assert_allclose(new.thermostat[key], held[key] + excess / inertia, rtol=1e-4)


def test_thermostats_of_leaves_absorb_noise_that_differs_between_them() -> None:
    """Where one thermostat for both leaves cools the quiet one and leaves the noisy one hot.

    Two leaves of 4000 independent standard normals each, gradients of variance 0 and 16 more. Each
    leaf's thermostat rises to a + h^2 v / 2, and its positions are cold by half of that.
    """
    h, a, size = 0.1, 0.05, 4000
    deviations = {"quiet": 0.0, "noisy": 4.0}
    means = {}
    for thermostats in ("chain", "leaf"):
        sampler = sgnht.build(h, a, thermostats=thermostats)

        def gradient(position: Any, seed: tf.Tensor) -> Any:
            noises = noise.noise_like(position, tf.random.fold_in(seed, 1, alg="philox"))
            return {k: deviations[k] * noises[k] - position[k] for k in position}

        @compiled
        def run_it(sampler: Any = sampler, target: Any = Target(gradient)) -> Any:  # noqa: B008
            def body(i: tf.Tensor, carried: Any) -> Any:
                state, total = carried
                seed = tf.random.fold_in(tf.constant([3, 0]), i, alg="philox")
                state = sampler.step(state, target, seed, Step(i, False))
                now = tf.nest.map_structure(lambda q: tf.reduce_mean(q**2), state.position)
                kept = tf.cast(i >= 1000, tf.float32)
                return state, {k: total[k] + kept * now[k] for k in total}

            start = sampler.init({k: tf.zeros([size]) for k in deviations}, target)
            return repeat(2000, body, (start, {k: tf.constant(0.0) for k in deviations}))

        state, total = run_it()
        means[thermostats] = {k: float(v) / 1000 for k, v in total.items()}
        if thermostats == "leaf":
            held = {k: float(v) for k, v in state.shared["thermostat"].items()}
    expected = {k: a + h**2 * v**2 / 2 for k, v in deviations.items()}
    for key, b in expected.items():
        # sqrt(h^2 / 4000) is a thermostat's own spread, b^2 what first order leaves out.
        assert abs(held[key] - b) < b**2 + 4 * h / np.sqrt(size)
        # 4000 numbers for 1000 steps, of which a hundredth are independent: 0.7 %.
        assert means["leaf"][key] == pytest.approx(1 - b / 2, abs=0.03)
    assert means["chain"]["quiet"] < 0.75 and means["chain"]["noisy"] > 1.25


def test_a_leaf_at_temperature_0_descends() -> None:
    position = {"still": tf.constant([2.0]), "moves": tf.zeros([1000])}
    sampler = sgnht.build(0.1, 0.2, thermostats="leaf")
    target = Target(lambda q, seed: tf.nest.map_structure(lambda v: 1.0 - v, q))
    state = sampler.init(position, target)
    cold = state.shared["temperature"] | {"still": tf.constant(0.0, tf.float64)}
    state = state._replace(shared=state.shared | {"temperature": cold})
    step = compiled(lambda state, seed: sampler.step(state, target, seed, Step(0, False)))
    for i in range(300):
        state = step(state, tf.constant([5, i]))
    np.testing.assert_allclose(state.position["still"], [1.0], atol=1e-3)
    np.testing.assert_allclose(state.shared["thermostat"]["still"], 0.2)
    assert abs(float(sampler.temperatures(state)["moves"]) - 1.0) < 0.3


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
    with pytest.raises(ValueError, match='thermostats must be "chain" or "leaf", got .each.'):
        sgnht.init(tf.ones(2), momentum_decay=0.1, thermostats="each")
    state, settings = sgnht.init([tf.ones(2)] * 2, momentum_decay=0.1), {"step_size": 0.1}
    with pytest.raises(ValueError, match="temperature must be one number where the leaves"):
        sgnht.update(
            state, [tf.ones(2)] * 2, SEED, momentum_decay=0.1, temperature=[1.0, 0.0], **settings
        )
