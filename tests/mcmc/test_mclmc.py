"""Microcanonical Langevin: turns against an integration in NumPy, moments against theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import solve_ivp

from gpflow_bae.core.tracing import compiled
from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc import Step, Target, mclmc, noise, step_size

SEED = tf.constant([4, 9])


def pair(values: np.ndarray) -> Any:
    """A structure of two leaves, that norms are over all of it."""
    return tf.constant(values[:2]), tf.constant(values[2:].reshape(-1, 2))


def flat(structure: Any) -> np.ndarray:
    return np.concatenate([v.numpy().ravel() for v in structure])


def test_a_step_is_two_turns_a_refreshment_and_a_move() -> None:
    rng = np.random.default_rng(0)
    d, h, a = 6, 0.7, 0.3
    q, g, u = rng.normal(size=(3, d))
    g *= 5.0
    u /= np.linalg.norm(u)
    path = h * np.sqrt(d)

    def turned(u: np.ndarray) -> np.ndarray:
        def slope(s: float, v: np.ndarray) -> np.ndarray:
            return (g - v * (v @ g)) / (d - 1)

        return solve_ivp(slope, (0, path / 2), u, rtol=1e-10, atol=1e-12).y[:, -1]

    xi = flat(noise.noise_like(pair(np.zeros(d)), SEED))
    expected = turned(u)
    expected = expected + np.sqrt((1 / (1 - a) ** 2 - 1) / d) * xi
    expected = turned(expected / np.linalg.norm(expected))

    state = mclmc.State(pair(q), pair(path * u))
    state = mclmc.update(state, pair(g), SEED, step_size=h, momentum_decay=a)
    # The integration in NumPy is good to 1e-9.
    np.testing.assert_allclose(flat(state.momentum), path * expected, rtol=1e-7)
    np.testing.assert_allclose(flat(state.position), q + path * expected, rtol=1e-7)


@pytest.mark.parametrize("gradient_scale", [0.0, 1.0, 1e8])
def test_momenta_keep_their_length(gradient_scale: float) -> None:
    state = mclmc.init(pair(np.zeros(6)))
    gradient = pair(gradient_scale * np.arange(6.0))
    for i in range(3):
        seed = tf.constant([1, i])
        state = mclmc.update(state, gradient, seed, step_size=0.2, momentum_decay=0.1)
        np.testing.assert_allclose(np.linalg.norm(flat(state.momentum)), 0.2 * 6**0.5, rtol=1e-12)


def chain(temperature: Any, steps: int, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions [steps, d] of a Gaussian's chain, and kinetic temperatures [steps, leaves]."""
    matrix = tf.constant(precision)
    sampler = mclmc.build(step_size=0.25, momentum_decay=0.2)

    def gradient(position: Any, seed: Any) -> Any:
        q = tf.concat([position[0], tf.reshape(position[1], [-1])], 0)
        g = -tf.linalg.matvec(matrix, q)
        return g[:2], tf.reshape(g[2:], [-1, 2])

    target = Target(gradient)
    state = sampler.init(pair(np.ones(len(precision))), target)
    if temperature is not None:
        state = state._replace(shared={**state.shared, "temperature": temperature})

    @tf.function(autograph=False)
    def run(state: Any) -> Any:
        def body(state: Any, i: tf.Tensor) -> Any:
            return sampler.step(state[0], target, tf.stack([7, i]), Step(i, False)), i

        states, _ = tf.scan(body, tf.range(steps), (state, tf.constant(0)))
        kinetic = tf.map_fn(
            lambda s: tf.stack(sampler.temperatures(s)), states, fn_output_signature=tf.float64
        )
        return states.position, kinetic

    position, kinetic = run(state)
    joined = np.concatenate([p.numpy().reshape(steps, -1) for p in position], 1)
    return joined, kinetic.numpy()


def test_moments_of_a_gaussian(temperature: float = 2.5) -> None:
    """Means and covariances of T A^-1, within 4.5 standard errors of 40 parts of a long chain and 2
    per cent for the step size, whose h^2 A is at most 0.19.
    """
    rng = np.random.default_rng(3)
    basis, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    precision = basis @ np.diag(np.linspace(0.5, 3.0, 8)) @ basis.T
    both = (tf.constant(temperature, tf.float64),) * 2
    q, kinetic = chain(both, 20_000, precision)
    q = q[2000:]
    expected = temperature * np.linalg.inv(precision)
    for found, wanted in ((q, np.zeros(8)), (q[:, :, None] * q[:, None, :], expected)):
        parts = np.stack([p.mean(0) for p in np.array_split(found, 40)])
        error = parts.std(0, ddof=1) / np.sqrt(40)
        assert np.all(np.abs(parts.mean(0) - wanted) < 4.5 * error + 0.02 * np.abs(expected).max())
    # Directions are uniform, whatever the temperature: every leaf has its share of the length.
    np.testing.assert_allclose(kinetic[2000:].mean(0), 1.0, atol=0.05)


def test_a_leaf_at_temperature_0_stays_and_the_rest_is_sampled_given_it() -> None:
    precision = np.diag([2.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    precision[0, 2] = precision[2, 0] = 0.8
    cold = (tf.constant(0.0, tf.float64), tf.constant(1.0, tf.float64))
    q, kinetic = chain(cold, 6_000, precision)
    np.testing.assert_array_equal(q[:, :2], 1.0)
    np.testing.assert_allclose(kinetic[:, 0], 0.0)
    np.testing.assert_allclose(kinetic[:, 1], 1.0, rtol=1e-9)
    parts = np.array([p.mean() for p in np.array_split(q[1000:, 2], 30)])
    error = parts.std(ddof=1) / np.sqrt(30)
    assert abs(parts.mean() + 0.8) < 4.5 * error  # -A12 q1 / A22


NOISY_DIMENSIONS = 100


def noisy_variances(precision: Any, variance: Any, h: float) -> np.ndarray:
    """Precision times variance [d] under a chain whose gradients have noise of these variances."""
    precision, deviation = (tf.constant(v, tf.float64) for v in (precision, np.sqrt(variance)))

    def gradient(position: Any, seed: Any) -> Any:
        e = noise.standard_noise([NOISY_DIMENSIONS], noise.fold_in(seed, 9), tf.float64)
        return -precision * position + deviation * e

    sampler, target = mclmc.build(h, h), Target(gradient)

    @compiled
    def run() -> tf.Tensor:
        def body(i: tf.Tensor, carried: Any) -> Any:
            state, total = carried
            state = sampler.step(state, target, tf.stack([3, i]), Step(i, False))
            return state, total + tf.cast(i >= 200, tf.float64) * state.position**2

        start = noise.standard_noise([NOISY_DIMENSIONS], tf.constant([1, 2]), tf.float64)
        state = sampler.init(start / tf.sqrt(precision), target)
        return repeat(6200, body, (state, tf.zeros_like(precision)))[1] / 6000.0

    return run().numpy() * precision.numpy()


@pytest.mark.parametrize(("h", "c"), [(0.3, 15.0), (0.4, 5.0), (0.4, 0.0)])
def test_isotropic_noise_has_the_bias_of_its_turns(h: float, c: float) -> None:
    """s coth s; the mean of 100 variances, each of some 100 independent draws: 1.4 %, thrice."""
    ones = np.ones(NOISY_DIMENSIONS)
    s = 0.5 * h * np.sqrt(1.0 + c)
    found = noisy_variances(ones, c * ones, h).mean()
    assert found == pytest.approx(s / np.tanh(s), rel=0.04)


def test_noise_that_is_not_isotropic_heats_and_coordinates_cure_it() -> None:
    """The noise of half of the directions is 30, of the others 1; the posterior is standard.

    Coordinates with deviations of the noise as units have precisions 1 / 30 and 1, and noise 1.
    """
    variance = np.where(np.arange(NOISY_DIMENSIONS) < 50, 30.0, 1.0)
    found = noisy_variances(np.ones(NOISY_DIMENSIONS), variance, 0.2)
    assert found[:50].mean() > 1.3 and found[50:].mean() < 0.6
    # The same mean noise of 15.5, and the same steps in units of the stiff directions.
    cured = noisy_variances(15.5 / variance, 15.5 * np.ones(NOISY_DIMENSIONS), 0.05)
    assert cured[:50].mean() == pytest.approx(1.0, abs=0.12)
    assert cured[50:].mean() == pytest.approx(1.0, abs=0.06)


def test_step_sizes_from_curvature_are_those_of_sghmc() -> None:
    """The same limit: a direction of curvature A turns by h A^1/2 radians in a step."""
    precision = np.diag([400.0, 10.0, 1.0, 1.0])
    sampler = step_size.from_curvature(mclmc.build(0.1, 0.01), 0.5, every=1)
    target = Target(
        lambda position, seed: tf.nest.map_structure(
            lambda q, p: -q * p, position, pair(np.diag(precision))
        )
    )
    state = sampler.init(pair(np.ones(4)), target)
    state = sampler.step(state, target, SEED, Step(tf.constant(0), True))
    np.testing.assert_allclose(float(state.shared["step_size"]), 1 / 20, rtol=1e-6)
    length = np.linalg.norm(flat(state.elements["momentum"]))
    np.testing.assert_allclose(length, 2 / 20, rtol=1e-6)


def test_a_chain_that_forgets_all_of_its_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="below 1"):
        mclmc.update(
            mclmc.init(pair(np.zeros(4))), pair(np.ones(4)), SEED, step_size=0.1, momentum_decay=1.0
        )
