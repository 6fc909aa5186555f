"""What a sampler may ask while it sees a batch: gradients, their error, and densities of all data.

The gradient of parameters is as the batch has it, or less its error where the round began
(:mod:`gpflow_bae.inference.control_variates`). The error of either is seen in the batch's halves,
whose backward passes cost together about what that of the batch does. Draws that a prior makes are
the halves' own, so what they contribute is seen too. Codes have no error, since a code's
conditional is that of its own item, and it is in one of the halves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..base import Batch
from ..data import Observations
from ..mcmc import Target
from ..mcmc.gradient_estimators import of_halves
from ..mcmc.targets import Evaluation
from .chain_state import Point
from .control_variates import Reference, controlled

__all__ = ["batch_target"]

LogDensityGradient = Callable[[Point, Batch, tf.Tensor], Point]
"""Takes a position, a batch and the seed of a prior's draws."""


def batch_target(
    log_density_gradient: LogDensityGradient,
    evaluate: Callable[[Point], Evaluation],
    data: Observations,
    batch: Batch,
    reference: Reference | None = None,
    scale_codes: bool = False,
) -> Target:
    """The target of one batch.

    :param log_density_gradient: the gradient of the log posterior, estimated from a batch.
    :param evaluate: log densities, which are those of all data where the batch is.
    :param data: of which ``batch`` holds some items, or all.
    :param reference: where the round began, with codes of the batch's items; None for gradients
        without control variates.
    :param scale_codes: whether gradients of codes carry N/B.
    """

    def estimate(
        position: Point, batch: Batch, reference: Reference | None, seed: tf.Tensor
    ) -> Point:
        here = log_density_gradient(position, batch, seed)
        if reference is None:
            return here
        seen = batch if reference.batch is None else reference.batch
        there = log_density_gradient(reference.position, seen, seed)
        return controlled(here, there, reference)

    def gradient(position: Point, seed: tf.Tensor) -> Point:
        return estimate(position, batch, reference, seed)

    def gradient_and_error(position: Point, seed: tf.Tensor) -> tuple[Point, Point]:
        items, found = tf.split(batch.indices, 2), []
        for number, indices in enumerate(items):
            own = None
            if reference is not None:
                own = reference._replace(position=_half(reference.position, number, data.axis))
            half_seed = tf.random.fold_in(seed, number, alg="philox")
            half = _half(position, number, data.axis)
            found.append(estimate(half, data.gather(indices), own, half_seed))
        first, second = (g.parameters for g in found)
        parameters, errors = of_halves(first, second, 1.0 / batch.scale)
        codes, of_codes = (), ()
        if tf.is_tensor(position.codes):
            codes = tf.concat([g.codes for g in found], data.axis)
            # N/B of a half is twice that of the batch.
            codes = 0.5 * codes if scale_codes else codes
            of_codes = tf.zeros_like(codes)
        return Point(parameters, codes), Point(errors, of_codes)

    # Of a minibatch there is no density of all data, and of all data there is no error.
    seen = 0 if batch.indices is None or batch.scale == 1.0 else batch.indices.shape[0]
    has_halves = seen > 0 and seen % 2 == 0
    return Target(
        gradient,
        evaluate if batch.scale == 1.0 else None,
        gradient_and_error if has_halves else None,
    )


def _half(position: Point, number: int, axis: int) -> Point:
    """With the codes of one half of the items, if codes are sampled."""
    codes: Any = position.codes
    if not tf.is_tensor(codes):
        return position
    return position._replace(codes=tf.split(codes, 2, axis)[number])
