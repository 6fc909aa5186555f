"""Loop over a sampler's steps, in the coordinates of a preconditioner."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ...mcmc import SamplingAlgorithm, State, Step, Target
from ...mcmc.noise import fold_in
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

    :param state: state in the model's own coordinates, as is the result.
    :param target_of: returns the target of step i, such as that of its minibatch.
    :param seed: step i has the seed ``fold_in(seed, i)``.
    :param first: number of the first step, and whether the sampler may adapt.
    :param preconditioning: map from the coordinates of the steps to the model's; None for steps in
        the model's own.
    """
    if preconditioning is not None:
        state = state._replace(position=preconditioning.inverse(state.position))

    def body(i: tf.Tensor, state: State) -> State:
        target = target_of(i)
        if preconditioning is not None:
            target = preconditioning.target(target)
        step_seed = fold_in(seed, i)
        return sampler.step(state, target, step_seed, first._replace(number=first.number + i))

    state = repeat(num_steps, body, state)
    if preconditioning is not None:
        state = state._replace(position=preconditioning.forward(state.position))
    return state
