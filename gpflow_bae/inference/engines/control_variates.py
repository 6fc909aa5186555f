"""Control variates for the gradients of minibatches.

For a batch b and a position q = (parameters, codes), the estimate of the parameters' gradient is::

    g_b(q) - g_b(q0) + g(q0)

where q0 is the position at the start of the round, as in Johnson and Zhang (2013), and g the
gradient of all data. The estimate is unbiased. Its variance is zero at q0, and grows with the
squared distance from it; far away it exceeds that of the plain estimate (Baker et al. 2019,
section 3). For a likelihood with the same curvature for each datum it is zero everywhere.
Gradients of codes need no control variate, as a code's conditional is that of its own point. The
cost is two gradients of a batch in every step, and one of all data in every round.

References:

- Johnson, Zhang (2013). Accelerating stochastic gradient descent using predictive variance
  reduction. NeurIPS.
- Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient MCMC. Statistics
  and Computing 29.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...base import Batch
from ..chain_state import Point

__all__ = ["Reference", "controlled"]


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
