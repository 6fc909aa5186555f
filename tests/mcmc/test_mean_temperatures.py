"""Temperatures over the steps of a round: plain means, begun anew with each round."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from gpflow_bae.mcmc import sghmc, sgld
from gpflow_bae.mcmc.algorithm import State, Step, Target
from gpflow_bae.mcmc.mean_temperatures import with_mean_temperatures

TARGET = Target(lambda position, seed: tf.nest.map_structure(tf.negative, position))


def chain(sampler: object, steps: int) -> list[State]:
    state = sampler.init((tf.zeros([3]), tf.zeros([])), TARGET)  # type: ignore[attr-defined]
    states = []
    for i in range(steps):
        at = Step(tf.constant(i), False)
        state = sampler.step(state, TARGET, tf.constant([1, i]), at)  # type: ignore[attr-defined]
        states.append(state)
    return states


def test_means_over_the_steps_of_a_round() -> None:
    plain = sghmc.build(0.3, 0.5)
    averaged = with_mean_temperatures(plain, 4)
    single = [plain.temperatures(s) for s in chain(plain, 10)]
    for number, state in enumerate(chain(averaged, 10)):
        begin = number - number % 4
        expected = [np.mean(part) for part in zip(*single[begin : number + 1], strict=True)]
        np.testing.assert_allclose(averaged.temperatures(state), expected, rtol=1e-12)


def test_the_chain_is_the_same() -> None:
    plain = sghmc.build(0.3, 0.5)
    for a, b in zip(chain(plain, 5), chain(with_mean_temperatures(plain, 2), 5), strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, a.position, b.position)


def test_a_sampler_without_momenta_stays_what_it_is() -> None:
    sampler = with_mean_temperatures(sgld.build(0.1), 4)
    (state,) = chain(sampler, 1)
    assert sampler.temperatures(state) is None
    assert set(state.shared) == set(sgld.build(0.1).init(tf.zeros([]), TARGET).shared)
