"""A table most entries of which are equal, by its other entries, row after row."""

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
    """[1, N, P] of a single task: zeros, or True of a mask, but for the entries that are kept.

    It stands where observations or their mask do, and gives some rows of them as a tensor: those of
    a minibatch (:meth:`take`), or one block after another (``rows[..., start:stop, :]``). Memory is
    that of the entries.
    """

    starts: tf.Tensor  # [N + 1], places where rows begin among the entries
    # Columns and bits of the values [K, 2]: what is together is fetched at once.
    entries: tf.Tensor
    num_rows: int
    num_columns: int
    is_mask: bool

    @classmethod
    def of(cls, table: Any, is_mask: bool = False) -> CompressedRows:
        """
        :param table: a matrix of SciPy's [N, P]; of a mask, that of the entries that are False.
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
        """[1, N, P]."""
        return tf.TensorShape([1, self.num_rows, self.num_columns])

    @property
    def dtype(self) -> tf.DType:
        """float32, or bool of a mask."""
        return tf.bool if self.is_mask else tf.float32

    @check_shapes("indices: [B]", "return: [1, B, P]")
    def take(self, indices: tf.Tensor) -> tf.Tensor:
        """Rows of these numbers."""
        rows = tf.RaggedTensor.from_row_splits(self.entries, self.starts, validate=False)
        found = tf.gather(rows, indices)
        return self._dense(found.value_rowids(), found.flat_values, indices)

    def __getitem__(self, key: Any) -> tf.Tensor:
        """``[..., start:stop, :]``: rows that follow each other, as many as there are."""
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
        """[1, B, P] of entries in rows that are numbered from 0.

        :param like: [B].
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
        """The entries that are kept."""
        columns, bits = np.ascontiguousarray(self.entries.numpy().T)
        values = np.ones(len(bits), bool) if self.is_mask else bits.view(np.float32)
        return scipy.sparse.csr_matrix((values, columns, self.starts.numpy()), self.shape[1:])


def rows_seen(mask: tf.Tensor | CompressedRows) -> tf.Tensor:
    """Whether anything is observed in a row [T, N, 1].

    :param mask: [T, N, P], True where observed.
    """
    if not isinstance(mask, CompressedRows):
        return tf.reduce_any(mask, axis=-1, keepdims=True)
    holes = mask.starts[1:] - mask.starts[:-1]
    return (holes < mask.num_columns)[None, :, None]


def dense_rows(values: Any) -> Any:
    """All rows as a tensor; None and tensors stay what they are."""
    return values[..., :, :] if isinstance(values, CompressedRows) else values


def split_missing(Y: Any) -> tuple[CompressedRows, CompressedRows | None, np.ndarray]:
    """Observations of a sparse matrix, their mask, and how many of each column are not missing.

    :param Y: [N, P] of SciPy's; entries that are stored as NaN are missing, others that are not
        stored are zero.
    :return: both compressed, None for the mask where nothing is missing, and the number [1, P].
    :raises ValueError: for infinities.
    """
    rows = scipy.sparse.csr_matrix(Y, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    if np.isinf(rows.data).any():
        raise ValueError("Y holds infinity; missing observations are stored as NaN.")
    is_missing = np.isnan(rows.data)
    parts = (is_missing, rows.indices, rows.indptr)
    holes = scipy.sparse.csr_matrix(parts, rows.shape, copy=True)  # its zeros are taken out, too
    holes.eliminate_zeros()
    rows.data[is_missing] = 0.0
    rows.eliminate_zeros()
    observed = rows.shape[0] - np.bincount(holes.indices, minlength=rows.shape[1])[None]
    return CompressedRows.of(rows), CompressedRows.of(holes, True) if holes.nnz else None, observed


def to_arrays(name: str, values: Any) -> dict[str, np.ndarray]:
    """What a file holds of a tensor or of compressed rows, by names that begin with ``name``.

    Nothing of None; compressed rows as their three parts.
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
    """The inverse of :func:`to_arrays`."""
    if name in arrays:
        return tf.constant(arrays[name])
    if f"{name}.starts" not in arrays:
        return None
    starts, entries, sizes = (arrays[f"{name}.{part}"] for part in ("starts", "entries", "sizes"))
    number = len(starts) - 1
    return CompressedRows(
        tf.constant(starts), tf.constant(entries), number, int(sizes[0]), bool(sizes[1])
    )
