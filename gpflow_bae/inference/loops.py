"""Loops inside a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["repeat"]


def repeat(
    num_steps: int | tf.Tensor,
    body: Callable[[tf.Tensor, Any], Any],
    initial: Any,
) -> Any:
    """Repeat ``state = body(i, state)`` for i = 0, ..., ``num_steps`` - 1 in one ``tf.while_loop``.

    The loop is written out, because AutoGraph would convert every function that the body calls,
    which takes longer than tracing it.
    """
    if isinstance(num_steps, int) and num_steps == 1:
        # An inner loop starts again in every iteration of the outer one, which takes 0.8 ms when
        # each step of a sampler has its own minibatch.
        return body(tf.constant(0), initial)

    _, state = tf.while_loop(
        lambda i, _: i < num_steps,
        lambda i, state: (i + 1, body(i, state)),
        (tf.constant(0), initial),
        maximum_iterations=num_steps,
        parallel_iterations=1,
    )
    return state
