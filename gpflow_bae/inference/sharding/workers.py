"""Collective operations between the processes of a strategy, also in compiled loops.

``tf.distribute.ReplicaContext.all_reduce`` is not allowed in a loop, and rounds are loops. So this
module calls TensorFlow's collective ops directly, for which a
``tf.distribute.MultiWorkerMirroredStrategy`` has connected the processes. Every process executes
the same collectives in the same order, because it runs the same program.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.files import save_arrays

__all__ = ["Workers"]

# Keys of device groups, distinct from the strategy's own, which count from 0.
_SUMS, _EXCHANGES = 0x6BAE0001, 0x6BAE0002
_instances = itertools.count(1)  # instance keys, equal in all processes of a program
_SMALL = 1 << 16  # smaller leaves of one dtype are concatenated into one collective

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)


class Workers:
    """The processes of a strategy, each of which holds the whole state of an algorithm."""

    def __init__(self, count: int, rank: int, device: str):
        """
        :param rank: index of this process; 0 is the chief.
        :param device: device of this process that computes sums.
        """
        self.count, self.rank, self.device = count, rank, device
        self._order: np.ndarray | None = None
        self._eager_instances: dict[tuple[Any, ...], int] = {}
        if count > 1:  # TensorFlow gathers processes in an order of its own
            with self.in_words():
                found = self._gather(tf.constant([rank], tf.int32))
            self._order = np.argsort(found.numpy())

    def sum(self, structure: Any) -> Any:
        """Return the sum of each leaf over all processes, bitwise equal in all of them."""
        if self.count == 1:
            return structure
        leaves = tf.nest.flatten(structure)
        summed: list[Any] = [None] * len(leaves)
        groups: dict[Any, list[int]] = {}
        for number, leaf in enumerate(leaves):
            alone = leaf.shape.num_elements() >= _SMALL
            groups.setdefault((leaf.dtype.name, number if alone else -1), []).append(number)
        after: list[tf.Tensor] = []
        for members in groups.values():
            own = [leaves[k] for k in members]
            parts = [tf.reshape(v, [-1]) for v in own]
            # Control dependencies give the same order in all processes.
            with tf.control_dependencies(after), tf.device(self.device):
                total = self._reduce(parts[0] if len(parts) == 1 else tf.concat(parts, 0))
            after = [total]
            sizes = [v.shape.num_elements() for v in own]
            for k, v, part in zip(members, own, tf.split(total, sizes), strict=True):
                summed[k] = tf.reshape(part, v.shape)
        return tf.nest.pack_sequence_as(structure, summed)

    def gather(self, structure: Any) -> Any:
        """Concatenate leaves [n, ...] of all processes to [W n, ...], in the order of ranks."""
        if self.count == 1:
            return structure
        leaves = [tf.convert_to_tensor(v) for v in tf.nest.flatten(structure)]
        parts = [_as_integers(v) for v in leaves]
        found = self._gather(tf.concat(parts, 0)[None])  # [W, numbers]
        found = tf.gather(found, self._order)
        result = []
        sizes = [p.shape[0] for p in parts]
        for leaf, part in zip(leaves, tf.split(found, sizes, axis=1), strict=True):
            shape = [self.count * leaf.shape[0], *leaf.shape[1:]]
            result.append(_from_integers(part, leaf.dtype, shape))
        return tf.nest.pack_sequence_as(structure, result)

    def same(self, structure: Any, root: int = 0) -> Any:
        """Broadcast the structure of process ``root`` to all processes, bitwise.

        :param structure: in other processes, a structure of the same shapes and types.
        """
        if self.count == 1:
            return structure
        leaves = [tf.convert_to_tensor(v) for v in tf.nest.flatten(structure)]
        parts = [_as_integers(v) for v in leaves]
        sizes = [p.shape[0] for p in parts]
        options = self._options(_EXCHANGES, "same", root, sum(sizes))
        with tf.device("CPU:0"):
            if self.rank == root:
                sent = tf.concat(parts, 0)
                found = tf.raw_ops.CollectiveBcastSendV2(input=sent, **options)
            else:
                found = tf.raw_ops.CollectiveBcastRecvV2(shape=[sum(sizes)], T=tf.int32, **options)
        result = [
            _from_integers(part, leaf.dtype, leaf.shape)
            for leaf, part in zip(leaves, tf.split(found, sizes), strict=True)
        ]
        return tf.nest.pack_sequence_as(structure, result)

    def agreed(self, structure: Any) -> Any:
        """Return the chief's structure; it is sent only if hashes differ between processes.

        Eager only. On equal hardware results are bitwise equal, so only hashes are exchanged.
        """
        if self.count == 1:
            return structure
        leaves = [tf.convert_to_tensor(v) for v in tf.nest.flatten(structure)]
        hashes = [tf.fingerprint(_as_integers(v)[None])[0] for v in leaves if tf.size(v) > 0]
        own = tf.cast(tf.stack(hashes), tf.int32)  # [leaves, 8]
        found = self.gather(own[None]).numpy()
        return structure if (found == found[:1]).all() else self.same(structure)

    def arrays_of(self, arrays: Mapping[str, np.ndarray], root: int = 0) -> dict[str, np.ndarray]:
        """Broadcast the named arrays of process ``root``; those of other processes are ignored."""
        if self.count == 1:
            return dict(arrays)
        content = b""
        if self.rank == root:
            with io.BytesIO() as file:
                save_arrays(file, arrays)
                content = file.getvalue()
        size = int(self.same(tf.constant(len(content)), root))
        bits = np.zeros(-(-size // 4), np.int32)
        bits.view(np.uint8)[: len(content)] = np.frombuffer(content, np.uint8)
        received = self.same(tf.constant(bits), root).numpy()
        with np.load(io.BytesIO(received.tobytes()[:size])) as found:
            return dict(found)

    def any(self, value: bool) -> bool:
        """Return whether ``value`` is true in any process."""
        if self.count == 1:
            return value
        with self.in_words():
            return bool(self._gather(tf.constant([int(value)], tf.int32)).numpy().any())

    @contextlib.contextmanager
    def in_words(self) -> Iterator[None]:
        """Raise a readable error inside the context if a collective fails.

        :raises RuntimeError: if another process ended or cannot be reached.
        """
        try:
            yield
        except _LOST as error:
            if self.count == 1:
                raise
            raise RuntimeError(
                f"Worker {self.rank} of {self.count} lost another one, which ended or cannot be "
                "reached; its own output says why. Start all workers again, with resume=True and "
                "the same out_dir: the run goes on from its last checkpoint."
            ) from error

    def _options(self, group: int, *what: Any) -> dict[str, Any]:
        """Return the arguments that all collective ops need.

        :param what: key of the collective. TensorFlow never frees an instance, so eager
            collectives, which run one after the other, share an instance for equal keys.
        """
        if tf.executing_eagerly():
            if what not in self._eager_instances:
                self._eager_instances[what] = next(_instances)
            instance = self._eager_instances[what]
        else:
            instance = next(_instances)
        return {
            "group_size": self.count,
            "group_key": group,
            "instance_key": instance,
            "communication_hint": "auto",
            "timeout_seconds": 0.0,  # initialisation may take long; a lost process raises anyway
        }

    def _reduce(self, value: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=value,
            merge_op="Add",
            final_op="Id",
            ordering_token=[],
            **self._options(_SUMS, "sum", value.dtype.name, tuple(value.shape)),
        )

    def _gather(self, value: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU:0"):
            return tf.raw_ops.CollectiveGatherV2(
                input=value,
                ordering_token=[],
                **self._options(_EXCHANGES, "gather", tuple(value.shape)),
            )


def _as_integers(value: tf.Tensor) -> tf.Tensor:
    """Return the bits of a tensor as int32 [size], which every collective accepts."""
    if value.dtype == tf.bool:
        value = tf.cast(value, tf.int32)
    elif value.dtype.size == 2:
        value = tf.cast(tf.bitcast(value, tf.int16), tf.int32)
    elif value.dtype != tf.int32:
        value = tf.bitcast(value, tf.int32)
    return tf.reshape(value, [-1])


def _from_integers(bits: tf.Tensor, dtype: tf.DType, shape: Any) -> tf.Tensor:
    """The inverse of :func:`_as_integers`."""
    if dtype == tf.bool:
        value = tf.cast(bits, tf.bool)
    elif dtype.size == 2:
        value = tf.bitcast(tf.cast(bits, tf.int16), dtype)
    elif dtype.size == 8:
        value = tf.bitcast(tf.reshape(bits, [-1, 2]), dtype)
    else:
        value = bits if dtype == tf.int32 else tf.bitcast(bits, dtype)
    return tf.reshape(value, shape)
