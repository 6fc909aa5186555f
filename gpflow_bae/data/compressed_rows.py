"""Sparse observations and masks in compressed rows, for tables that are mostly zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from check_shapes import check_shapes

__all__ = [
    "CompressedRows",
    "dense_rows",
    "from_arrays",
    "rows_seen",
    "split_missing",
    "to_arrays",
]


class CompressedRows(tf.experimental.ExtensionType):
    """Compressed sparse rows [1, N, P] of the observations of a task, or of their mask.

    Entries that are not stored are zero, or True in a mask. It replaces a tensor of observations or
    mask, and returns dense rows: those of a minibatch (:meth:`take`), or consecutive ones
    (``rows[..., start:stop, :]``).
    """

    starts: tf.Tensor  # [N + 1], index of the first entry of each row
    # Columns and bits of the values [K, 2], interleaved to read both from one cache line.
    entries: tf.Tensor
    num_rows: int
    num_columns: int
    is_mask: bool

    @classmethod
    def of(cls, table: Any, is_mask: bool = False) -> CompressedRows:
        """Convert a SciPy sparse matrix.

        :param table: SciPy matrix [N, P]; for a mask, one that stores the entries that are False.
        """
        rows = scipy.sparse.csr_matrix(table)
        bits = np.zeros(rows.nnz, np.int32) if is_mask else np.float32(rows.data).view(np.int32)
        return cls(
            tf.constant(rows.indptr, tf.int64),
            tf.constant(np.stack([rows.indices, bits], 1), tf.int32),
            *map(int, rows.shape),
            is_mask,
        )

    @property
    def shape(self) -> tf.TensorShape:
        """Shape [1, N, P]."""
        return tf.TensorShape([1, self.num_rows, self.num_columns])

    @property
    def dtype(self) -> tf.DType:
        """float32, or bool for a mask."""
        return tf.bool if self.is_mask else tf.float32

    @check_shapes("indices: [B]", "return: [1, B, P]")
    def take(self, indices: tf.Tensor) -> tf.Tensor:
        """Return the dense rows with these indices."""
        rows = tf.RaggedTensor.from_row_splits(self.entries, self.starts, validate=False)
        found = tf.gather(rows, indices)
        return self._dense(found.value_rowids(), found.flat_values, indices)

    def __getitem__(self, key: Any) -> tf.Tensor:
        """Return dense rows for ``[..., start:stop, :]``, clipped to the existing rows."""
        dots, rows, columns = key
        if dots is not Ellipsis or columns != slice(None) or rows.step is not None:
            raise TypeError("CompressedRows has blocks of complete rows: rows[..., start:stop, :].")
        start = tf.cast(0 if rows.start is None else rows.start, tf.int64)
        stop = tf.cast(self.num_rows if rows.stop is None else rows.stop, tf.int64)
        ends = self.starts[start : tf.minimum(stop, self.num_rows) + 1]
        numbers = tf.range(tf.size(ends, tf.int64) - 1)
        entries = self.entries[ends[0] : ends[-1]]
        return self._dense(tf.repeat(numbers, ends[1:] - ends[:-1]), entries, numbers)

    def _dense(self, rows: tf.Tensor, entries: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """Scatter entries to a dense tensor [1, B, P].

        :param rows: row of each entry, from 0.
        :param like: tensor [B] that gives the number of rows.
        """
        columns, bits = tf.unstack(entries, axis=1)
        values = tf.zeros_like(bits, tf.bool) if self.is_mask else tf.bitcast(bits, tf.float32)
        shape = tf.stack([tf.size(like, tf.int64), self.num_columns])
        filled = tf.fill(shape, tf.constant(self.is_mask, self.dtype))
        places = tf.stack([rows, tf.cast(columns, tf.int64)], 1)
        found = tf.tensor_scatter_nd_update(filled, places, values)[None]
        found.set_shape([1, *like.shape, self.num_columns])
        return found

    def table(self) -> scipy.sparse.csr_matrix:
        """Return the stored entries as a SciPy matrix [N, P]."""
        columns, bits = np.ascontiguousarray(self.entries.numpy().T)
        values = np.ones(len(bits), bool) if self.is_mask else bits.view(np.float32)
        return scipy.sparse.csr_matrix((values, columns, self.starts.numpy()), self.shape[1:])


def rows_seen(mask: tf.Tensor | CompressedRows) -> tf.Tensor:
    """Return whether each row has an observation [T, N, 1].

    :param mask: [T, N, P], True where observed.
    """
    if not isinstance(mask, CompressedRows):
        return tf.reduce_any(mask, axis=-1, keepdims=True)
    holes = mask.starts[1:] - mask.starts[:-1]
    return (holes < mask.num_columns)[None, :, None]


def dense_rows(values: Any) -> Any:
    """Convert compressed rows to a dense tensor; return other values unchanged."""
    return values[..., :, :] if isinstance(values, CompressedRows) else values


def split_missing(Y: Any) -> tuple[CompressedRows, CompressedRows | None, np.ndarray]:
    """Return observations of a sparse matrix, their mask, and counts of observations per column.

    :param Y: SciPy matrix [N, P]; entries that are stored as NaN are missing, and entries that are
        not stored are zero.
    :return: both compressed, with None for the mask if nothing is missing, and counts [1, P].
    :raises ValueError: for infinities.
    """
    rows = scipy.sparse.csr_matrix(Y, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    if np.isinf(rows.data).any():
        raise ValueError("Y holds infinity; missing observations are stored as NaN.")
    is_missing = np.isnan(rows.data)
    parts = (is_missing, rows.indices, rows.indptr)
    holes = scipy.sparse.csr_matrix(parts, rows.shape, copy=True)  # eliminate_zeros is in place
    holes.eliminate_zeros()
    rows.data[is_missing] = 0.0
    rows.eliminate_zeros()
    observed = rows.shape[0] - np.bincount(holes.indices, minlength=rows.shape[1])[None]
    return CompressedRows.of(rows), CompressedRows.of(holes, True) if holes.nnz else None, observed


def to_arrays(name: str, values: Any) -> dict[str, np.ndarray]:
    """Convert a tensor or compressed rows to arrays for a file, named with the prefix ``name``.

    None gives no array, compressed rows give three.
    """
    if not isinstance(values, CompressedRows):
        return {} if values is None else {name: np.asarray(values)}
    sizes = np.array([values.num_columns, values.is_mask])
    return {
        f"{name}.starts": values.starts.numpy(),
        f"{name}.entries": values.entries.numpy(),
        f"{name}.sizes": sizes,
    }


def from_arrays(name: str, arrays: dict[str, np.ndarray]) -> tf.Tensor | CompressedRows | None:
    """Invert :func:`to_arrays`."""
    if name in arrays:
        return tf.constant(arrays[name])
    if f"{name}.starts" not in arrays:
        return None
    starts, entries, sizes = (arrays[f"{name}.{part}"] for part in ("starts", "entries", "sizes"))
    number = len(starts) - 1
    return CompressedRows(
        tf.constant(starts), tf.constant(entries), number, int(sizes[0]), bool(sizes[1])
    )
