"""Figures of a filled table."""

from __future__ import annotations

import matplotlib.dates as mdates
import numpy as np
from matplotlib.figure import Figure

from .user_table import INTERVAL, UserTable

__all__ = ["draw"]

_TASKS_DRAWN = 3


def draw(user: UserTable, mean: np.ndarray, variance: np.ndarray) -> dict[str, Figure]:
    """A figure for each output: what was there, what was filled in, and the 90 % interval.

    :param mean, variance: [T, N, P], in the units of the outputs.
    :return: by the output's name; the first three tasks of each.
    """
    figures = {}
    for p, name in enumerate(user.table.output_names):
        count = min(_TASKS_DRAWN, len(user.tasks))
        figure = Figure(figsize=(8, 2.2 * count), layout="tight")
        axes = figure.subplots(count, 1, squeeze=False)[:, 0]
        for t, axis in enumerate(axes):
            real = user.rows[t] >= 0
            times = user.times[user.rows[t][real]]
            order = np.argsort(times)
            times = times[order]
            centre, scale = mean[t, real, p][order], np.sqrt(variance[t, real, p][order])
            hole = ~user.table.observed[t, real, p][order]
            low, high = centre - INTERVAL * scale, centre + INTERVAL * scale
            values = user.table.Y[t, real, p][order]
            axis.plot(times, values, "k.", markersize=3, label="observed")
            axis.vlines(times[hole], low[hole], high[hole], color="C0", alpha=0.3)
            axis.plot(times[hole], centre[hole], "C0.", markersize=4, label="filled, 90 %")
            if np.issubdtype(times.dtype, np.datetime64):  # whole dates would overlap
                locator = mdates.AutoDateLocator()
                axis.xaxis.set_major_locator(locator)
                axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
            axis.set_ylabel(name)
            axis.set_title(user.tasks[t], fontsize=9, loc="left")
        axes[0].legend(fontsize=8, ncols=2)
        figures[name] = figure
    return figures
