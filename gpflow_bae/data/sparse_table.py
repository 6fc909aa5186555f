"""Observations as triplets (row, column, value), for tables with mostly missing entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..base import Batch, Cells, VariationalModel
from ..core.annotations import check_arguments
from ..core.arguments import as_array, as_numbers
from ..core.files import digest
from .minibatches import random_integers
from .model_checks import check_items, check_support

__all__ = ["SparseTable"]

_ENTRIES = 0xE7


class SparseTable:
    """A table stored by its observed entries, used instead of ``(X, Y)``.

    A minibatch is a set of rows with up to ``max_entries`` observed entries each. If a row has
    more, a random contiguous part of them (in an order shuffled once) represents all of them, with
    a weight that makes the sum unbiased. Memory and time are proportional to the entries.
    """

    X = None
    neighbours = None
    axis = 1  # rows are points of a single task

    @check_arguments(max_entries=1)
    def __init__(
        self,
        rows: TensorType,
        columns: TensorType,
        values: TensorType,
        num_rows: int | None = None,
        num_columns: int | None = None,
        max_entries: int = 64,
        seed: int = 0,
        allow_empty_columns: bool = False,
    ):
        """
        :param rows, columns: integers [K], from 0.
        :param values: [K], finite.
        :param num_rows, num_columns: N and P; by default one more than the largest index.
        :param max_entries: E, maximal number of observed entries of a row in a minibatch.
        :param seed: seed of the order of a row's entries.
        :param allow_empty_columns: allow columns without entries, for new rows of a fitted model.
        :raises ValueError: for lengths that differ, an index out of range, values that are not
            finite, a pair (row, column) that occurs twice, or a row or column without entries.
        """
        rows, columns = as_array(rows, "rows"), as_array(columns, "columns")
        values = as_numbers(values, "values", np.float32, rank=1)
        if not rows.shape == columns.shape == values.shape == (len(values),) or not len(values):
            raise ValueError(
                "rows, columns and values must be vectors of the same length, not empty, got "
                f"shapes {rows.shape}, {columns.shape} and {values.shape}."
            )
        sizes = []
        for name, index, size in (("rows", rows, num_rows), ("columns", columns, num_columns)):
            if not np.issubdtype(index.dtype, np.integer):
                raise ValueError(f"{name} must be integers, got {index.dtype}.")
            size = int(index.max()) + 1 if size is None else int(size)
            wrong = np.flatnonzero((index < 0) | (index >= size))
            if wrong.size:
                raise ValueError(
                    f"{name}[{wrong[0]}] is {index[wrong[0]]}, out of range for {size} {name}: "
                    "indices count from 0."
                )
            empty = np.flatnonzero(np.bincount(index, minlength=size) == 0)
            if empty.size and not (name == "columns" and allow_empty_columns):
                raise ValueError(
                    f"{name} {empty[:10].tolist()}{'...' if empty.size > 10 else ''} have no "
                    "observation; drop them and number the others anew."
                )
            sizes.append(size)
        if not np.isfinite(values).all():
            first = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"values[{first}] is {values[first]}; leave out what is not observed.")
        self.num_items, self.num_outputs = sizes
        cells = rows.astype(np.int64) * self.num_outputs + columns
        distinct, first, counts = np.unique(cells, return_index=True, return_counts=True)
        if len(distinct) < len(cells):
            twice = first[np.argmax(counts > 1)]
            raise ValueError(
                f"The cell (row {rows[twice]}, column {columns[twice]}) occurs "
                f"{counts.max()} times; merge its values."
            )
        self.max_entries = int(min(max_entries, np.bincount(rows).max()))
        order = np.random.default_rng(seed).permutation(len(values))
        order = order[np.argsort(rows[order], kind="stable")]
        lengths = np.bincount(rows, minlength=self.num_items)
        # Interleaved, because a large table exceeds the caches and each gather is a cache miss.
        starts = np.cumsum(lengths) - lengths
        self._rows = tf.constant(np.stack([starts, lengths], 1), tf.int32)
        bits = values[order].view(np.int32)
        self._entries = tf.constant(np.stack([columns[order], bits], 1), tf.int32)

    @property
    def num_points(self) -> int:
        """Number of rows N."""
        return self.num_items

    @property
    def num_seen(self) -> int:
        """Number of rows with an observation, which are all N."""
        return self.num_items

    def triplets(self) -> dict[str, np.ndarray]:
        """Return ``rows``, ``columns`` and ``values`` [K] of all entries, row after row."""
        rows = np.repeat(np.arange(self.num_items), self._rows[:, 1].numpy())
        columns, bits = np.ascontiguousarray(self._entries.numpy().T)
        return {"rows": rows, "columns": columns, "values": bits.view(np.float32)}

    def reader(
        self, batch_size: int | None, batches: int, seed: Sequence[int], model: Any = None
    ) -> None:
        """Return None: minibatches of data in memory are drawn in the graph of a step."""

    def describe(self) -> dict[str, Any]:
        """Return sizes and a digest of the entries in their order, to check resumed runs.

        Another order of entries changes the digest, because steps may draw other entries of a row.
        """
        shape = [self.num_items, self.num_outputs, len(self._entries), self.max_entries]
        return {"shape": shape, "digest": digest(self._rows, self._entries)}

    def check(self, model: Any, batch_size: int | None) -> None:
        """Check that a model has the same columns and does not need complete rows.

        :raises ValueError: if it does not, or for a batch size out of range.
        """
        sees_cells = isinstance(model, VariationalModel) and model.splits_over_outputs
        if not sees_cells or model.is_amortized:
            raise ValueError(
                "A SparseTable is for GPLVMs with free-form codes: an encoder network wants "
                f"complete rows, and {type(model).__name__} has one. Give (None, Y) instead."
            )
        if model.decoder.output_dim != self.num_outputs:
            raise ValueError(
                f"The model has output_dim = {model.decoder.output_dim}, the table "
                f"{self.num_outputs} columns."
            )
        entries = self.triplets()
        check_support(model, entries["values"], name="values", columns=entries["columns"])
        check_items(model, self.num_items)
        if batch_size is not None and not 1 <= batch_size <= self.num_items:
            raise ValueError(
                f"batch_size must lie between 1 and the {self.num_items} rows, got {batch_size}."
            )

    def gather(
        self,
        indices: tf.Tensor | None,
        columns: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
    ) -> Batch:
        """Return entries Y [1, B, E] of rows ``indices [B]`` (None for all), and their columns.

        :param seed: seed for drawing entries of rows with more than E; None takes the first E.
        """
        E, num_rows = self.max_entries, self.num_items
        rows = tf.range(num_rows) if indices is None else indices
        starts, lengths = tf.unstack(tf.gather(self._rows, rows), axis=1)
        offsets = tf.zeros_like(lengths)
        if seed is not None:
            # A separate seed: entries correlated with the noise of the codes would bias the sum.
            own_seed = tf.random.fold_in(seed, _ENTRIES, alg="philox")
            offsets = random_integers(tf.shape(rows), own_seed) % lengths
        steps = tf.range(E)[None]
        positions = starts[:, None] + (offsets[:, None] + steps) % lengths[:, None]
        present = steps < lengths[:, None]
        taken = tf.cast(tf.minimum(lengths, E), tf.float32)
        weights = tf.cast(lengths, tf.float32) / taken
        scale = 1.0 if indices is None else num_rows / indices.shape[0]
        columns, bits = tf.unstack(tf.gather(self._entries, positions), axis=2)
        return Batch(
            None,
            tf.bitcast(bits, tf.float32)[None],
            present[None],
            scale,
            scale,
            indices,
            cells=Cells(columns, weights[None, :, None]),
        )
