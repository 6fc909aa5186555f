"""Compiled loops over posterior samples, in chunks that fit memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import tensorflow as tf

from ..core.tracing import compiled
from ..data.memory import check_bytes

__all__ = [
    "ALL",
    "MEMORY_PER_CALL",
    "ChainAfterChain",
    "SampleLoop",
    "blocks",
    "chain_after_chain",
    "log_add_exp",
]

# Bytes of samples and results that one compiled call holds on the device. Intermediates of one
# sample come on top; the loop is sequential, so they do not grow with the number of samples.
MEMORY_PER_CALL = 2**28


ALL = slice(None)
"""Selects all samples."""


class ChainAfterChain:
    """Lazy view [C S, ...], chain after chain, of samples [C, S, ...].

    A memory-mapped array may be larger than memory, so it is not copied to this order.
    """

    def __init__(self, values: np.ndarray, dtype: Any = None, numbers: range | None = None):
        """
        :param dtype: type that samples are converted to when read; None for their own.
        :param numbers: indices of samples among the C S; None for all.
        """
        self._values = values
        self._numbers = range(values.shape[0] * values.shape[1]) if numbers is None else numbers
        self.dtype = np.dtype(values.dtype if dtype is None else dtype)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, rows: slice) -> ChainAfterChain: ...

    @overload
    def __getitem__(self, rows: int | Sequence[int] | np.ndarray) -> np.ndarray: ...

    def __getitem__(self, rows: Any) -> Any:
        """Return a lazy view for a slice, an array for indices."""
        if isinstance(rows, slice):
            return ChainAfterChain(self._values, self.dtype, self._numbers[rows])
        numbers = np.asarray(self._numbers)[rows]
        chains, samples = np.divmod(numbers, self._values.shape[1])
        return np.asarray(self._values[chains, samples]).astype(self.dtype, copy=False)


def chain_after_chain(values: np.ndarray, dtype: Any = None) -> np.ndarray | ChainAfterChain:
    """Flatten samples [C, S, ...] to [C S, ...], lazily if they are memory-mapped.

    :param dtype: type that they are converted to; None for their own.
    """
    if isinstance(values, np.memmap):
        return ChainAfterChain(values, dtype)
    flat = values.reshape(-1, *values.shape[2:])
    return flat if dtype is None else flat.astype(dtype, copy=False)


class SampleLoop:
    """A compiled loop of ``function(*sample, *shared, **options)`` over posterior samples.

    :meth:`map` stacks the results on the host, :meth:`sum` and :meth:`log_sum_exp` reduce them on
    the device. Each is compiled once per shape; samples are split into chunks of equal length to
    avoid retracing for the last one. The values and results of a chunk fit into
    :data:`MEMORY_PER_CALL` bytes.

    It can be pickled if the function can; compiled functions are dropped and compiled again.
    """

    def __init__(self, function: Callable[..., Any]):
        """
        :param function: takes the values of one sample, shared arguments, and options that are
            Python values; it returns a tensor, or a tuple of tensors.
        """
        self.__setstate__({"_function": function})

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": self._function}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._function = state["_function"]
        self._map = compiled(self._mapped)
        self._joined = compiled(self._join)

    def map(
        self, samples: Any, *shared: Any, dtypes: Any, result_bytes: int = 0, **options: Any
    ) -> Any:
        """Return stacked results [S, ...] as arrays, in the structure that the function returns.

        :param samples: nested arrays [S, ...], one row for each sample, or results of
            :func:`chain_after_chain`.
        :param dtypes: types of the results, in their structure.
        :param result_bytes: size of the result of one sample.
        """
        total = len(tf.nest.flatten(samples)[0])
        check_bytes(
            float(total) * result_bytes,
            f"What is asked for of each of {total} posterior samples needs",
            "Ask for fewer points or draws at a time, or of a thinned bank.",
        )
        parts = []
        for rows, count in _chunks(samples, result_bytes):
            found = self._map(_take(samples, rows), shared, dtypes, options)
            parts.append(tf.nest.map_structure(lambda v, n=count: v.numpy()[:n], found))
        return tf.nest.map_structure(lambda *v: v[0] if len(v) == 1 else np.concatenate(v), *parts)

    def sum(self, samples: Any, *shared: Any, zeros: Any, **options: Any) -> Any:
        """Return the sum of the results over samples, as arrays.

        :param samples: as in :meth:`map`.
        :param zeros: initial values with the shapes and types of the results: zeros, or the sum
            over earlier samples.
        """
        return self._fold(tf.add, zeros, samples, shared, options)

    def log_sum_exp(self, samples: Any, *shared: Any, start: Any, **options: Any) -> Any:
        """Return the log-sum-exp of the results over samples, as arrays.

        :param samples: as in :meth:`map`.
        :param start: initial values with the shapes and types of the results: minus infinity, or
            the log-sum-exp over earlier samples.
        """
        return self._fold(log_add_exp, start, samples, shared, options)

    def _fold(self, join: Any, start: Any, samples: Any, shared: Any, options: Any) -> Any:
        total = tf.nest.map_structure(tf.constant, start)
        for rows, count in _chunks(samples):
            part = _take(samples, rows)
            total = self._joined(join, total, tf.constant(count), part, shared, options)
        return tf.nest.map_structure(lambda v: v.numpy(), total)

    def _mapped(self, samples: Any, shared: Any, dtypes: Any, options: Any) -> Any:
        return tf.map_fn(
            lambda sample: self._function(*sample, *shared, **options),
            samples,
            fn_output_signature=dtypes,
            parallel_iterations=1,
        )

    def _join(
        self,
        join: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        total: Any,
        count: tf.Tensor,
        samples: Any,
        shared: Any,
        options: Any,
    ) -> Any:
        def body(i: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
            sample = tf.nest.map_structure(lambda v: v[i], samples)
            result = self._function(*sample, *shared, **options)
            return i + 1, tf.nest.map_structure(join, total, result)

        start = (tf.constant(0), total)
        return tf.while_loop(lambda i, _: i < count, body, start, parallel_iterations=1)[1]


def log_add_exp(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return log(exp(one) + exp(other)), of minus infinities too."""
    return tf.reduce_logsumexp(tf.stack([one, other]), 0)


def blocks(count: int, bytes_of_each: int) -> Iterator[slice]:
    """Yield slices of ``count`` samples that each fit into :data:`MEMORY_PER_CALL` bytes."""
    length = _length(count, bytes_of_each)
    for start in range(0, count, length):
        yield slice(start, min(start + length, count))


def _length(count: int, bytes_of_each: int) -> int:
    """Return the length of the fewest equal parts that :data:`MEMORY_PER_CALL` allows."""
    return math.ceil(count / math.ceil(count / max(1, MEMORY_PER_CALL // max(1, bytes_of_each))))


def _chunks(samples: Any, result_bytes: int = 0) -> Iterator[tuple[np.ndarray, int]]:
    """Yield sample indices of each chunk, padded with the last one, and the unpadded length."""
    leaves = tf.nest.flatten(samples)
    total = len(leaves[0])
    length = _length(total, result_bytes + sum(int(leaf[0].nbytes) for leaf in leaves))
    for start in range(0, total, length):
        rows = np.minimum(np.arange(start, start + length), total - 1)
        yield rows, min(length, total - start)


def _take(samples: Any, rows: np.ndarray) -> Any:
    def take(values: Any) -> tf.Tensor:
        whole = len(rows) == len(values) and isinstance(values, np.ndarray)
        return tf.constant(values if whole else values[rows])

    return tf.nest.map_structure(take, samples)
