"""TensorBoard scalars of a run, written during the run."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

_MAX_LINES = 16  # largest number of chains or replicas with separate lines


def is_installed() -> bool:
    """Return whether TensorBoard is installed, without which TensorFlow writes no scalars."""
    return importlib.util.find_spec("tensorboard") is not None


class Scalars:
    """Writer of the statistics of algorithms, as ``<label>/<statistic>`` against their steps.

    A label that occurs again (a second phase, another initialisation) is numbered.
    """

    def __init__(self, folder: pathlib.Path):
        import tensorflow as tf

        self._scalar = tf.summary.scalar
        self._writer = tf.summary.create_file_writer(str(folder), flush_millis=2000)
        self._last: dict[str, int] = {}
        self._rounds: dict[str, int] = {}

    def __call__(self, label: str, number: int, trace: Mapping[str, np.ndarray]) -> None:
        """Write the statistics of one call of an algorithm, averaged over its steps."""
        if number <= self._last.get(label, -1):
            self._rounds[label] = self._rounds.get(label, 1) + 1
        self._last[label] = number
        run = self._rounds.get(label)
        group = label.replace(" ", "_") + ("" if run is None else f"_{run}")
        values = {}
        for name, rows in trace.items():
            if name == "finite":  # always true, as a run stops otherwise
                continue
            means = np.ravel(np.mean(np.asarray(rows, float), 0))[:_MAX_LINES]
            for i, mean in enumerate(means):
                values[f"{group}/{name}" + (f"/{i}" if len(means) > 1 else "")] = float(mean)
        self.write(values, number)

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write scalars by name at one step."""
        with self._writer.as_default():
            for name, value in values.items():
                self._scalar(name, value, step=step)

    def finish(self, metrics: Mapping[str, float], curves: Mapping[str, Sequence[float]]) -> None:
        """Write the scores and curves of a finished run, and close the file."""
        self.write({f"metrics/{name}": value for name, value in metrics.items()}, 0)
        for name, values in curves.items():
            for step, value in enumerate(values):
                self.write({f"curves/{name}": value}, step)
        self._writer.close()


@contextlib.contextmanager
def writing(folder: pathlib.Path) -> Iterator[Scalars]:
    """Write the scalars of every algorithm that runs inside this context."""
    from gpflow_bae.inference.runs.run import watched

    scalars = Scalars(folder)
    with watched(scalars):
        yield scalars
