"""Kinetic temperatures averaged over steps.

The temperature of a single number at a single step is a chi-squared variable of one degree of
freedom, whose standard deviation is 1.4 times its mean. A mean over n steps is worth about n a
independent draws, as momenta decorrelate in 1 / a steps with friction a.
"""

from __future__ import annotations

import tensorflow as tf

from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target
from gpflow_bae.mcmc.types import Position, Seed

__all__ = ["with_mean_temperatures"]

_SUM, _COUNT = "temperature_sum", "temperature_count"


def with_mean_temperatures(sampler: SamplingAlgorithm, period: int) -> SamplingAlgorithm:
    """Return a sampler with mean temperatures since the last multiple of ``period`` steps.

    A sampler without temperatures is unchanged.

    >>> from gpflow_bae.mcmc import sghmc
    >>> sampler = with_mean_temperatures(sghmc.build(0.1, 0.2, integrator="baoab"), period=500)
    >>> state, target = sampler.init(tf.zeros([]), Target()), Target(lambda q, seed: -q)
    >>> for i in range(500):
    ...     state = sampler.step(state, target, tf.constant([0, i]), Step(tf.constant(i), False))
    >>> bool(abs(sampler.temperatures(state) - 1.0) < 0.6)  # about a hundred draws
    True
    """

    def init(position: Position, target: Target) -> State:
        state = sampler.init(position, target)
        found = sampler.temperatures(state)
        if found is None:
            return state
        nothing = tf.nest.map_structure(tf.zeros_like, found)
        return state._replace(shared={**state.shared, _SUM: nothing, _COUNT: tf.constant(0)})

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        state = sampler.step(state, target, seed, at)
        if _SUM not in state.shared:
            return state
        begins = tf.equal(tf.math.floormod(at.number, period), 0)
        # All leaves are stacked, because each operation on a single number costs as much.
        before, now = (
            tf.stack(tf.nest.flatten(t)) for t in (state.shared[_SUM], sampler.temperatures(state))
        )
        sums = tf.unstack(tf.where(begins, now, before + now), num=before.shape[0])
        total = tf.nest.pack_sequence_as(state.shared[_SUM], sums)
        # The count is part of the state, because a vectorised loop needs all variables per chain.
        count = tf.where(begins, 0, state.shared[_COUNT])
        return state._replace(shared={**state.shared, _SUM: total, _COUNT: count + 1})

    def temperatures(state: State) -> Position | None:
        if _SUM not in state.shared:
            return sampler.temperatures(state)
        count = tf.cast(state.shared[_COUNT], tf.float64)
        return tf.nest.map_structure(lambda t: tf.math.divide_no_nan(t, count), state.shared[_SUM])

    return sampler._replace(init=init, step=step, temperatures=temperatures)
