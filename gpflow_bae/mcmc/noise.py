"""Standardised noise from stateless seeds, with the same numbers in eager mode, graphs and XLA.

The Philox algorithm is not sufficient for that. With ``alg="philox"`` TensorFlow 2.21 has the same
random *bits* (and bounded integers) inside and outside of XLA, but other uniforms and normals,
because XLA, and GPUs, convert bits to floats differently. (A seed that is a constant of the
graph hides this, as the draw is then folded before XLA compiles it.) Everything here is therefore
computed from the bits by explicit arithmetic, up to rounding of log, sin and cos.
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
    "fold_in",
    "item_noise",
    "noise_like",
    "noise_of_items",
    "split",
    "standard_noise",
    "uniform",
]

KINDS = ("gaussian", "binomial")

_PHILOX = tf.random.Algorithm.PHILOX.value
_SCRAMBLING = np.array([0x02461E293EC8F720], np.uint64)
_ZERO = np.zeros(1, np.uint64)
_SMALL = 4096  # numbers, whose computation takes about as long as the overhead of a draw


def standard_noise(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...],
    seed: Seed,
    dtype: tf.DType = tf.float32,
    kind: str = "gaussian",
) -> tf.Tensor:
    r"""Draw independent numbers with mean 0 and variance 1.

    ``"gaussian"``: standard normal (Box and Muller 1958), within +- 6.8 in float32 (9.5 in
    float64).

    ``"binomial"``: (B - 8) / 2, where B counts the ones among 16 random bits. Mean 0, variance 1,
    third moment 0, kurtosis 2.875 (a normal: 3); it takes 17 values, within +- 4. A scheme for a
    stochastic differential equation converges weakly at first order with any increments whose
    first three moments match the normal's, and at second order if the fourth and fifth match too
    (Kloeden and Platen 1992, section 14): the fourth is 4 per cent short here. SGHMC's scheme is
    of first order in any case, and on a Gaussian target, where it is linear, its stationary means
    and covariances depend on mean and variance alone: they are the same.

    Most time is spent on Philox's bits, which TensorFlow draws on one thread; binomial noise needs
    half as many.

    :param shape: shape of the result.
    :param seed: two integers, used once.
    :param dtype: a floating type.
    :param kind: ``"gaussian"`` or ``"binomial"``.
    :raises ValueError: if ``kind`` is neither.
    """
    check_noise(kind)
    if kind == "gaussian":
        return _box_muller(shape, seed, dtype)
    return _binomial(shape, seed, dtype)


_items: contextvars.ContextVar[tuple[int, int, int, int] | None] = contextvars.ContextVar(
    "items", default=None
)


@contextlib.contextmanager
def noise_of_items(start: int, stop: int, total: int, axis: int) -> Iterator[None]:
    """Make :func:`item_noise` draw the noise of items ``start`` to ``stop`` of ``total``.

    The noise of items is then the same whether they are sharded over replicas or not.

    :param axis: axis of the items, counted from the last: -1, -2, ...
    """
    token = _items.set((start, stop, total, axis))
    try:
        yield
    finally:
        _items.reset(token)


def item_noise(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType = tf.float32
) -> tf.Tensor:
    """Draw standard normals for items, such as rows or tasks; see :func:`noise_of_items`.

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
    """Raise a ValueError for a kind of noise that is not one of :data:`KINDS`."""
    if kind not in KINDS:
        raise ValueError(f"noise must be one of {KINDS}, got {kind!r}.")


def _bits(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...] | list, seed: Seed, dtype: tf.DType
) -> tf.Tensor:
    """Draw full-range integers as ``tf.random.stateless_uniform``, with a third of the operations.

    A round draws for every leaf of a position, and the time to trace and optimise its graph grows
    with the number of operations.
    """
    # TensorFlow's scrambling of a seed.
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


def _binomial(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType
) -> tf.Tensor:
    """Draw binomial noise, two numbers from each word of 32 bits."""
    shape, size, is_static = _static_size(shape)
    words = _bits([(size + 1) // 2], seed, tf.uint32)
    ones = tf.raw_ops.PopulationCount(x=tf.reshape(tf.bitcast(words, tf.uint16), [-1]))
    if not is_static or size % 2:
        ones = ones[:size]
    return (tf.cast(tf.reshape(ones, shape), dtype) - 8) * 0.5


def _static_size(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...],
) -> tuple[list[int] | tf.Tensor, int | tf.Tensor, bool]:
    """Return a shape, its number of elements, and whether that is static."""
    static_shape = tf.get_static_value(shape) if tf.is_tensor(shape) else shape
    if static_shape is None:
        return shape, tf.reduce_prod(shape), False
    sizes = [int(n) for n in static_shape]
    return sizes, math.prod(sizes), True


def _box_muller(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType
) -> tf.Tensor:
    """Draw normals, two from each pair of uniforms."""
    shape, size, is_static = _static_size(shape)
    is_double = tf.as_dtype(dtype) == tf.float64
    compute, integer, num_bits = (
        (tf.float64, tf.uint64, 64) if is_double else (tf.float32, tf.uint32, 32)
    )
    bits = tf.unstack(tf.cast(_bits([2, (size + 1) // 2], seed, integer), compute))
    # Half a unit is added to avoid log(0); near 1 it is rounded away, and log is 0.
    uniform = bits[0] * 2.0**-num_bits + 2.0 ** -(num_bits + 1)
    angle = bits[1] * (2 * math.pi * 2.0**-num_bits)
    radius = tf.sqrt(-2 * tf.math.log(uniform))
    normals = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    if not is_static or size % 2:
        normals = normals[:size]
    return tf.cast(tf.reshape(normals, shape), dtype)


def uniform(
    shape: tf.TensorShape | tf.Tensor | tuple[int, ...], seed: Seed, dtype: tf.DType = tf.float64
) -> tf.Tensor:
    """Draw independent uniforms on (0, 1) from 32 random bits: never 0 or, in float64, 1."""
    return (tf.cast(_bits(shape, seed, tf.uint32), dtype) + 0.5) * 2.0**-32


def split(seed: Seed, n: int = 2) -> tf.Tensor:
    """Return ``n`` independent seeds [n, 2] from one, as ``tf.random.split``."""
    return _bits([n, 2], seed, tf.int32)


def fold_in(seed: Seed, number: int | tf.Tensor) -> tf.Tensor:
    """Return a seed [2] made of a seed and an integer, as ``tf.random.fold_in``."""
    return tf.stack([_bits([], seed, tf.int32), tf.cast(number, tf.int32)])


def noise_like(position: Position, seed: Seed, kind: str = "gaussian") -> Position:
    """Draw independent standard noise with the structure, shapes and dtypes of ``position``.

    Small leaves of one dtype are slices of one draw, because a draw has a dozen operations, and a
    position may have dozens of leaves.
    """
    leaves = tf.nest.flatten(position)
    seeds = tf.unstack(split(seed, len(leaves)), num=len(leaves))
    draws: list[tf.Tensor | None] = [None] * len(leaves)
    small: dict[tf.DType, list[int]] = {}
    for i, leaf in enumerate(leaves):
        if leaf.shape.is_fully_defined() and leaf.shape.num_elements() <= _SMALL:
            small.setdefault(leaf.dtype, []).append(i)
        else:
            shape = leaf.shape if leaf.shape.is_fully_defined() else tf.shape(leaf)
            draws[i] = standard_noise(shape, seeds[i], leaf.dtype, kind)
    for dtype, members in small.items():
        sizes = [leaves[i].shape.num_elements() for i in members]
        joint = standard_noise([sum(sizes)], seeds[members[0]], dtype, kind)
        for i, piece in zip(members, tf.split(joint, sizes), strict=True):
            draws[i] = tf.reshape(piece, leaves[i].shape)
    return tf.nest.pack_sequence_as(position, draws)
