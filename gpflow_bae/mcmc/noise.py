"""Standardised noise from stateless seeds: eager, graph and XLA draw the same numbers.

Naming Philox is not enough for that. With ``alg="philox"`` TensorFlow 2.21 gives the same random
*bits* (and bounded integers) inside and outside of XLA, but other uniforms and normals: there XLA
makes its floats of the bits in its own way, and so does a GPU. (A seed that is a constant of the
graph hides this, as the draw is then folded before XLA sees it.) Everything here is therefore made
of the bits by arithmetic that is ours. What is left is rounding of log, sin and cos.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from gpflow_bae.mcmc.types import Position, Seed

__all__ = [
    "KINDS",
    "check_noise",
    "item_noise",
    "noise_like",
    "noise_of_items",
    "split",
    "standard_noise",
    "uniform",
]

KINDS = ("gaussian", "binomial")

_ALGORITHM = "philox"
_PHILOX = tf.random.Algorithm.PHILOX.value
_SCRAMBLING = np.array([0x02461E293EC8F720], np.uint64)
_ZERO = np.zeros(1, np.uint64)


def standard_noise(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...],
    seed: Seed,
    dtype: tf.DType = tf.float32,
    kind: str = "gaussian",
) -> tf.Tensor:
    r"""Independent numbers with mean 0 and variance 1.

    ``"gaussian"``: standard normal (Box and Muller 1958), within +- 6.8 in float32 (9.5 in
    float64).

    ``"binomial"``: (B - 16) / sqrt(8), where B counts the ones among 32 random bits. Mean 0,
    variance 1, third moment 0, kurtosis 2.9375 (a normal: 3); it takes 33 values, within +- 5.66.
    A scheme for a stochastic differential equation converges weakly at first order with any
    increments whose first three moments match the normal's, and at second order if the fourth
    and fifth match too (Kloeden and Platen 1992, section 14): the fourth is 2 per cent short here.
    SGHMC's scheme is of first order anyway, and on a Gaussian target, where it is linear, its
    stationary means and covariances depend on mean and variance alone: they are the same.

    770,000 float32 numbers in a ``tf.function`` on 2 CPU cores took 6.4 ms as Gaussian, 3.8 ms as
    binomial (1.7 times cheaper; 2.6 ms of both are Philox's bits), and 7.5 ms from
    ``tf.random.stateless_normal``.

    :param shape: shape of the result.
    :param seed: two integers, to be used once.
    :param dtype: a floating type.
    :param kind: ``"gaussian"`` or ``"binomial"``.
    :raises ValueError: if ``kind`` is neither.
    """
    check_noise(kind)
    if kind == "gaussian":
        return _box_muller(shape, seed, dtype)
    ones = tf.cast(tf.raw_ops.PopulationCount(x=_bits(shape, seed, tf.uint32)), dtype)
    return (ones - 16) * math.sqrt(1 / 8)


_items: contextvars.ContextVar[tuple[int, int, int, int] | None] = contextvars.ContextVar(
    "items", default=None
)


@contextlib.contextmanager
def noise_of_items(start: int, stop: int, total: int, axis: int) -> Iterator[None]:
    """Inside, :func:`item_noise` draws what items ``start`` to ``stop`` of ``total`` have.

    So items that are shared among replicas have the numbers that they have in one.

    :param axis: of the items, counted from the last one: -1, -2, ...
    """
    token = _items.set((start, stop, total, axis))
    try:
        yield
    finally:
        _items.reset(token)


def item_noise(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType = tf.float32
) -> tf.Tensor:
    """Standard normals that belong to items, such as rows or tasks.

    :param shape: shape of the result.
    """
    items = _items.get()
    if items is None:
        return standard_noise(shape, seed, dtype)
    start, stop, total, axis = items
    known = tf.get_static_value(shape) if tf.is_tensor(shape) else shape
    parts = tf.unstack(shape) if known is None else [int(n) for n in known]
    parts[axis] = total
    drawn = standard_noise(tf.stack(parts) if known is None else tuple(parts), seed, dtype)
    return tf.gather(drawn, tf.range(start, stop), axis=drawn.shape.rank + axis)


def check_noise(kind: str) -> None:
    """Refuse a kind of noise that is not one of :data:`KINDS`."""
    if kind not in KINDS:
        raise ValueError(f"noise must be one of {KINDS}, got {kind!r}.")


def _bits(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...] | list, seed: Seed, dtype: tf.DType
) -> tf.Tensor:
    """What ``tf.random.stateless_uniform`` gives for all integers, in a third of its operations.

    A round draws for every leaf of a position, and its graph is traced and optimised in time that
    grows with their number.
    """
    # TensorFlow's scrambling of a seed, with which split and fold_in go on making seeds.
    scrambled = tf.bitcast(
        tf.reshape(_philox([4], _SCRAMBLING, tf.cast(seed, tf.uint64), tf.uint32), [2, 2]),
        tf.uint64,
    )
    key, counter = tf.split(scrambled, 2)
    return _philox(shape, key, tf.concat([_ZERO, counter], 0), dtype)


def _philox(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...] | list,
    key: tf.Tensor | np.ndarray,
    counter: tf.Tensor,
    dtype: tf.DType,
) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=dtype
    )


def _box_muller(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType
) -> tf.Tensor:
    """Two normals of each pair of uniforms."""
    static_shape = tf.get_static_value(shape) if tf.is_tensor(shape) else shape
    if static_shape is not None:
        shape = [int(n) for n in static_shape]
        size = math.prod(shape)
    else:
        size = tf.reduce_prod(shape)
    is_double = tf.as_dtype(dtype) == tf.float64
    compute, integer, num_bits = (
        (tf.float64, tf.uint64, 64) if is_double else (tf.float32, tf.uint32, 32)
    )
    bits = tf.unstack(tf.cast(_bits([2, (size + 1) // 2], seed, integer), compute))
    # Half a unit is added so that log sees no 0; near 1 it is rounded away, and log gives 0.
    uniform = bits[0] * 2.0**-num_bits + 2.0 ** -(num_bits + 1)
    angle = bits[1] * (2 * math.pi * 2.0**-num_bits)
    radius = tf.sqrt(-2 * tf.math.log(uniform))
    normals = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    if static_shape is None or size % 2:
        normals = normals[:size]
    return tf.cast(tf.reshape(normals, shape), dtype)


def uniform(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType = tf.float64
) -> tf.Tensor:
    """Independent uniforms on (0, 1), of 32 random bits each: never 0 or, in float64, 1."""
    return (tf.cast(_bits(shape, seed, tf.uint32), dtype) + 0.5) * 2.0**-32


def split(seed: Seed, n: int = 2) -> tf.Tensor:
    """``n`` independent seeds, [n, 2], from one; unstack along the first axis."""
    return tf.random.split(seed, num=n, alg=_ALGORITHM)


def noise_like(position: Position, seed: Seed, kind: str = "gaussian") -> Position:
    """Standard noise with the structure, shapes and dtypes of ``position``; a seed per leaf."""
    leaves = tf.nest.flatten(position)
    seeds = tf.unstack(split(seed, len(leaves)), num=len(leaves))
    draws = [
        standard_noise(
            leaf.shape if leaf.shape.is_fully_defined() else tf.shape(leaf), s, leaf.dtype, kind
        )
        for leaf, s in zip(leaves, seeds, strict=True)
    ]
    return tf.nest.pack_sequence_as(position, draws)
