"""Which items a step sees: random subsets, drawn inside a compiled function."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ["draw_indices"]

# Above so many items a fresh permutation would take longer than the step that it is for.
_MANY = 8192


def _draw_progression(num_items: int, batch_size: int, seed: tf.Tensor) -> tf.Tensor:
    """``batch_size`` distinct items in a time that does not depend on how many there are.

    An arithmetic progression modulo N, from a random start, by a stride drawn from primes that do
    not divide N: every item is as likely, which is all that an unbiased sum needs.
    """
    strides = np.array([p for p in _primes(num_items // 3, 1000) if num_items % p])
    draws = tf.random.stateless_uniform(
        [2], seed, minval=0, maxval=2**31 - 1, dtype=tf.int32, alg="philox"
    )
    draws = tf.cast(draws, tf.int64)
    stride = tf.gather(tf.constant(strides, tf.int64), draws[1] % len(strides))
    steps = tf.range(batch_size, dtype=tf.int64)
    items = tf.cast((draws[0] % num_items + steps * stride) % num_items, tf.int32)
    return tf.sort(items)  # rows of a table too large for caches are found faster in their order


def _primes(least: int, count: int) -> list[int]:
    """The first ``count`` primes from ``least`` on."""
    stop = 2 * least + 40 * count
    sieve = np.ones(stop, dtype=bool)
    sieve[:2] = False
    for p in range(2, int(stop**0.5) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    found = np.flatnonzero(sieve)
    return found[found >= least][:count].tolist()


def draw_indices(num_items: int, batch_size: int | None, seed: tf.Tensor) -> tf.Tensor | None:
    """A random subset of items without replacement, or None for all of them."""
    if batch_size is None or batch_size == num_items:
        return None
    if num_items > _MANY:
        return _draw_progression(num_items, batch_size, seed)
    # Integer keys, because floats of one seed differ between XLA and a plain graph.
    keys = tf.random.stateless_uniform(
        [num_items], seed, minval=0, maxval=2**31 - 1, dtype=tf.int32, alg="philox"
    )
    # The smallest keys in order, of equal ones the first: a part of what a whole sort would find.
    return tf.math.top_k(-keys, batch_size).indices
