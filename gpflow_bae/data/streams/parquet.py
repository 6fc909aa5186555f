"""Shards in Parquet files, read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .shards import Shards, files_of

__all__ = ["ParquetShards"]

# Chunks are larger here, because each needs a Python call that delays the training loop.
_ROWS = 8192


class ParquetShards(Shards):
    """Parquet files with a column for each input and output; nulls are missing observations."""

    def __init__(self, paths: Any, inputs: Sequence[str], outputs: Sequence[str]):
        """
        :raises ImportError: without pyarrow.
        :raises FileNotFoundError: for a pattern without files, or a missing file.
        :raises ValueError: for a file that is not Parquet, or a column that is missing or not
            numeric.
        """
        for name, columns in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(columns, str):
                raise ValueError(
                    f"{name} must be a list of columns, got {columns!r}: [{columns!r}]."
                )
        if not outputs:
            raise ValueError("outputs must name at least one column.")
        self.names = files_of(paths)
        self._columns = (*inputs, *outputs)
        self.input_dim, self.num_outputs = len(inputs) or None, len(outputs)
        for name in self.names:
            self._check(name)

    def _check(self, name: str) -> None:
        pyarrow = _pyarrow()
        try:
            schema = pyarrow.parquet.read_schema(name)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{name} is damaged, or no Parquet file ({error}).") from error
        types = pyarrow.types
        for column in self._columns:
            if schema.names.count(column) != 1:
                raise ValueError(
                    f"{name} has no column {column!r} (or several); its columns are "
                    f"{', '.join(schema.names[:20])}."
                )
            kind = schema.field(column).type
            numeric = types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)
            if not numeric:
                raise ValueError(
                    f"Column {column!r} of {name} holds {kind}, expected numbers: convert it."
                )

    def chunks(self, number: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(
            self._arrays, output_signature=self.signature, args=(number,)
        )

    def _arrays(self, number: np.int64) -> Iterator[tuple[np.ndarray, ...]]:
        width = self.input_dim or 0
        with _pyarrow().parquet.ParquetFile(self.names[number]) as file:
            for batch in file.iter_batches(_ROWS, columns=list(dict.fromkeys(self._columns))):
                values = [
                    batch.column(name).to_numpy(zero_copy_only=False) for name in self._columns
                ]
                outputs = np.stack(values[width:], 1).astype(np.float32)
                if not width:
                    yield (outputs,)
                    continue
                yield np.stack(values[:width], 1).astype(self.signature[0].dtype.name), outputs


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files are read by pyarrow, which is not installed: pip install "
            "'gpflow-bae[tables]'."
        ) from error
    return pyarrow
