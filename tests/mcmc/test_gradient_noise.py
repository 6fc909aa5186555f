"""Estimated noise taken out of the injected noise: temperatures as a discrete Lyapunov equation
predicts them, for each integrator, where the noise fits and where it does not.

The model is that of tests/mcmc/test_minibatch_heating.py. A step is linear in (q, r), with the
gradient's noise n and the injected e::

    (q, r) <- A (q, r) + n b + e c

so the stationary second moments M solve M = A M A' + h^4 v b b' + Var(e) c c'.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc import Step, Target, adaptive_sghmc, gradient_estimators, sghmc
from gpflow_bae.mcmc.gradient_noise import noise_variance, with_estimated_noise_subtracted
from gpflow_bae.mcmc.step_size import from_curvature
from gpflow_bae.tracing import compiled

CHAINS = 20_000  # a second moment is known to sqrt(2 / 20,000), 1 %
SURE = 5.0 * np.sqrt(2.0 / CHAINS)
NUM = 20
_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.3, 1.7, NUM)
Y = 0.8 * X + _RNG.standard_normal(NUM)
PRECISION = 1.0 + np.sum(X**2)
MEAN = np.sum(X * Y) / PRECISION
INTEGRATORS = ("euler", "obabo", "baoab")


def variance_of_gradient(batch_size: int, moment: float) -> float:
    """Of minibatches drawn with replacement; ``moment`` is that of q."""
    rows = np.var(X * (Y - X * MEAN)) + np.var(X**2) * moment
    return NUM**2 / batch_size * rows


def step_of(integrator: str, w: float, a: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, b and c of a step, w = h^2 A: the sum of its parts, applied to unit vectors."""
    c = 1.0 - a

    def moved(q: float, r: float, n: float, e: float) -> tuple[float, float]:
        kick = n - w * q
        if integrator == "euler":
            r = c * r + kick + e
            return q + r, r
        if integrator == "obabo":
            r = c * (r + kick / 2) + e + kick / 2
            return q + r, r
        first = r + kick
        r = c * first + e
        return q + first / 2 + r / 2, r

    parts = np.array([moved(*unit) for unit in np.eye(4)]).T
    return parts[:, :2], parts[:, 2], parts[:, 3]


def moments(integrator: str, h: float, a: float, v: float, injected: float) -> np.ndarray:
    """Stationary [q, r] second moments at a precision of 1 per w, with r in units of h."""
    w = h**2 * PRECISION
    A, b, c = step_of(integrator, w, a)
    share = 2.0 * a if integrator == "euler" else a * (2.0 - a)
    noise = h**4 * v * np.outer(b, b) + share * injected * h**2 * np.outer(c, c)
    return scipy.linalg.solve_discrete_lyapunov(A, noise)


def injected_at(integrator: str, h: float, a: float, v: float) -> float:
    """T' of the docstring, at T = 1."""
    s = 1.0 / (2.0 * a) if integrator == "euler" else (2.0 - a) / (4.0 * a)
    return max(1.0 - h**2 * v * s, 0.0)


def predicted(
    integrator: str, h: float, a: float, batch_size: int, subtract: bool
) -> tuple[float, float, float]:
    """Precision times the variance of q, the mean of r^2 / h^2, and v."""
    moment, v, M = 1.0 / PRECISION, 0.0, np.zeros((2, 2))
    for _ in range(100):  # a contraction: v depends little on the moment
        v = variance_of_gradient(batch_size, moment)
        injected = injected_at(integrator, h, a, v) if subtract else 1.0
        M = moments(integrator, h, a, v, injected)
        moment = M[0, 0]
    return PRECISION * M[0, 0], M[1, 1] / h**2, v


def target_of(batch_size: int) -> Target:
    """Minibatches with replacement, for each chain its own."""
    x, y = (tf.constant(v, tf.float32) for v in (X, Y))

    def log_prior(theta: tf.Tensor) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(theta**2, -1)

    def log_likelihood(theta: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        residuals = tf.gather(y, rows) - tf.gather(x, rows) * theta
        return -0.5 * tf.reduce_sum(residuals**2, -1)

    estimate = gradient_estimators.minibatch(log_prior, log_likelihood, NUM, batch_axis=1)

    def rows(seed: tf.Tensor) -> tf.Tensor:
        own = tf.random.fold_in(seed, 1, alg="philox")
        return tf.random.stateless_uniform(
            [CHAINS, batch_size], own, maxval=NUM, dtype=tf.int32, alg="philox"
        )

    def both(theta: tf.Tensor, seed: tf.Tensor) -> Any:
        halves = tf.split(rows(seed), 2, axis=1)
        return gradient_estimators.of_halves(*(estimate(theta, half) for half in halves))

    return Target(lambda theta, seed: estimate(theta, rows(seed)), gradient_and_error=both)


def observed(sampler: Any, target: Target, start: tf.Tensor, steps: int = 250) -> Any:
    """The state of independent chains after they have settled."""

    @compiled
    def run() -> Any:
        def body(i: tf.Tensor, state: Any) -> Any:
            seed = tf.random.fold_in(tf.constant([0, 7]), i, alg="philox")
            return sampler.step(state, target, seed, Step(i, False))

        return repeat(steps, body, sampler.init(start, target))

    return run()


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize(("h", "a", "v"), [(0.06, 0.1, 20.0), (0.2, 0.4, 8.0), (0.1, 0.9, 50.0)])
def test_what_the_docstring_derives(integrator: str, h: float, a: float, v: float) -> None:
    """Against the Lyapunov equation: with the noise taken out, second moments are those without it,
    or for BAOAB those that are written there.
    """
    w = h**2 * PRECISION
    injected = injected_at(integrator, h, a, v)
    assert 0.0 < injected < 0.95
    found, exact = (moments(integrator, h, a, *pair) for pair in ((v, injected), (0.0, 1.0)))
    if integrator != "baoab":
        np.testing.assert_allclose(found, exact, rtol=1e-9)
        return
    heat = h**2 * v / (4.0 - w)
    position = injected + heat * (2.0 - a) / a
    momentum = injected + heat * 4.0 * (1.0 - a) ** 2 / (a * (2.0 - a))
    np.testing.assert_allclose(found[0, 0] * PRECISION, position, rtol=1e-9)
    np.testing.assert_allclose(found[1, 1] / h**2, momentum, rtol=1e-9)
    left = h**2 * v * (2.0 - a) / (4.0 * a) * w / (4.0 - w)
    np.testing.assert_allclose(position, 1.0 + left, rtol=1e-9)
    # Of a free particle, the shortfall that temperatures make up for.
    free = injected + h**2 * v * (1.0 - a) ** 2 / (a * (2.0 - a))
    shortfall = h**2 * v * (4.0 - 3.0 * a) / (4.0 * (2.0 - a))
    np.testing.assert_allclose(1.0 - free, shortfall, rtol=1e-9)


# Each has the least and most variance of q without the subtraction, over the posterior's.
CASES = [
    pytest.param(8, 0.1, 1.4, 1.8, id="fits"),
    pytest.param(2, 0.5, 1.2, 1.6, id="fits with a large friction"),
    pytest.param(2, 0.1, 3.0, 9.0, id="does not fit"),
]


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize(("batch_size", "a", "least", "most"), CASES)
def test_chains_have_the_variance_and_the_temperature_predicted(
    integrator: str, batch_size: int, a: float, least: float, most: float
) -> None:
    """With and without; where it fits the variance is the posterior's, to the bias of a step."""
    h = 0.06
    target, start = target_of(batch_size), tf.fill([CHAINS, 1], tf.constant(MEAN, tf.float32))
    plain = sghmc.build(h, a, integrator=integrator)
    variance, temperature, _ = predicted(integrator, h, a, batch_size, subtract=False)
    assert least < variance < most
    state = observed(plain, target, start)
    found = float(tf.reduce_mean((state.position - MEAN) ** 2)) * PRECISION
    assert found == pytest.approx(variance, rel=SURE)
    assert float(plain.temperatures(state)) == pytest.approx(temperature, rel=SURE)

    sampler = with_estimated_noise_subtracted(plain)
    variance, temperature, v = predicted(integrator, h, a, batch_size, subtract=True)
    state = observed(sampler, target, start)
    found = float(tf.reduce_mean((state.position - MEAN) ** 2)) * PRECISION
    assert found == pytest.approx(variance, rel=SURE)
    assert float(plain.temperatures(state)) == pytest.approx(temperature, rel=SURE)
    # Estimates of two hundred steps and more, over all chains.
    assert np.mean(noise_variance(state)) == pytest.approx(v, rel=0.01)
    told = float(sampler.temperatures(state))
    exact = moments(integrator, h, a, 0.0, 1.0)
    if injected_at(integrator, h, a, v) > 0.0:
        # BAOAB leaves h^2 v s h^2 A / (4 - h^2 A), 1 % here.
        left = 0.015 if integrator == "baoab" else 1e-6
        assert variance == pytest.approx(PRECISION * exact[0, 0], rel=left)
        assert told == pytest.approx(exact[1, 1] / h**2, rel=left + SURE)
    else:
        assert min(variance, told) > 1.5, "what does not fit is seen"


def test_halves_have_the_variance_of_the_whole() -> None:
    """Exactly, over all minibatches of 4 from 6 without replacement, or with."""
    gradients = np.random.default_rng(1).normal(size=[6, 2])

    def both(rows: Any, share: float) -> Any:
        halves = (6.0 * gradients[list(part)].mean(0) for part in (rows[:2], rows[2:]))
        return gradient_estimators.of_halves(*halves, share)

    for draws, share in (
        (itertools.permutations(range(6), 4), 4 / 6),
        (itertools.product(range(6), repeat=4), 0.0),
    ):
        pairs = np.array([both(rows, share) for rows in draws])  # [draws, 2, elements]
        np.testing.assert_allclose(pairs[:, 0].mean(0), gradients.sum(0))
        np.testing.assert_allclose(pairs[:, 1].mean(0), 0.0, atol=1e-12)
        deviation = pairs[:, 0] - gradients.sum(0)
        covariance = deviation.T @ deviation
        np.testing.assert_allclose(pairs[:, 1].T @ pairs[:, 1], covariance)
        np.testing.assert_allclose(deviation.T @ pairs[:, 1], 0.0, atol=1e-9 * covariance.max())
    with pytest.raises(ValueError, match="share_of_data, B / N, must be in"):
        gradient_estimators.of_halves(gradients, gradients, 1.2)


def test_errors_of_elements_that_go_together_are_left_over() -> None:
    """Of two elements with one error: their sum is hot, their difference cold, the mean at T."""
    h, a, v = 0.1, 0.2, 20.0

    def gradient_and_error(q: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        draws = tf.random.stateless_normal([2, CHAINS, 1], seed, alg="philox") * v**0.5
        return -q + draws[0], tf.broadcast_to(draws[1], [CHAINS, 2])

    target = Target(gradient_and_error=gradient_and_error)
    sampler = with_estimated_noise_subtracted(sghmc.build(h, a, integrator="obabo"))
    state = observed(sampler, target, tf.zeros([CHAINS, 2]))
    heat = h**2 * v * (2.0 - a) / (4.0 * a)
    r = state.elements["momentum"] / h
    along = tf.stack([r[:, 0] + r[:, 1], r[:, 0] - r[:, 1]], -1) / 2**0.5
    found = np.mean(along**2, 0)
    np.testing.assert_allclose(found, [1.0 + heat, 1.0 - heat], rtol=SURE)
    assert heat > 0.4
    assert float(sampler.temperatures(state)) == pytest.approx(1.0, abs=0.05)


def test_elements_and_leaves_have_their_own_and_no_error_changes_nothing() -> None:
    """A leaf at temperature 0 is optimised; one without error is that of the sampler alone."""
    errors = {"w": tf.constant([0.0, 2.0, 30.0], tf.float64), "b": tf.constant(4.0)}
    start = tf.nest.map_structure(tf.ones_like, errors)

    def uphill(q: Any, seed: Any) -> Any:
        return tf.nest.map_structure(tf.negative, q)

    target = Target(uphill, gradient_and_error=lambda q, seed: (uphill(q, seed), errors))
    plain = sghmc.build(0.1, 0.2)
    sampler = with_estimated_noise_subtracted(plain, 0.5)

    def cold(state: Any) -> Any:
        temperature = {"w": state.shared["temperature"]["w"], "b": tf.constant(0.0, tf.float64)}
        return state._replace(shared={**state.shared, "temperature": temperature})

    one, other = cold(sampler.init(start, target)), cold(plain.init(start, target))
    for i in range(3):
        at, seed = Step(tf.constant(i), False), tf.constant([3, i])
        before = other.elements["momentum"]["w"]
        one, other = sampler.step(one, target, seed, at), plain.step(other, target, seed, at)
        found = noise_variance(one)
        np.testing.assert_allclose(found["w"], [0.0, 4.0, 900.0], rtol=1e-12)  # from the first on
        np.testing.assert_allclose(found["b"], 16.0, rtol=1e-6)
        if i == 0:
            noise = other.elements["momentum"]["w"] + 0.01 * start["w"] - 0.8 * before
            less = one.elements["momentum"]["w"] + 0.01 * start["w"] - 0.8 * before
            np.testing.assert_allclose(less / noise, [1.0, 0.9**0.5, 0.0], atol=1e-9)
    assert one.position["w"][0] == other.position["w"][0] != one.position["w"][1]
    assert one.position["b"] == other.position["b"]
    tf.nest.assert_same_structure(one, cold(sampler.init(start, target)))


def test_what_it_cannot_go_with_is_refused() -> None:
    cases = [
        (adaptive_sghmc.build(), "not for adaptive_sghmc: it knows what gradient noise does"),
        (with_estimated_noise_subtracted(sghmc.build()), "not twice"),
        (from_curvature(sghmc.build()), "got step_size 'from_curvature"),
        (sghmc.build(temperature=lambda step: 1.0), "got temperature "),
    ]
    for sampler, message in cases:
        with pytest.raises(ValueError, match=message):
            with_estimated_noise_subtracted(sampler)
    for decay in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"decay, .* must be in \[0, 1\), got"):
            with_estimated_noise_subtracted(sghmc.build(), decay)  # type: ignore[arg-type]
    sampler = with_estimated_noise_subtracted(sghmc.build())
    state = sampler.init(tf.zeros([2]), Target())
    with pytest.raises(TypeError, match=r"target.gradient_and_error is None\): a minibatch has"):
        at = Step(tf.constant(0), False)
        sampler.step(state, Target(lambda q, seed: -q), tf.constant([0, 0]), at)
