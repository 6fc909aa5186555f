"""Targets of minibatches, with control variates for their gradients.

For a batch b and a position q = (parameters, codes), the estimate of the parameters' gradient is::

    g_b(q) - g_b(q0) + g(q0)

where q0 is the position at the start of the round and g the gradient of all data. The estimate is
unbiased, and its variance is the smaller, the closer q is to q0
(:mod:`gpflow_bae.mcmc.gradient_estimators`; q0 is set in every round as in Johnson and Zhang 2013).
Gradients of codes need no control variate, as a code's conditional is that of its own point. The
cost is two gradients of a batch in every step, and one of all data in every round.

Reference: Johnson, Zhang (2013). Accelerating stochastic gradient descent using predictive variance
reduction. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ...base import Batch
from ...mcmc import Target
from ...mcmc.calibrated.targets import Evaluation
from ..chain_state import Point

__all__ = ["Reference", "batch_target", "controlled"]

LogDensityGradient = Callable[[Point, Batch, tf.Tensor], Point]
"""Takes a position, a batch and the seed of a prior's draws."""


class Reference(NamedTuple):
    """The position at the start of a round, and the parameters' gradient of all data there."""

    position: Point  # in the model's own coordinates; codes of all items, or of a batch's
    full: tuple[tf.Tensor, ...]
    batch: Batch | None = None  # with the neighbours' codes at that position, if batches have them


def controlled(here: Point, there: Point, reference: Reference) -> Point:
    """Return the gradient of a batch, corrected by the control variate.

    :param here: gradient of a batch at a position.
    :param there: gradient of the same batch (and the same draws) at ``reference.position``.
    """
    parts = zip(here.parameters, there.parameters, reference.full, strict=True)
    return here._replace(parameters=tuple(g - g0 + full for g, g0, full in parts))


def batch_target(
    log_density_gradient: LogDensityGradient,
    evaluate: Callable[[Point], Evaluation],
    batch: Batch,
    reference: Reference | None = None,
) -> Target:
    """Make the gradient and density oracles of a minibatch.

    :param log_density_gradient: the gradient of the log posterior, estimated from a batch.
    :param evaluate: log densities, which the target has only if the batch is all data.
    :param reference: the start of the round, with codes of the batch's items; None for gradients
        without control variates.
    """

    def gradient(position: Point, seed: tf.Tensor) -> Point:
        here = log_density_gradient(position, batch, seed)
        if reference is None:
            return here
        seen = batch if reference.batch is None else reference.batch
        return controlled(here, log_density_gradient(reference.position, seen, seed), reference)

    return Target(gradient, evaluate if batch.scale == 1.0 else None)
