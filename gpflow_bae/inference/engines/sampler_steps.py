"""The loop over a sampler's steps, in the coordinates of a preconditioner."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ...mcmc import SamplingAlgorithm, State, Step, Target
from ..loops import repeat
from ..preconditioning import PointMap

__all__ = ["sampler_steps"]


def sampler_steps(
    sampler: SamplingAlgorithm,
    state: State,
    target_of: Callable[[tf.Tensor], Target],
    seed: tf.Tensor,
    first: Step,
    num_steps: int,
    preconditioning: PointMap | None = None,
) -> State:
    """Take steps of a sampler.

    :param state: at natural values, as what is returned.
    :param target_of: the target of step i of these, such as that of its minibatch.
    :param seed: of which step i has ``fold_in(seed, i)``.
    :param first: number of the first of them, and whether the sampler may adapt.
    :param preconditioning: the map of the coordinates in which steps are made; None for natural
        values.
    """
    if preconditioning is not None:
        state = state._replace(position=preconditioning.inverse(state.position))

    def body(i: tf.Tensor, state: State) -> State:
        target = target_of(i)
        if preconditioning is not None:
            target = preconditioning.target(target)
        step_seed = tf.random.fold_in(seed, i, alg="philox")
        return sampler.step(state, target, step_seed, first._replace(number=first.number + i))

    state = repeat(num_steps, body, state)
    if preconditioning is not None:
        state = state._replace(position=preconditioning.forward(state.position))
    return state
