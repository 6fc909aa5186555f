"""Shards that a stream reads: files with rows of a table, or a ``tf.data`` pipeline."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf

from ...core.files import digest

__all__ = [
    "CHUNK",
    "Chunk",
    "DatasetShards",
    "Shards",
    "Survey",
    "check_finite",
    "extremes",
    "files_of",
    "outer_digest",
    "survey",
]

CHUNK = 512
"""Number of rows that are read at a time, and interleaved with those of other shards."""

Chunk: TypeAlias = tuple[tf.Tensor, ...]
"""Inputs [n, D] (omitted if there are none) and observations [n, P], NaN where missing."""


class Shards(ABC):
    """Rows in shards, each of which always yields the same rows in the same order."""

    names: tuple[str, ...]
    """Names of the shards in error messages."""
    input_dim: int | None
    """Number of inputs D; None without inputs."""
    num_outputs: int
    """Number of outputs P."""

    @abstractmethod
    def chunks(self, number: tf.Tensor) -> tf.data.Dataset:
        """Return the rows of a shard as a dataset of :data:`Chunk`.

        :param number: index of the shard, int64; a symbolic tensor in a pipeline.
        """

    @property
    def signature(self) -> tuple[tf.TensorSpec, ...]:
        """Element spec of a chunk."""
        outputs = tf.TensorSpec([None, self.num_outputs], tf.float32)
        if self.input_dim is None:
            return (outputs,)
        return tf.TensorSpec([None, self.input_dim], gpflow.default_float()), outputs

    def expected(self) -> str:
        """Describe the contents of every row, for error messages."""
        inputs = "no inputs" if self.input_dim is None else f"{self.input_dim} inputs"
        return f"{inputs} and {self.num_outputs} observations in every row"


class Survey(NamedTuple):
    """Statistics of one pass over all rows."""

    counts: np.ndarray  # [S], number of rows of each shard
    observed: np.ndarray  # [P], number of observations of each column
    digest: str  # of all rows
    values: np.ndarray  # [3, P], minimum, maximum and a non-integer (or NaN) of each output
    inputs: np.ndarray | None  # [3, D], the same for each input

    @property
    def num_points(self) -> int:
        """Total number of rows."""
        return int(self.counts.sum())

    @property
    def has_missing(self) -> bool:
        """Whether any observation is missing."""
        return bool((self.observed < self.num_points).any())


def arrays_of(shards: Shards) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield the checked chunks of all shards, each with the index of its shard.

    :raises ValueError: for a shard that cannot be read, rows of another shape or type, inputs that
        are not finite, and infinite observations.
    """
    number, row = 0, 0
    try:
        for found, chunk in _all_chunks(shards).as_numpy_iterator():
            row = row if found == number else 0
            number = int(found)
            check_finite(chunk, shards.names[number], row)
            row += len(chunk[-1])
            yield number, chunk
    except tf.errors.OpError:
        for damaged in range(number, len(shards.names)):
            _check_readable(shards, damaged)
        raise


@tf.autograph.experimental.do_not_convert  # conversion takes longer than reading
def _all_chunks(shards: Shards) -> tf.data.Dataset:
    """Return one pipeline of all shards; building one per shard is slow for small files."""

    def chunks(number: tf.Tensor) -> tf.data.Dataset:
        return shards.chunks(number).map(lambda *chunk: (number, chunk))

    return tf.data.Dataset.range(len(shards.names)).flat_map(chunks).prefetch(8)


def check_finite(chunk: tuple[np.ndarray, ...], name: str, first: int = 0) -> None:
    """Check that inputs [n, D] are finite and observations [n, P] are not infinite.

    :param name: name of the shard in error messages.
    :param first: index of the chunk's first row.
    :raises ValueError: naming row and column.
    """
    for what, values in zip(("outputs", "inputs"), chunk[::-1], strict=False):
        wrong = ~np.isfinite(values)
        if wrong.any() and what == "outputs":
            wrong = np.isinf(values)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"{name} holds {values[row, column]} in row {first + row}, column {column} of its "
                f"{what}; inputs must be complete, and missing outputs are NaN."
            )


def _check_readable(shards: Shards, number: int) -> None:
    name, row = shards.names[number], 0
    try:
        for chunk in shards.chunks(tf.constant(number, tf.int64)).as_numpy_iterator():
            row += len(chunk[-1])
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"{name} is damaged, or no file of TFRecords ({_reason(error)}): write it anew."
        ) from error
    except tf.errors.OpError as error:
        raise ValueError(
            f"{name} could not be read after its row {row} ({_reason(error)}); expected are "
            f"{shards.expected()}."
        ) from error


def survey(shards: Shards) -> Survey:
    """Read all rows once and return their statistics.

    :raises ValueError: as :func:`arrays_of`, and for a shard without rows, or a column without
        observations.
    """
    counts = np.zeros(len(shards.names), np.int64)
    corners: np.ndarray | None = None
    observed, digests = np.zeros(shards.num_outputs, np.int64), []
    values = np.zeros((0, shards.num_outputs), np.float32)
    for number, chunk in arrays_of(shards):
        *X, Y = chunk
        digests.append([number, digest(*chunk)])
        counts[number] += len(Y)
        values = extremes(np.concatenate([values, Y]))
        for inputs in X:
            corners = extremes(inputs if corners is None else np.concatenate([corners, inputs]))
        observed += np.count_nonzero(~np.isnan(Y), axis=0)
    without = np.flatnonzero(counts == 0)
    if without.size:
        raise ValueError(f"{shards.names[without[0]]} holds no rows; leave it out.")
    empty = np.flatnonzero(observed == 0)
    if empty.size:
        raise ValueError(
            f"There is no observation at all in column(s) {empty.tolist()} of the outputs; drop "
            "those columns."
        )
    return Survey(counts, observed, digest(np.array(digests)), values, corners)


def extremes(values: np.ndarray) -> np.ndarray:
    """Return rows [3, D] that represent values [n, D] in checks.

    They are the minimum, the maximum and the first non-integer (NaN if there is none) of each
    column, ignoring NaN; a column without any is NaN.
    """
    if not len(values):
        return values
    known = ~np.isnan(values)
    low = np.where(known, values, np.inf).min(0)
    high = np.where(known, values, -np.inf).max(0)
    broken = known & (values != np.round(values))
    first = np.take_along_axis(values, broken.argmax(0)[None], 0)[0]
    found = np.stack([low, high, np.where(broken.any(0), first, np.nan)])
    return np.where(known.any(0), found, np.nan)


def outer_digest(shards: Shards) -> str:
    """Return a cheap digest: of file sizes, and the first chunks of the first and last shard.

    :raises ValueError: for a shard that cannot be read.
    """
    sizes = [os.path.getsize(name) if os.path.isfile(name) else 0 for name in shards.names]
    digests = []
    for number in sorted({0, len(sizes) - 1}):
        try:
            chunks = shards.chunks(tf.constant(number, tf.int64))
            digests.append(digest(*next(iter(chunks), ())))
        except tf.errors.OpError:
            _check_readable(shards, number)
            raise
    return digest(np.array(sizes), np.array(digests))


def _reason(error: tf.errors.OpError) -> str:
    """Return TensorFlow's error message without node names."""
    lines = [line.split("}} ")[-1].strip() for line in str(error.message).splitlines()]
    words = [line for line in lines if line and not line.startswith(("[[", "Traceback", "File "))]
    text = words[-1] if "Traceback" in str(error.message) and words else " ".join(words[:1])
    return text if len(text) < 300 else text[:297] + "..."


def files_of(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the files of a pattern (``"rows-*.tfrecord"``), sorted by name, or of a list of paths.

    :raises FileNotFoundError: if there are none, or one of them is missing.
    """
    if isinstance(paths, str | os.PathLike):
        pattern = os.fspath(paths)
        found = sorted(glob.glob(os.path.expanduser(pattern)))
        files = tuple(f for f in found if os.path.isfile(f))
        if not files:
            raise FileNotFoundError(f"There is no file of the name, or pattern, {pattern!r}.")
        return files
    files = tuple(os.path.expanduser(path) for path in paths)
    missing = [f for f in files if not Path(f).is_file()]
    if missing or not files:
        raise FileNotFoundError(f"There is no file {missing[0]}." if missing else "paths is empty.")
    return files


class DatasetShards(Shards):
    """A user's ``tf.data`` pipeline with single points as elements, as one shard."""

    def __init__(self, dataset: tf.data.Dataset):
        """
        :raises TypeError: for anything but a ``tf.data.Dataset``.
        :raises ValueError: for elements that are not points, or an infinite pipeline.
        """
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(f"dataset must be a tf.data.Dataset, got {type(dataset).__name__}.")
        spec = dataset.element_spec
        specs = spec if isinstance(spec, tuple) else (spec,)
        good = 1 <= len(specs) <= 2 and all(
            isinstance(s, tf.TensorSpec)
            and s.shape.rank == 1
            and s.shape[0] is not None
            and (s.dtype.is_floating or s.dtype.is_integer or s.dtype.is_bool)
            for s in specs
        )
        if not good:
            raise ValueError(
                "Elements of the dataset must be single points: (X [D], Y [P]), or Y [P] where "
                f"there are no inputs, numbers of a known shape, got {spec}. Take .unbatch() off "
                "batches, and tf.ensure_shape in a map where shapes are unknown."
            )
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError("The dataset has no end: leave .repeat() out, each pass is an epoch.")
        self.names = ("The dataset",)
        self.input_dim = int(specs[0].shape[0]) if len(specs) == 2 else None
        self.num_outputs = int(specs[-1].shape[0])
        self._dataset = dataset

    def chunks(self, number: tf.Tensor) -> tf.data.Dataset:
        types = [spec.dtype for spec in self.signature]

        def cast(*values: tf.Tensor) -> Chunk:
            return tuple(tf.cast(v, dtype) for v, dtype in zip(values, types, strict=True))

        return self._dataset.batch(CHUNK).map(cast)
