"""Shards in TFRecord files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from ...core.files import as_path
from .shards import CHUNK, Chunk, Shards, files_of

__all__ = ["TFRecordShards", "write_tfrecords"]

_ADVICE = "gpflow_bae.data.write_tfrecords writes such files"


class TFRecordShards(Shards):
    """TFRecord files of ``tf.train.Example`` with features for inputs and observations.

    A feature holds the numbers of one point (a list of floats or integers), or a matrix with a
    point in each row as ``tf.io.serialize_tensor`` writes it, which is read about ten times faster.
    """

    def __init__(self, paths: Any, inputs: str = "X", outputs: str = "Y"):
        """
        :raises FileNotFoundError: for a pattern without files, or a missing file.
        :raises ValueError: if the first record does not have these features.
        """
        self.names = files_of(paths)
        features = self._first_record()
        if outputs not in features:
            raise ValueError(
                f"The records of {self.names[0]} have no feature {outputs!r} for the observations, "
                f"but {sorted(features)}; {_ADVICE}."
            )
        self._features = {k: features[k] for k in (inputs, outputs) if k in features}
        self._dtypes, widths = {}, []
        for name, feature in self._features.items():
            dtype, width = self._layout(name, feature)
            self._dtypes[name] = dtype
            widths.append(width)
        kinds = {feature.WhichOneof("kind") == "bytes_list" for feature in self._features.values()}
        if len(kinds) > 1:
            raise ValueError(
                f"In the records of {self.names[0]} one of {inputs!r} and {outputs!r} is a "
                f"serialised matrix, the other a list; they must be alike. {_ADVICE}."
            )
        self._has_matrices = kinds.pop()
        self._widths = dict(zip(self._features, widths, strict=True))
        self.num_outputs = widths[-1]
        self.input_dim = widths[0] if inputs in features else None

    def _first_record(self) -> Any:
        try:
            for record in tf.data.TFRecordDataset(self.names[0]).take(1).as_numpy_iterator():
                return tf.train.Example.FromString(record).features.feature
        except Exception as error:  # from the C++ reader, or from protocol buffers
            raise ValueError(
                f"{self.names[0]} is damaged, or no file of TFRecords with tf.train.Example; "
                f"{_ADVICE}."
            ) from error
        raise ValueError(f"{self.names[0]} holds no records; leave it out.")

    def _layout(self, name: str, feature: Any) -> tuple[tf.DType, int]:
        """Return dtype and width of a feature."""
        kind = feature.WhichOneof("kind")
        if kind in ("float_list", "int64_list"):
            width = len(getattr(feature, kind).value)
            if width:
                return (tf.float32 if kind == "float_list" else tf.int64), width
        if kind == "bytes_list" and len(feature.bytes_list.value) == 1:
            try:
                proto = TensorProto.FromString(feature.bytes_list.value[0])
                shape = tuple(d.size for d in proto.tensor_shape.dim)
                dtype = tf.as_dtype(proto.dtype)
            except Exception:  # not a serialised tensor
                shape, dtype = (), tf.string
            if len(shape) == 2 and shape[1] and (dtype.is_floating or dtype.is_integer):
                return dtype, shape[1]
        raise ValueError(
            f"Feature {name!r} in the records of {self.names[0]} must be the numbers of one point, "
            "or a matrix of numbers with a point in each row, as tf.io.serialize_tensor writes it; "
            f"{_ADVICE}."
        )

    def chunks(self, number: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(
            tf.gather(tf.constant(self.names), number), buffer_size=1 << 20
        )
        if self._has_matrices:
            return records.map(self._matrices)
        return records.batch(CHUNK).map(self._rows)

    def _matrices(self, record: tf.Tensor) -> Chunk:
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in self._features}
        parsed = tf.io.parse_single_example(record, features)
        return self._cast({k: tf.io.parse_tensor(v, self._dtypes[k]) for k, v in parsed.items()})

    def _rows(self, records: tf.Tensor) -> Chunk:
        features = {
            name: tf.io.FixedLenFeature([width], self._dtypes[name])
            for name, width in self._widths.items()
        }
        return self._cast(tf.io.parse_example(records, features))

    def _cast(self, values: dict[str, tf.Tensor]) -> Chunk:
        return tuple(
            tf.cast(tf.ensure_shape(values[name], spec.shape), spec.dtype)
            for name, spec in zip(self._features, self.signature, strict=True)
        )


def write_tfrecords(
    folder: str | os.PathLike[str],
    data: tuple[Any, Any] | Iterable[tuple[Any, Any]],
    points_per_shard: int = 50_000,
) -> list[Path]:
    """Write points to files that :meth:`StreamedObservations.from_tfrecords` reads.

    Points keep their order, the first ones in the first file. A stream reads shards in random
    order, sixteen at a time, so use many shards for sorted points.

    :param folder: created if needed; the files are ``points-00000.tfrecord`` and so on.
    :param data: inputs [N, D] (or None) and observations [N, P], NaN where missing; or an iterable
        of such pairs, for more than fits into memory.
    :param points_per_shard: number of points in a file; the last one may have fewer.
    :return: the paths of the files.
    :raises ValueError: for shapes that disagree, inputs that are not finite, infinite observations,
        empty data, or a folder that already has such files.
    """
    folder = as_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(folder.glob("points-*.tfrecord"))
    if there:
        raise ValueError(f"{there[0]} is there already: choose another folder, or delete it.")
    if points_per_shard < 1:
        raise ValueError(f"points_per_shard must be at least 1, got {points_per_shard}.")
    pairs: Any = [data] if isinstance(data, tuple) and not isinstance(data[0], tuple) else data
    paths: list[Path] = []
    writer: Any = None
    room = 0
    for X, Y in _pieces(_checked(pairs), points_per_shard):
        if room == 0:
            if writer is not None:
                writer.close()
            paths.append(folder / f"points-{len(paths):05d}.tfrecord")
            writer, room = tf.io.TFRecordWriter(os.fspath(paths[-1])), points_per_shard
        values = {"Y": Y} if X is None else {"X": X, "Y": Y}
        writer.write(_record(values))
        room -= len(Y)
    if writer is None:
        raise ValueError("data is empty: there is nothing to write.")
    writer.close()
    return paths


def _checked(pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[np.ndarray | None, np.ndarray]]:
    widths: Any = None
    for number, (X, Y) in enumerate(pairs):
        Y = np.asarray(Y, np.float32)
        X = None if X is None else np.asarray(X, gpflow.default_float())
        where = f"Piece {number} of data"
        if Y.ndim != 2 or (X is not None and (X.ndim != 2 or len(X) != len(Y))):
            raise ValueError(
                f"{where} must be inputs [n, D] (or None) and observations [n, P], got shapes "
                f"{None if X is None else X.shape} and {Y.shape}."
            )
        found = (None if X is None else X.shape[1], Y.shape[1])
        widths = widths or found
        if found != widths:
            raise ValueError(
                f"{where} has D = {found[0]} and P = {found[1]}, those before it {widths[0]} and "
                f"{widths[1]}."
            )
        if np.isinf(Y).any() or (X is not None and not np.isfinite(X).all()):
            raise ValueError(
                f"{where} holds infinity, or NaN among its inputs; only observations may be "
                "missing, and are NaN then."
            )
        yield X, Y


def _pieces(
    pairs: Iterable[tuple[np.ndarray | None, np.ndarray]], points_per_shard: int
) -> Iterator[tuple[np.ndarray | None, np.ndarray]]:
    """Split data into records of at most ``CHUNK`` rows, none across the end of a shard."""
    room = points_per_shard
    for X, Y in pairs:
        start = 0
        while start < len(Y):
            stop = min(start + CHUNK, len(Y), start + room)
            yield (None if X is None else X[start:stop]), Y[start:stop]
            room -= stop - start
            room, start = room or points_per_shard, stop


def _record(values: dict[str, np.ndarray]) -> bytes:
    def feature(value: np.ndarray) -> Any:
        tensor = tf.io.serialize_tensor(value).numpy()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[tensor]))

    features = tf.train.Features(feature={k: feature(v) for k, v in values.items()})
    return tf.train.Example(features=features).SerializeToString()
