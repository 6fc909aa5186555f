"""Observations that are read from files in minibatches, for data that do not fit memory."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import tensorflow as tf

from ...base import Batch, VariationalModel
from ...core.annotations import check_arguments
from ..model_checks import SPLITTING_ADVICE, check_inputs, check_support
from .order import Order
from .parquet import ParquetShards
from .shards import (
    Chunk,
    DatasetShards,
    Shards,
    arrays_of,
    check_finite,
    extremes,
    outer_digest,
    survey,
)
from .tfrecords import TFRecordShards

__all__ = ["BatchReader", "StreamedObservations"]

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_BUFFER = 16 * 2**20  # bytes


class StreamedObservations:
    """The points of one long task in files, used instead of ``(X, Y)``.

    Engines that draw new minibatches take it, with a ``batch_size``: ``fit_variational``, ``fit``,
    and ``sample_amortized`` (with ``codes="encoder"`` if codes are sampled). Each epoch has every
    point once, in an order drawn from the run's seed: shards in random order, sixteen at a time, a
    few hundred rows of each in turn, and rows shuffled within ``shuffle_buffer`` consecutive ones.
    A batch may begin in one epoch and end in the next. So minibatches of an epoch are drawn
    without replacement, and consecutive ones are from the same few shards: N/B times the sum over
    a minibatch is unbiased on average over an epoch, and for each minibatch only if the rows of a
    shard are in random order. Use many shards for sorted data.

    The constructor reads, counts and checks all rows, unless ``num_points`` is given.
    """

    axis = 1  # points of a single task
    has_tasks = False
    neighbours = None

    @check_arguments(num_points=1, shuffle_buffer=0)
    def __init__(
        self, shards: Shards, num_points: int | None = None, shuffle_buffer: int | None = None
    ):
        """
        :param shards: the shards to read, from a constructor such as :meth:`from_tfrecords`.
        :param num_points: number of rows, if it is known: files are then not read first, and
            errors in them are raised when they are reached.
        :param shuffle_buffer: number of rows that are shuffled together; about five times as many
            are in memory. None for 16 MB of rows, 0 for the order of the files.
        :raises ValueError: for settings out of range, and files with errors.
        """
        self._shards = shards
        self._samples: dict[tuple[int, int], tuple[np.ndarray | None, np.ndarray]] = {}
        self._digest: str | None = None
        self._values: np.ndarray | None = None
        self._corners: np.ndarray | None = None
        self.has_missing, counts = True, None
        if num_points is None:
            found = survey(shards)
            self._digest, self.has_missing, counts = found.digest, found.has_missing, found.counts
            num_points = found.num_points
            self._values, self._corners = found.values, found.inputs
        self.num_items = int(num_points)
        if shuffle_buffer is None:
            row_bytes = 4 * shards.num_outputs + 8 * (shards.input_dim or 0)
            shuffle_buffer = max(256, _BUFFER // row_bytes)
        self._order = Order(shards, self.num_items, shuffle_buffer, counts)

    @classmethod
    def from_tfrecords(
        cls, paths: Paths, *, inputs: str = "X", outputs: str = "Y", **settings: Any
    ) -> StreamedObservations:
        """Read TFRecord files, such as :func:`~gpflow_bae.data.write_tfrecords` writes.

        :param paths: a pattern, such as ``"rows/*.tfrecord"``, or a list of files.
        :param inputs, outputs: features of each ``tf.train.Example``: the numbers of one point, or
            a matrix of several points as ``tf.io.serialize_tensor`` writes it, which is read much
            faster. Data have no inputs if records have no feature of that name.
        :param settings: ``num_points`` and ``shuffle_buffer``, see the class.
        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: for damaged files, or records with different layouts.
        """
        return cls(TFRecordShards(paths, inputs, outputs), **settings)

    @classmethod
    def from_parquet(
        cls, paths: Paths, *, inputs: Sequence[str], outputs: Sequence[str], **settings: Any
    ) -> StreamedObservations:
        """Read Parquet files; needs pyarrow (``pip install '.[tables]'``).

        :param paths: a pattern, such as ``"rows/*.parquet"``, or a list of files.
        :param inputs: columns of the inputs; may be empty.
        :param outputs: columns of the observations, null or NaN where missing.
        :param settings: ``num_points`` and ``shuffle_buffer``, see the class.
        :raises FileNotFoundError: if there is no such file.
        :raises ValueError: for damaged files, and columns that are missing or not numeric.
        """
        return cls(ParquetShards(paths, inputs, outputs), **settings)

    @classmethod
    def from_dataset(cls, dataset: tf.data.Dataset, **settings: Any) -> StreamedObservations:
        """Read your own pipeline with points as elements: (X [D], Y [P]), or Y [P] alone.

        It must be finite, and yield the same points in the same order in every iteration, or a run
        cannot be resumed. It is one shard, so only the buffer shuffles it.

        :param settings: ``num_points`` and ``shuffle_buffer``, see the class.
        :raises TypeError: for anything but a ``tf.data.Dataset``.
        :raises ValueError: for other elements, or an infinite pipeline.
        """
        return cls(DatasetShards(dataset), **settings)

    @property
    def num_points(self) -> int:
        """Number of points N."""
        return self.num_items

    @property
    def num_seen(self) -> int:
        """Number of points N, as it is not known how many have an observation."""
        return self.num_items

    @property
    def num_outputs(self) -> int:
        """Number of outputs P."""
        return self._shards.num_outputs

    @property
    def input_dim(self) -> int | None:
        """Number of inputs D; None without inputs."""
        return self._shards.input_dim

    def _raise_not_available(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error: items by index, or all of them, are not available."""
        raise ValueError(
            f"This needs all {self.num_items} points at once, or chosen ones, and a stream has "
            "them minibatch by minibatch. Pass data that fit into memory, such as "
            "stream.sample(10_000), or take a model and settings without it (docs/guides/"
            "streams.md)."
        )

    X = Y = mask = property(_raise_not_available)
    gather = _raise_not_available

    def describe(self) -> dict[str, Any]:
        """Return sizes, order and a digest, to check resumed runs.

        The digest is of all inputs and observations. If ``num_points`` was given, it is only of
        the sizes of files and the first rows of the first and the last shard, and changes elsewhere
        are not detected.
        """
        if self._digest is None:
            self._digest = outer_digest(self._shards)
        return {
            "shape": [self.num_items, self.input_dim, self.num_outputs],
            "parts": len(self._shards.names),
            "shuffle_buffer": self._order.shuffle,
            "digest": self._digest,
        }

    def check(self, model: Any, batch_size: int | None) -> None:
        """Check that a model matches the rows and can be fitted by minibatches of them.

        :param batch_size: None to leave it unchecked.
        :raises ValueError: if not, with advice.
        """
        name = type(model).__name__
        width = model.decoder.output_dim
        if width != self.num_outputs:
            raise ValueError(
                f"decoder returns {width} outputs per point, but the stream has "
                f"P = {self.num_outputs}; change the width of the decoder's last layer."
            )
        if model.needs_inputs and self.input_dim is None:
            raise ValueError(
                f"{model.latent_prior_name} is a prior over inputs, and the stream has none."
            )
        prior = getattr(model, "latent_prior", None)
        if not model.splits_over_points or getattr(prior, "by_neighbours", None) is not None:
            raise ValueError(
                f"{name} cannot be fitted to a stream, because its prior "
                f"({model.latent_prior_name}) needs other points than those of a minibatch: "
                f"{SPLITTING_ADVICE}."
            )
        of_points = isinstance(model, VariationalModel) and model.row_variables
        if of_points or getattr(getattr(model, "encoder", None), "takes_indices", False):
            raise ValueError(
                f"{name} has codes of its own for each point, which a stream cannot number: take "
                "an encoder network."
            )
        if isinstance(model, VariationalModel):
            model.snapshot(self)  # raises if it needs all points
        if self._values is not None:
            self._check_values(model, self._corners, self._values)
        if batch_size is not None:
            self.check_batch_size(batch_size)

    def _check_values(self, model: Any, X: np.ndarray | None, values: np.ndarray) -> None:
        """Check that a model can read inputs [n, D], and that outputs [n, P] are in its support."""
        check_support(model, values, name="The stream")
        if X is not None:
            check_inputs(model, X, "X of the stream")

    def _check_block(self, model: Any, block: Chunk) -> None:
        """Check a block [K, B, D] and [K, B, P] of rows that were not read before."""
        rows = tuple(v.numpy().reshape(-1, v.shape[-1]) for v in block)
        check_finite(rows, "A minibatch of the stream")
        *X, Y = rows
        self._check_values(model, extremes(X[0]) if X else None, extremes(Y))

    def check_batch_size(self, batch_size: int | None) -> None:
        """Check the batch size.

        :raises ValueError: if it is None or out of range.
        """
        if batch_size is None:
            raise ValueError(
                "batch_size must be set for a stream, which has minibatches only; some hundred "
                "points suit most models."
            )
        if not 1 <= batch_size <= self.num_items:
            raise ValueError(
                f"batch_size must lie between 1 and the {self.num_items} points, got {batch_size}."
            )

    def reader(
        self, batch_size: int | None, batches: int, seed: Sequence[int], model: Any = None
    ) -> BatchReader:
        """Return a reader of the minibatches of a run.

        :param batches: number of minibatches that are read at a time.
        :param seed: two integers, the seed of the order.
        :param model: model that rows are checked against if the constructor did not read them.
        """
        self.check_batch_size(batch_size)
        assert batch_size is not None
        check = None
        if model is not None and self._values is None:
            check = functools.partial(self._check_block, model)
        return BatchReader(self._shards, self._order, batch_size, batches, seed, check)

    def batch(self, block: Chunk, number: tf.Tensor) -> Batch:
        """Return minibatch ``number`` of a block from :meth:`BatchReader.read`; works in graphs."""
        *X, Y = (values[number][tf.newaxis] for values in block)
        mask = None
        if self.has_missing:
            mask = ~tf.math.is_nan(Y)
            Y = tf.where(mask, Y, tf.zeros_like(Y))
        scale = self.num_items / Y.shape[1]
        return Batch(X[0] if X else None, Y, mask, scale, scale)

    def minibatch(
        self, batch_size: int | None, seed: tf.Tensor, block: Chunk, number: tf.Tensor
    ) -> Batch:
        """Return minibatch ``number`` of a block; data in memory draw one from ``seed``."""
        return self.batch(block, number)

    @check_arguments(num_points=1)
    def sample(self, num_points: int, seed: int = 0) -> tuple[np.ndarray | None, np.ndarray]:
        """Draw points ``(X, Y)`` without replacement; reads all files.

        :param num_points: number of points, or all if there are fewer.
        """
        key = num_points, seed
        if key not in self._samples:
            self._samples = {key: self._sample(*key)}  # cached for initialisation and predictions
        return self._samples[key]

    def _sample(self, num_points: int, seed: int) -> tuple[np.ndarray | None, np.ndarray]:
        rng = np.random.default_rng(seed)
        kept: list[np.ndarray] = []
        keys = np.zeros(0)
        for _, chunk in arrays_of(self._shards):
            # The rows with the smallest of independent keys are a random subset.
            own = rng.random(len(chunk[-1]))
            near = own < (np.inf if len(keys) < num_points else keys.max())
            if not near.any():
                continue
            keys = np.concatenate([keys, own[near]])
            rows = [v[near] for v in chunk]
            kept = [np.concatenate(v) for v in zip(kept, rows, strict=True)] if kept else rows
            if len(keys) > num_points:
                best = np.sort(np.argpartition(keys, num_points - 1)[:num_points])
                keys, kept = keys[best], [v[best] for v in kept]
        *X, Y = kept
        return (X[0] if X else None), Y


class BatchReader:
    """Reader of the minibatches of a run in blocks, a function of the seed and their number.

    The next block is read while the program computes on one. A resumed run may start at any block:
    earlier epochs are not read, and neither are the finished shards of its epoch if their sizes are
    known.
    """

    def __init__(
        self,
        shards: Shards,
        order: Order,
        batch_size: int,
        batches: int,
        seed: Sequence[int],
        check: Callable[[Chunk], None] | None = None,
    ):
        """
        :param batches: number of minibatches of a block.
        :param check: raises an error for an invalid block.
        """
        self._check = check
        self._shards, self._order, self._seed = shards, order, tf.constant(seed, tf.int32)
        self._batch_size, self._batches = batch_size, batches
        self._next = -1
        self._blocks: Any = None

    def read(self, first: int) -> Chunk:
        """Read inputs [K, B, D] (omitted if there are none) and observations [K, B, P].

        :param first: number of the first of the K minibatches in the run.
        :raises ValueError: if a file is damaged or has changed.
        """
        try:
            if first != self._next:
                self._blocks = iter(self._pipeline(first * self._batch_size))
            block = next(self._blocks)
        except (tf.errors.OpError, StopIteration) as error:
            self._next = -1
            for _ in arrays_of(self._shards):
                pass  # raises an error that names the file
            raise ValueError(
                f"The rows of the stream are not the {self._order.num_points} that were expected. "
                "Files must stay as they are during a run, and num_points, where it is given, must "
                "be the number of their rows."
            ) from error
        if self._check is not None:
            self._check(block)
        self._next = first + self._batches
        return block

    @tf.autograph.experimental.do_not_convert  # conversion takes longer than reading
    def _pipeline(self, row: int) -> tf.data.Dataset:
        count, size = self._batches, self._batch_size

        def block(*rows: tf.Tensor) -> Chunk:
            return tuple(tf.reshape(v, [count, size, v.shape[-1]]) for v in rows)

        windows = self._order.rows_from(self._seed, row)
        blocks = windows.rebatch(count * size, drop_remainder=True).map(block).prefetch(1)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 2  # else reading waits for threads of the steps
        return blocks.with_options(options)
