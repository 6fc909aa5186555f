"""The loop over a sampler's steps, in the preconditioner's coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..mcmc import SamplingAlgorithm, State, Step, Target
from .coordinates import target_in
from .loops import repeat

__all__ = ["sampler_steps"]


def sampler_steps(
    sampler: SamplingAlgorithm,
    state: State,
    target_of: Callable[[tf.Tensor], Target],
    seed: tf.Tensor,
    first: tf.Tensor,
    adapt: tf.Tensor,
    num_steps: int,
    coordinates: Any = None,
) -> State:
    """Take steps of a sampler.

    :param state: at natural values, as what is returned.
    :param target_of: the target of step i of these, such as that of its minibatch.
    :param seed: of which step i has ``fold_in(seed, i)``.
    :param first: int32, steps of the chain before these.
    :param adapt: bool, whether the sampler may adapt.
    :param coordinates: linear ones, fixed during these steps, in which they are made; None for
        natural values.
    """
    if coordinates is not None:
        state = state._replace(position=coordinates.from_natural(state.position))

    def body(i: tf.Tensor, state: State) -> State:
        target = target_of(i)
        if coordinates is not None:
            target = target_in(coordinates, target)
        step_seed = tf.random.fold_in(seed, i, alg="philox")
        return sampler.step(state, target, step_seed, Step(first + i, adapt))

    state = repeat(num_steps, body, state)
    if coordinates is not None:
        state = state._replace(position=coordinates.to_natural(state.position))
    return state
