"""Gradients of minibatches less their own error where a round began.

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

from typing import NamedTuple

import tensorflow as tf

from ..base import Batch
from .chain_state import Point

__all__ = ["Reference", "controlled"]


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
