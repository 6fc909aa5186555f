"""Devices and processes of a ``tf.distribute.Strategy`` that share the work of a run.

Each process holds the whole state of an algorithm and uses the same random seeds. Replicas share
either the items of minibatches, whose gradients are summed in each step, or chains, which exchange
nothing within a round. After each round all processes take the chief's state (or that of the
process that runs a chain), so states are bitwise equal on any hardware.

Only the devices and the cluster of a strategy are used: its variables and its ``run`` are made for
steps without inner loops.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...base import Batch
from ...core.files import as_path, locked, to_json
from ...mcmc.noise import noise_of_items
from ..runs.checkpoints import RunDirectory, run_directory
from .workers import Workers

__all__ = ["ALONE", "Replicas", "Share", "replicas_of"]


class Share(NamedTuple):
    """A replica's contiguous part of some ordered items."""

    start: int = 0
    stop: int | None = None  # None for all items, without sharing
    total: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the first share, which adds terms that are counted once."""
        return self.start == 0

    @property
    def weight(self) -> float:
        """The fraction of all items in this share, as the weight of its mean."""
        return 1.0 if self.stop is None else (self.stop - self.start) / self.total

    def cut(self, values: Any, axis: int = 0) -> Any:
        """Return this share of a tensor along an axis; what is no tensor stays, such as None."""
        if self.stop is None or not tf.is_tensor(values):
            return values
        return values[(slice(None),) * axis + (slice(self.start, self.stop),)]

    def of(self, batch: Batch, axis: int) -> Batch:
        """Return this share of a batch; ``scale`` stays, because shares are summed."""
        if self.stop is None:
            return batch
        X, indices = batch.X, batch.indices
        if X is not None and (axis == 1 or X.shape[0] > 1):
            X = self.cut(X, axis)
        own = tf.range(self.start, self.stop) if indices is None else self.cut(indices)
        return batch._replace(
            X=X,
            Y=self.cut(batch.Y, axis),
            mask=self.cut(batch.mask, axis),
            indices=own,
            point_scale=batch.point_scale / self.weight if axis == 1 else batch.point_scale,
        )

    def noise(self, axis: int) -> contextlib.AbstractContextManager[None]:
        """Return a context in which these items get the same noise as without sharing.

        :param axis: axis of the items, counted from the last one.
        """
        if self.stop is None:
            return contextlib.nullcontext()
        return noise_of_items(self.start, self.stop, self.total, axis)


class Replicas:
    """The replicas of a strategy; :data:`ALONE` is a single process on its default device."""

    def __init__(self, workers: Workers, devices: tuple[str, ...] = ("",)):
        """
        :param devices: names of this process's devices.
        """
        self.workers, self.devices = workers, devices
        self.size = workers.count * len(devices)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.workers.rank == 0

    # Shares of items, and sums over them.

    def _shares(self, num_items: int) -> Iterator[tuple[str, Share]]:
        """Yield the device and share of each replica in this process; sizes differ by at most one.

        :raises ValueError: if there are fewer items than replicas.
        """
        if num_items < self.size:
            raise ValueError(
                f"{num_items} items cannot be shared among {self.size} replicas: take a larger "
                "batch_size or encoder_batch_size, fewer replicas, or spread chains over them "
                '(spread="chains").'
            )
        bounds = [num_items * k // self.size for k in range(self.size + 1)]
        first = self.workers.rank * len(self.devices)
        for k, device in enumerate(self.devices, first):
            yield device, Share(bounds[k], bounds[k + 1], num_items)

    def sum(self, function: Callable[[Share], Any], num_items: int) -> Any:
        """Return the sum of ``function(share)``, a structure of tensors, over all replicas."""
        if self.size == 1:
            return function(Share())
        parts = []
        for device, share in self._shares(num_items):
            with tf.device(device):
                parts.append(function(share))
        total = parts[0]
        if len(parts) > 1:
            with tf.device(self.devices[0]):
                total = tf.nest.map_structure(lambda *leaves: tf.add_n(leaves), *parts)
        return self.workers.sum(total)

    def value_and_gradient(
        self, function: Callable[[Any, Share], tf.Tensor], values: Any, num_items: int
    ) -> tuple[tf.Tensor, Any]:
        """Return a sum over items and its gradient; each replica computes its share."""

        def part(share: Share) -> tuple[tf.Tensor, Any]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                value = function(values, share)
            return value, tape.gradient(value, values, unconnected_gradients=self._unconnected)

        return self.sum(part, num_items)

    @property
    def _unconnected(self) -> tf.UnconnectedGradients:
        """Zeros with several replicas: a variable may be unused in one share only."""
        return tf.UnconnectedGradients.NONE if self.size == 1 else tf.UnconnectedGradients.ZERO

    # Chains.

    def over_devices(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Apply ``function`` to arguments [C, ...], split over the devices of this process."""
        if len(self.devices) == 1:
            return function(*arguments)
        count = len(self.devices)
        split = [tf.split(v, count) for v in tf.nest.flatten(arguments)]
        parts = []
        for k, device in enumerate(self.devices):
            with tf.device(device):
                own = tf.nest.pack_sequence_as(arguments, [leaf[k] for leaf in split])
                parts.append(function(*own))
        return tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), *parts)

    # Consistency of processes.

    def agree(self, record: Mapping[str, Any]) -> None:
        """Check that settings, seeds and data are equal in all processes.

        :param record: JSON-compatible values by name; data are given by their ``describe()``.
        :raises ValueError: with the names that differ and the number of the process.
        """
        if self.workers.count == 1:
            return
        digests = [_digest(sorted(record)), *(_digest(record[name]) for name in sorted(record))]
        names = ["the kind of run", *sorted(record)]
        with self.workers.in_words():
            found = self.workers.gather(tf.constant(np.stack(digests)[None]))  # [W, names, 8]
        others = (found.numpy() != found.numpy()[:1]).any(-1)
        if not others.any():
            return
        worker = int(np.argmax(others.any(1)))
        differ = ", ".join(n for n, other in zip(names, others[worker], strict=True) if other)
        raise ValueError(
            f"The workers of the strategy do not do the same: {differ} of worker {worker} is other "
            "than the chief's. Start every worker with the same script, flags and data; only "
            "TF_CONFIG's task differs."
        )

    @contextlib.contextmanager
    def directory(
        self, path: str | os.PathLike[str] | None, record: Mapping[str, Any], resume: bool
    ) -> Iterator[RunDirectory | None]:
        """Open a run's folder, which all processes read and only the chief locks and writes.

        :raises ValueError: as :func:`run_directory`, in the chief.
        :raises RuntimeError: in the other processes, if the chief cannot use the folder.
        """
        if path is None or self.workers.count == 1:
            with run_directory(path, record, resume) as alone:
                yield alone
            return
        with contextlib.ExitStack() as held:
            error: Exception | None = None
            if self.is_chief:
                try:
                    held.enter_context(locked(as_path(path), "out_dir"))
                    opened: RunDirectory = _SharedDirectory(path, record, resume, self.workers)
                except (OSError, ValueError) as found:
                    error = found
            if self.workers.any(error is not None):
                raise error or RuntimeError(
                    f"The chief cannot use out_dir {os.fspath(path)}; its own output says why."
                )
            if not self.is_chief:
                opened = _SharedDirectory(path, record, True, self.workers)
            with contextlib.closing(opened):
                yield opened


ALONE = Replicas(Workers(1, 0, ""))


class _SharedDirectory(RunDirectory):
    """A run's folder in a shared file system; only the chief writes to it."""

    def __init__(self, path: Any, record: Mapping[str, Any], resume: bool, workers: Workers):
        self._workers = workers
        self._chief = workers.rank == 0
        super().__init__(path, record, resume)
        self.samples.is_own = self.trace.is_own = self._chief

    def read_state(self) -> dict[str, np.ndarray] | None:
        """Read the last checkpoint, and wait until all processes have read it.

        :raises RuntimeError: if the processes do not read the same checkpoint.
        """
        found = super().read_state()
        number = -1 if found is None else int(found.get("run/number", 0))
        numbers = self._workers.gather(tf.constant([number])).numpy()
        if (numbers != numbers[0]).any():
            raise RuntimeError(
                f"The workers see different checkpoints in {self.path}: out_dir must be a folder "
                "in a file system that all of them share."
            )
        return found

    def _write(self, path: Any, write: Any, previous: Any = None) -> None:
        if self._chief:
            super()._write(path, write, previous)


def replicas_of(strategy: tf.distribute.Strategy | None) -> Replicas:
    """Return the replicas of a strategy; :data:`ALONE` for None.

    :raises TypeError: if it is not a OneDevice-, Mirrored- or MultiWorkerMirroredStrategy.
    :raises ValueError: if this process's task in the cluster is neither chief nor worker.
    """
    if strategy is None:
        return ALONE
    kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    if not isinstance(strategy, (*kinds, tf.distribute.OneDeviceStrategy)):
        raise TypeError(
            "strategy must be a tf.distribute.MirroredStrategy (devices of one machine) or a "
            "tf.distribute.MultiWorkerMirroredStrategy (several machines), got "
            f"{type(strategy).__name__}."
        )
    devices = tuple(strategy.extended.worker_devices)
    resolver = strategy.cluster_resolver
    tasks = {} if resolver is None else resolver.cluster_spec().as_dict()
    chiefs, workers = len(tasks.get("chief", ())), len(tasks.get("worker", ()))
    if not isinstance(strategy, kinds[1]) or chiefs + workers < 2:
        return Replicas(Workers(1, 0, devices[0]), devices)
    if resolver.task_type not in ("chief", "worker"):
        raise ValueError(
            f"TF_CONFIG makes this process a {resolver.task_type!r}; a run is shared by a "
            "'chief' and 'worker's."
        )
    rank = int(resolver.task_id) + (chiefs if resolver.task_type == "worker" else 0)
    return Replicas(Workers(chiefs + workers, rank, devices[0]), devices)


def _digest(value: Any) -> np.ndarray:
    """Return the SHA-256 hash of a value's JSON as int32 [8]."""
    content = to_json(value, sort_keys=True).encode()
    return np.frombuffer(hashlib.sha256(content).digest(), np.int32)
