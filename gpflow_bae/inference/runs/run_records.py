"""Samples and statistics of a run, stored in its folder or, without one, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .checkpoints import RunDirectory

__all__ = ["RunRecords"]

Trace = Mapping[str, np.ndarray]
Sample = Mapping[str, np.ndarray]


class RunRecords:
    """Samples and rows of statistics in the order of the steps.

    With a folder they are written immediately, and none is held in memory. A checkpoint stores
    :meth:`counts`, from which a resumed run finds the earlier ones.
    """

    def __init__(self, directory: RunDirectory | None):
        self._directory = directory
        self._num_samples, self._num_rows = 0, 0
        self._samples: list[Sample] = []
        self._traces: list[Trace] = []

    def resume(self, arrays: dict[str, np.ndarray]) -> None:
        """Continue after the samples and rows of a checkpoint; remove their counts from it.

        :raises ValueError: if stored samples or rows are damaged or missing.
        """
        assert self._directory is not None
        self._num_samples = int(arrays.pop("run/num_samples"))
        self._directory.samples.read(self._num_samples)
        self._num_rows = int(arrays.pop("run/num_rows"))
        self._directory.trace.read(self._num_rows)

    def add(self, trace: Trace, sample: Sample | None) -> None:
        """Append the statistics and the sample of one call of the algorithm.

        :raises OSError: if they cannot be written.
        """
        if self._directory is None:
            self._traces.append(trace)
        else:
            rows = {name: np.asarray(values) for name, values in trace.items()}
            count = len(next(iter(rows.values()), ()))
            if count:
                self._directory.trace.write(self._num_rows, rows)
            self._num_rows += count
        if sample is not None:
            if self._directory is None:
                self._samples.append(sample)
            else:
                one = {name: np.asarray(values)[None] for name, values in sample.items()}
                self._directory.samples.write(self._num_samples, one)
            self._num_samples += 1

    def counts(self) -> dict[str, int]:
        """Return the numbers of samples and rows, which a checkpoint stores."""
        return {"num_samples": self._num_samples, "num_rows": self._num_rows}

    def samples(self) -> Sequence[Sample]:
        """Return all samples; with a folder they are read from its file on access."""
        if self._directory is None:
            return self._samples
        return self._directory.samples.records(self._num_samples)

    def trace(self) -> dict[str, np.ndarray]:
        """Return all statistics by name, rows in the order of the steps."""
        if self._directory is not None:
            return self._directory.trace.records(self._num_rows).stacked()
        names = self._traces[0] if self._traces else ()
        return {name: np.concatenate([t[name] for t in self._traces]) for name in names}

    def close(self) -> None:
        """Close the folder's files."""
        if self._directory is not None:
            self._directory.close()
