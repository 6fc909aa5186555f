"""Random minibatches of items, drawn inside a compiled function."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["draw_indices", "random_integers"]

# With more items than this a permutation in every step would take longer than the step itself.
_MANY = 8192


def random_integers(shape: TensorType, seed: TensorType) -> tf.Tensor:
    """Draw integers from 0 to 2**31 - 2, which are the same in XLA and in a plain graph.

    Floats of one seed differ between the two.
    """
    return tf.random.stateless_uniform(
        shape, seed, minval=0, maxval=2**31 - 1, dtype=tf.int32, alg="philox"
    )


def _draw_progression(num_items: int, batch_size: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw ``batch_size`` distinct items in a time that does not depend on the number of items.

    They are an arithmetic progression modulo N, from a random start, with a stride drawn from
    primes that do not divide N. Every item is equally likely, so sums are unbiased.
    """
    strides = np.array([p for p in _primes(num_items // 3, 1000) if num_items % p])
    draws = tf.cast(random_integers([2], seed), tf.int64)
    stride = tf.gather(tf.constant(strides, tf.int64), draws[1] % len(strides))
    steps = tf.range(batch_size, dtype=tf.int64)
    items = tf.cast((draws[0] % num_items + steps * stride) % num_items, tf.int32)
    return tf.sort(items)  # ordered rows of a table larger than the caches are gathered faster


def _primes(least: int, count: int) -> list[int]:
    """Return the first ``count`` primes that are at least ``least``."""
    stop = 2 * least + 40 * count
    sieve = np.ones(stop, dtype=bool)
    sieve[:2] = False
    for p in range(2, int(stop**0.5) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    found = np.flatnonzero(sieve)
    return found[found >= least][:count].tolist()


def draw_indices(num_items: int, batch_size: int | None, seed: tf.Tensor) -> tf.Tensor | None:
    """Draw a random subset of items without replacement; None for all of them."""
    if batch_size is None or batch_size == num_items:
        return None
    if num_items > _MANY:
        return _draw_progression(num_items, batch_size, seed)
    keys = random_integers([num_items], seed)
    # The smallest keys in order, the first of equal ones, as a stable sort would return them.
    return tf.math.top_k(-keys, batch_size).indices
