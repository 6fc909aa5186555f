"""Targets of minibatches, whose gradients may lack their own error where a round began.

Of a batch b, position q = (parameters, codes), and where the round began, q0::

    g_b(q) - g_b(q0) + g(q0)

for the parameters, where g is the gradient of all data: unbiased, and the less variable the less q
has moved from q0 (:mod:`gpflow_bae.mcmc.gradient_estimators`; q0 anew in every round as in Johnson
and Zhang 2013). Codes have no such error: a code's conditional is that of its own point. It costs
two gradients of a batch in every step, and one of all data in every round.

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
    """Where a round began, and the parameters' gradient of all data there."""

    position: Point  # natural values; codes of all items, or of those of a batch
    full: tuple[tf.Tensor, ...]
    batch: Batch | None = None  # with the codes of neighbours there, where a batch brings these


def controlled(here: Point, there: Point, reference: Reference) -> Point:
    """The estimate of a batch, corrected.

    :param here: gradient of a batch at a position.
    :param there: of the same batch (and the same draws) at ``reference.position``.
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
    :param evaluate: log densities, which are those of all data where the batch is; offered for
        that batch alone.
    :param reference: where the round began, with codes of the batch's items; None for gradients
        without control variates.
    """

    def gradient(position: Point, seed: tf.Tensor) -> Point:
        here = log_density_gradient(position, batch, seed)
        if reference is None:
            return here
        seen = batch if reference.batch is None else reference.batch
        return controlled(here, log_density_gradient(reference.position, seen, seed), reference)

    return Target(gradient, evaluate if batch.scale == 1.0 else None)
