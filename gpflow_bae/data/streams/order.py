"""Order of the rows of shards: a function of seed and epoch, which can start at any row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..minibatches import random_integers
from .shards import Chunk, Shards

__all__ = ["Order"]

_SHARDS_AT_ONCE = 16
_SHARDS_STREAM, _ROWS_STREAM = 0x5A, 0x5B  # folded into the seed


class Order(NamedTuple):
    """Consecutive epochs of all rows, each in a new random order.

    Shards are read in random order, sixteen at a time, by a chunk of each in turn; rows are then
    shuffled within windows of ``shuffle`` consecutive rows, which are held in memory. An epoch has
    every row once. Without shuffling rows come in the order of the files.
    """

    shards: Shards
    num_points: int
    shuffle: int  # rows that are shuffled together; 0 for no shuffling
    counts: np.ndarray | None  # [S], number of rows of each shard; None if unknown

    @property
    def window(self) -> int:
        """Number of rows of a window."""
        return min(self.shuffle or 4096, self.num_points)

    @property
    def num_windows(self) -> int:
        """Number of windows of an epoch; the last one may be smaller."""
        return -(-self.num_points // self.window)

    def rows_from(self, seed: tf.Tensor, row: int) -> tf.data.Dataset:
        """Return an infinite dataset of windows, starting at row ``row`` of the first epoch.

        :param seed: [2].
        """
        epoch, offset = divmod(row, self.num_points)
        following = tf.data.Dataset.range(epoch + 1, np.iinfo(np.int64).max).flat_map(
            lambda number: self._epoch(seed, number)
        )
        if offset == 0:
            return self._epoch(seed, tf.constant(epoch, tf.int64)).concatenate(following)
        return self._rest(seed, epoch, offset).concatenate(following)

    def _rest(self, seed: tf.Tensor, epoch: int, offset: int) -> tf.data.Dataset:
        """Return the rest of an epoch from a row; earlier shards are skipped if sizes are known."""
        numbers = self._order_of_shards(seed, tf.constant(epoch, tf.int64)).numpy()
        window = offset // self.window
        left, skipped = window * self.window, 0
        size = _SHARDS_AT_ONCE if self.shuffle else 1
        while self.counts is not None:
            rows = int(self.counts[numbers[skipped : skipped + size]].sum())
            if rows > left or skipped + size >= len(numbers):
                break
            left, skipped = left - rows, skipped + size
        chunks = _drop_rows(self._chunks(tf.constant(numbers[skipped:])), left)
        windows = self._windows(chunks, seed, tf.constant(epoch, tf.int64), window)
        return _drop_rows(windows, offset - window * self.window)

    def _epoch(self, seed: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        return self._windows(self._chunks(self._order_of_shards(seed, epoch)), seed, epoch, 0)

    def _order_of_shards(self, seed: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        count = len(self.shards.names)
        if not self.shuffle:
            return tf.range(count, dtype=tf.int64)
        return tf.cast(_permutation(count, _fold(seed, _SHARDS_STREAM, epoch)), tf.int64)

    def _chunks(self, numbers: tf.Tensor) -> tf.data.Dataset:
        """Return the chunks of shards, interleaved within groups of shards."""
        numbers = tf.data.Dataset.from_tensor_slices(numbers)
        if not self.shuffle:
            return numbers.flat_map(self.shards.chunks)
        return numbers.batch(_SHARDS_AT_ONCE).flat_map(
            lambda group: tf.data.Dataset.from_tensor_slices(group).interleave(
                self.shards.chunks, cycle_length=_SHARDS_AT_ONCE, block_length=1
            )
        )

    def _windows(
        self, chunks: tf.data.Dataset, seed: tf.Tensor, epoch: tf.Tensor, first: int
    ) -> tf.data.Dataset:
        """Return shuffled windows of the rows, numbered from ``first`` in the epoch."""

        def window(number: tf.Tensor, rows: Chunk) -> Chunk:
            size = tf.minimum(self.num_points - number * self.window, self.window)
            checks = [tf.debugging.assert_equal(tf.shape(rows[-1], tf.int64)[0], size)]
            if self.counts is None:
                wrong = tf.reduce_any(tf.math.is_inf(rows[-1]))
                if len(rows) > 1:
                    wrong |= tf.reduce_any(~tf.math.is_finite(rows[0]))
                checks.append(tf.debugging.assert_equal(wrong, False))
            with tf.control_dependencies(checks):
                if not self.shuffle:
                    return tuple(tf.identity(v) for v in rows)
                row_seed = _fold(_fold(seed, _ROWS_STREAM, epoch), 0, number)
                order = _permutation(tf.shape(rows[-1])[0], row_seed)
            return tuple(tf.gather(v, order) for v in rows)

        windows = chunks.rebatch(self.window).enumerate(first).map(window)
        return windows.apply(tf.data.experimental.assert_cardinality(self.num_windows - first))


def _fold(seed: tf.Tensor, what: int, number: tf.Tensor) -> tf.Tensor:
    """Fold a constant and a number into a seed."""
    seed = tf.random.fold_in(seed, what, alg="philox")
    return tf.random.fold_in(seed, tf.cast(number, tf.int32), alg="philox")


def _permutation(count: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw a permutation of 0, ..., ``count`` - 1; the sort is stable for equal keys."""
    return tf.argsort(random_integers(tf.reshape(count, [1]), seed), stable=True)


def _drop_rows(chunks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Drop the first ``count`` rows of a dataset of chunks."""
    if count == 0:
        return chunks

    def cut(left: tf.Tensor, rows: Chunk) -> tuple[tf.Tensor, Chunk]:
        gone = tf.minimum(left, tf.shape(rows[-1], tf.int64)[0])
        return left - gone, tuple(v[gone:] for v in rows)

    cut_chunks = chunks.scan(tf.constant(count, tf.int64), cut)
    return cut_chunks.filter(lambda *rows: tf.shape(rows[-1])[0] > 0)
