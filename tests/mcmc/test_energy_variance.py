"""Energy errors of microcanonical Langevin: their order, their variance, and who may ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.tracing import compiled
from gpflow_bae.mcmc import Step, Target, mclmc, sghmc
from gpflow_bae.mcmc.algorithm import State
from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.energy_variance import energy_error, from_energy_variance
from gpflow_bae.mcmc.noise import fold_in, standard_noise

D = 40
PRECISION = np.geomspace(1.0, 30.0, D)


def quartic(position: Any) -> tf.Tensor:
    """Not Gaussian, so that no error is small by chance; the position is a pair."""
    q = tf.concat([position[0], tf.reshape(position[1], [-1])], 0)
    return -tf.reduce_sum(0.5 * PRECISION * q**2 + 0.1 * q**4)


def target() -> Target:
    evaluate = targets.target(quartic)

    def gradient(position: Any, seed: Any) -> Any:
        return evaluate(position).tempered_gradient

    return Target(gradient, evaluate)


def start(sampler: Any) -> State:
    q = np.random.default_rng(0).normal(size=D) / np.sqrt(PRECISION)
    return sampler.init((tf.constant(q[:10]), tf.constant(q[10:].reshape(3, 10))), target())


def steps(sampler: Any, state: State, number: int, adapt: bool, first: int = 0) -> Any:
    """The state after some steps, and (dE)^2 / d of each."""

    @compiled
    def run(state: State) -> Any:
        errors = tf.TensorArray(tf.float64, number)

        def body(i: tf.Tensor, state: State, errors: tf.TensorArray) -> Any:
            seed = tf.stack([5, i])
            at = Step(first + i, tf.constant(adapt))
            after = sampler.step(state, target(), seed, at)
            error, d = energy_error(state, after, target(), seed)
            return i + 1, after, errors.write(i, error**2 / d)

        loop = (tf.constant(0), state, errors)
        _, state, errors = tf.while_loop(lambda i, *_: i < number, body, loop)
        return state, errors.stack()

    return run(state)


def test_the_error_of_a_step_is_of_third_order() -> None:
    """Half the step, an eighth of the error; without noise the path is that of the dynamics."""
    found = []
    for h in (0.02, 0.01):
        sampler = mclmc.build(h, 1e-12)
        state = start(sampler)
        # The same direction for both.
        noise = np.random.default_rng(1).normal(size=D)
        momentum = h * np.sqrt(D) * noise / np.linalg.norm(noise)
        pieces = (tf.constant(momentum[:10]), tf.constant(momentum[10:].reshape(3, 10)))
        state = state._replace(elements={**state.elements, "momentum": pieces})
        after = sampler.step(state, target(), tf.constant([1, 2]), Step(tf.constant(0), False))
        error, d = energy_error(state, after, target(), tf.constant([1, 2]))
        assert float(d) == D
        found.append(float(error))
    np.testing.assert_allclose(found[0] / found[1], 8.0, rtol=0.1)


def test_gradients_alone_have_the_same_error() -> None:
    """Simpson's rule is exact for densities of fourth order, such as this one."""
    sampler = mclmc.build(0.1, 0.1)
    state, seed = start(sampler), tf.constant([1, 2])
    after = sampler.step(state, target(), seed, Step(tf.constant(0), False))
    both = [energy_error(state, after, t, seed)[0] for t in (target(), Target(target().gradient))]
    np.testing.assert_allclose(float(both[1]), float(both[0]), rtol=1e-9)


def test_noise_of_gradients_limits_the_turn_of_a_step() -> None:
    """On a standard Gaussian |g|^2 is about (1 + c) d, so h is about 1.2 (d - 1) / (d (1 + c)^1/2).

    In few dimensions the energy alone would let the step be twice as large.
    """
    d, c = 10, 15.0
    noisy = Target(
        lambda q, seed: -q + np.sqrt(c) * standard_noise([d], fold_in(seed, 9), tf.float64)
    )
    sampler = from_energy_variance(mclmc.build(0.1, 0.1), 0.5, every=1, isotropic_noise=True)
    state, sizes = sampler.init(tf.zeros([d], tf.float64), noisy), []
    step = compiled(
        lambda s, i: sampler.step(s, noisy, tf.stack([5, i]), Step(i, tf.constant(True)))
    )
    for i in range(400):
        state = step(state, tf.constant(i))
        sizes.append(float(state.shared["step_size"]))
    limit = 1.2 * (d - 1) / (d * np.sqrt(1.0 + c))
    np.testing.assert_allclose(np.median(sizes[100:]), limit, rtol=0.15)


@pytest.mark.parametrize("desired", [1e-3, 0.1])
def test_the_variance_of_the_error_becomes_what_was_asked_for(desired: float) -> None:
    """After burn-in, with the step size that stays; a mean of 2,000 correlated squares.

    The variance grows with the sixth power of the step size: one that is 8 per cent off, as 1,500
    steps of burn-in may leave it, is 60 per cent of the variance.
    """
    sampler = from_energy_variance(mclmc.build(0.001, 0.01), desired, every=1)
    state, _ = steps(sampler, start(sampler), 1500, adapt=True)
    h = float(state.shared["step_size"])
    assert 0.005 < h < 1.0
    after, errors = steps(sampler, state, 2000, adapt=False, first=1500)
    assert float(after.shared["step_size"]) == h
    np.testing.assert_allclose(np.mean(errors), desired, rtol=0.6)
    np.testing.assert_allclose(sampler.info(after)["energy_variance"], desired, rtol=0.05)


def test_steps_that_explore_end_with_burn_in() -> None:
    """The variance is 0.5 in burn-in and 0.02 after it, and the step size changes once."""
    sampler = from_energy_variance(mclmc.build(0.001, 0.01), 0.02, every=1, exploring=0.5)
    state, errors = steps(sampler, start(sampler), 1500, adapt=True)
    np.testing.assert_allclose(np.mean(errors[1000:]), 0.5, rtol=0.6)
    h = float(state.shared["step_size"])
    after, errors = steps(sampler, state, 2000, adapt=False, first=1500)
    np.testing.assert_allclose(np.mean(errors), 0.02, rtol=0.6)
    found = float(after.shared["step_size"])
    np.testing.assert_allclose(found, h * (0.02 / 0.5) ** (1 / 6), rtol=1e-12)
    lengths = [
        np.sqrt(sum(np.sum(np.square(m)) for m in tf.nest.flatten(s.elements["momentum"])))
        for s in (state, after)
    ]
    np.testing.assert_allclose(lengths[1] / lengths[0], found / h, rtol=1e-9)


def test_leaves_at_rest_are_no_dimensions() -> None:
    """With the second leaf at temperature 0 the error is that of the first alone."""
    sampler = mclmc.build(0.1, 0.1)
    state = start(sampler)
    cold = (tf.constant(1.0, tf.float64), tf.constant(0.0, tf.float64))
    state = state._replace(shared={**state.shared, "temperature": cold})
    seed = tf.constant([3, 4])
    after = sampler.step(state, target(), seed, Step(tf.constant(0), False))
    error, d = energy_error(state, after, target(), seed)

    def alone(position: Any) -> tf.Tensor:
        return -tf.reduce_sum(0.5 * PRECISION[:10] * position**2 + 0.1 * position**4)

    evaluate = targets.target(alone)
    own = Target(lambda position, _: evaluate(position).tempered_gradient, evaluate)
    first = lambda s: State(s.position[0], {"momentum": s.elements["momentum"][0]}, {})  # noqa: E731
    expected, size = energy_error(first(state), first(after), own, seed)
    assert (float(d), float(size)) == (10.0, 10.0)
    np.testing.assert_allclose(float(error), float(expected), rtol=1e-10)


def test_a_step_that_is_not_finite_is_taken_back_with_a_smaller_one() -> None:
    """A wall where the density ends: the chain stays on its side."""

    def density(position: Any) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(position) - position)

    evaluate = targets.target(density)
    walled = Target(lambda position, _: evaluate(position).tempered_gradient, evaluate)
    sampler = from_energy_variance(mclmc.build(3.0, 0.1), 0.01, every=1)
    state = sampler.init(tf.ones([20], tf.float64), walled)
    sizes = []
    for i in range(12):
        state = sampler.step(state, walled, tf.constant([2, i]), Step(tf.constant(i), True))
        assert np.all(np.isfinite(state.position)) and np.all(state.position > 0.0)
        sizes.append(float(state.shared["step_size"]))
    assert sizes[0] == pytest.approx(2.0) and sizes[-1] < 0.5


def test_who_may_ask() -> None:
    with pytest.raises(ValueError, match="for mclmc, whose energy is known; sghmc takes"):
        from_energy_variance(sghmc.build(0.1, 0.1))
    with pytest.raises(ValueError, match="temperature 1 alone, got a sampler with temperature 0.5"):
        from_energy_variance(mclmc.build(temperature=0.5))
    with pytest.raises(ValueError, match="needs a number as the step_size of mclmc"):
        from_energy_variance(mclmc.build(step_size=lambda number: 0.1))
    with pytest.raises(ValueError, match="is found already \\(by energy variance, desired 0.1\\)"):
        from_energy_variance(from_energy_variance(mclmc.build(), 0.1))
    with pytest.raises(ValueError, match="must be positive"):
        from_energy_variance(mclmc.build(), -1.0)
    with pytest.raises(ValueError, match="every, in steps"):
        from_energy_variance(mclmc.build(), every=0)
    with pytest.raises(ValueError, match="exploring must be at least the desired variance of 0.1"):
        from_energy_variance(mclmc.build(), 0.1, exploring=0.05)
    sampler = from_energy_variance(mclmc.build(0.1))
    state = sampler.init(tf.zeros([3]), target())
    with pytest.raises(ValueError, match="density of all data.*: take full batches"):
        sampler.step(
            state, Target(lambda q, _: -q), tf.constant([0, 0]), Step(tf.constant(0), True)
        )
