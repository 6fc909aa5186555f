"""Evaluation of functions of rows in blocks, sequentially or in threads."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tqdm.auto import tqdm

__all__ = ["ROWS", "are_many", "in_threads", "over_blocks", "sum_over_blocks"]

ROWS = 16_384
"""Largest number of rows in a block."""

_LEAST_ROWS = 256
# Values of a block. The system clears the memory of much larger arrays whenever one is made, which
# took a third of the time for thousands of columns.
_VALUES = 2**22
_MOST_THREADS = 8


def in_threads(
    function: Callable[..., Any], arguments: Sequence[Sequence[Any]], bar: str | None = None
) -> list[Any]:
    """Return results in the order of the arguments, from one thread per core, at most eight.

    :param bar: label of a progress bar; None for no bar.
    """
    count = min(len(arguments), os.cpu_count() or 1, _MOST_THREADS)
    shown: dict[str, Any] = {
        "total": len(arguments),
        "desc": bar,
        "disable": bar is None,
        "leave": False,
    }
    if count <= 1:
        return [function(*each) for each in tqdm(arguments, **shown)]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(tqdm(pool.map(lambda each: function(*each), arguments), **shown))


def are_many(values: Any) -> bool:
    """Return whether values [..., N, K] have more rows than a block; False if N is unknown."""
    number = values.shape[-2]
    return number is not None and number > ROWS


def _sliceable(values: Any) -> Any:
    """Convert values to a tensor, except None and :class:`~gpflow_bae.data.CompressedRows`."""
    is_kept = values is None or isinstance(values, tf.experimental.ExtensionType)
    return values if is_kept else tf.convert_to_tensor(values)


def _rows_of_block(values: Sequence[Any]) -> int:
    widest = max(v.shape[-1] or 1 for v in values if v is not None)
    return min(ROWS, max(_LEAST_ROWS, _VALUES // widest))


def _block(values: Sequence[Any], i: tf.Tensor) -> list[Any]:
    """Return the i-th block of rows of values [..., N, K]; None stays None."""
    size = _rows_of_block(values)
    start = i * size
    return [None if v is None else v[..., start : start + size, :] for v in values]


def _number_of_rows(values: Sequence[Any]) -> int:
    return next(int(v.shape[-2]) for v in values if v is not None)


def _number_of_blocks(values: Sequence[Any]) -> int:
    return -(-_number_of_rows(values) // _rows_of_block(values))


def over_blocks(
    function: Callable[..., Sequence[tf.Tensor]], values: Sequence[Any]
) -> tuple[tf.Tensor, ...]:
    """Compute ``function(*values)`` block by block, for a function of each row independently.

    :param function: function of blocks of the values that returns a sequence of tensors
        [..., n, J].
    :param values: tensors [..., N, K], or :class:`~gpflow_bae.data.CompressedRows`, with N known;
        or None.
    :return: the tensors for all rows [..., N, J].
    """
    values = [_sliceable(v) for v in values]
    number, count = _number_of_rows(values), _number_of_blocks(values)
    first = function(*_block(values, tf.constant(0)))  # for types and shapes
    ranks = [v.shape.rank for v in first]
    arrays = [
        tf.TensorArray(v.dtype, count, infer_shape=False, clear_after_read=True) for v in first
    ]

    def rows_first(v: tf.Tensor) -> tf.Tensor:
        rank = v.shape.rank
        return tf.transpose(v, [rank - 2, *range(rank - 2), rank - 1])

    def body(i: tf.Tensor, arrays: Any) -> Any:
        found = function(*_block(values, i))
        return i + 1, [a.write(i, rows_first(v)) for a, v in zip(arrays, found, strict=True)]

    arrays = [a.write(0, rows_first(v)) for a, v in zip(arrays, first, strict=True)]
    _, arrays = tf.while_loop(
        lambda i, _: i < count, body, (tf.constant(1), arrays), parallel_iterations=1
    )
    found = []
    for array, rank, like in zip(arrays, ranks, first, strict=True):
        joined = tf.transpose(array.concat(), [*range(1, rank - 1), 0, rank - 1])
        # A static number of rows, so that later functions also process them in blocks.
        joined.set_shape([*like.shape[:-2], number, like.shape[-1]])
        found.append(joined)
    return tuple(found)


def sum_over_blocks(
    function: Callable[..., Sequence[tf.Tensor]], values: Sequence[Any]
) -> tuple[tf.Tensor, ...]:
    """Sum ``function(*values)`` over blocks of rows.

    :param function: function of blocks of the values that returns a sequence of tensors, of the
        same shapes for each block.
    :param values: as in :func:`over_blocks`.
    """
    values = [_sliceable(v) for v in values]
    count = _number_of_blocks(values)
    first = tuple(function(*_block(values, tf.constant(0))))

    def body(i: tf.Tensor, total: Any) -> Any:
        found = function(*_block(values, i))
        return i + 1, tuple(a + b for a, b in zip(total, found, strict=True))

    start = (tf.constant(1), first)
    return tf.while_loop(lambda i, _: i < count, body, start, parallel_iterations=1)[1]
