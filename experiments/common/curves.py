"""Curves of a run: test error against training time, and losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.figure import Figure


class Curve:
    """Test error against seconds of training, for figures only, never for choices of settings.

    The time of evaluations is excluded, and the time between them grows, since the error falls fast
    at first.
    """

    def __init__(self, error: Callable[[], float], before: float = 0.0, first: float = 1.0):
        """
        :param error: returns the error of the model's current state.
        :param before: seconds of training so far.
        :param first: seconds of training before the first point.
        """
        self._error = error
        self._started = time.perf_counter() - before
        self._next = max(first, before + 1.0)
        self.spent = 0.0  # seconds of evaluations
        self.points: dict[str, list[float]] = {"seconds": [], "mse": []}

    def __call__(self, step: int, loss: float) -> None:
        """Record a point if one is due."""
        now = time.perf_counter()
        elapsed = now - self._started - self.spent
        if elapsed < self._next:
            return
        self.points["seconds"].append(elapsed)
        self.points["mse"].append(self._error())
        self._next = elapsed * 1.15
        self.spent += time.perf_counter() - now


def plot_losses(
    curves: Mapping[str, list[float]], names_of: Mapping[str, tuple[str, str]]
) -> Figure:
    """Draw the losses of a run; those of the first steps may exceed the panel.

    :param names_of: labels of both axes by the name of a curve; absent curves are left out.
    """
    names = [name for name in names_of if len(curves.get(name, ()))]
    figure = Figure(figsize=(4.6 * len(names), 3.2), layout="constrained")
    for axis, name in zip(np.ravel(figure.subplots(1, len(names))), names, strict=True):
        values = np.asarray(curves[name], float)
        marker = "." if len(values) < 50 else None  # keeps a single record visible
        axis.plot(np.arange(1, len(values) + 1), values, lw=0.9, marker=marker)
        later = values[len(values) // 20 :]
        if np.ptp(later) > 0:  # False for NaN, too
            axis.set_ylim(*np.array([-0.05, 0.05]) * np.ptp(later) + [later.min(), later.max()])
        axis.set(xlabel=names_of[name][0], ylabel=names_of[name][1])
    return figure
