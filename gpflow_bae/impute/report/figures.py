"""Figures of a filled table."""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..reading.columns import ColumnKind
from ..reading.user_table import CellPredictions, UserTable

__all__ = ["draw", "file_names", "to_png"]

_TASKS_DRAWN = 3
_WIDTH = 6.4  # inches; on a telephone's screen the letters are still legible
_DENSE = 1500  # rows from which on the marks are small


def draw(user: UserTable, predicted: CellPredictions, *, as_map: bool = False) -> dict[str, Figure]:
    """A figure for each output: what was there, what was filled in, and the 90 % interval.

    :param predicted: of all cells [T, N, P], in the units of the outputs.
    :param as_map: whether the first two inputs are the axes of a map; else the first one is the
        horizontal axis.
    :return: by the output's name; the three tasks of each that have most holes.
    """
    return {
        kind.name: _map(user, predicted, p) if as_map else _series(user, predicted, p)
        for p, kind in enumerate(user.kinds)
    }


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes, which needs no warning for each.
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from", category=UserWarning)
        figure.savefig(buffer, dpi=dpi, format="png")
    return buffer.getvalue()


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Parts of file names for columns, which may have any name; different for each.

    Letters and digits of any alphabet stay, as do ``-`` and ``.`` inside; all else becomes ``_``.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", str(name))).strip("_.-")
        plain = plain[:60] or "column"
        choice, number = plain, 1
        while choice.casefold() in taken:  # some file systems know no capitals
            number += 1
            choice = f"{plain}_{number}"
        taken.add(choice.casefold())
        found[name] = choice
    return found


def _series(user: UserTable, predicted: CellPredictions, p: int) -> Figure:
    tasks = _tasks(user, p)
    figure = Figure(figsize=(_WIDTH, 0.5 + 1.9 * len(tasks)), layout="constrained")
    axes = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
    for t, axis in zip(tasks, axes, strict=True):
        real = user.rows[t] >= 0
        times = user.times[user.rows[t][real]]
        order = np.argsort(times, kind="stable")
        times = times[order]
        hole = ~user.table.observed[t, real, p][order]
        value, low, high = (a[order] for a in _settled(user.kinds[p], predicted, t, real, p))
        size = 3.0 if len(times) < _DENSE else 1.2
        values = user.table.Y[t, real, p][order]
        axis.plot(times, values, "k.", markersize=size, label="observed")
        axis.plot(times[hole], value[hole], "C0.", markersize=size + 0.5, label="filled", zorder=3)
        _intervals(axis, times, low, high, hole, band=not user.kinds[p].whole)
        if np.issubdtype(times.dtype, np.datetime64):  # whole dates would overlap
            locator = mdates.AutoDateLocator(minticks=3, maxticks=7)
            axis.xaxis.set_major_locator(locator)
            axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
        axis.set_ylabel(_plain(user.kinds[p].name, 24))
        if user.tasks[t]:
            axis.set_title(_plain(user.tasks[t], 60), fontsize=9, loc="left")
    axes[-1].set_xlabel(_plain(user.table.input_names[0], 60))
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        fontsize=8,
        ncols=3,
        frameon=False,
        loc="outside upper right",
    )
    return figure


def _intervals(
    axis: Axes,
    times: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    hole: np.ndarray,
    *,
    band: bool,
) -> None:
    """A band over each gap; lines at single cells, and where there is nothing between cells."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hole.astype(int), [0]])))
    label = "90 % interval"
    for start, stop in edges.reshape(-1, 2):
        gap = slice(start, stop)
        look: Any = {"color": "C0", "alpha": 0.3, "label": label}
        if stop - start == 1 or not band:
            axis.vlines(times[gap], low[gap], high[gap], **look)
        else:
            axis.fill_between(times[gap], low[gap], high[gap], linewidth=0, **look)
        label = "_nolegend_"


def _map(user: UserTable, predicted: CellPredictions, p: int) -> Figure:
    tasks = _tasks(user, p)
    figure = Figure(figsize=(_WIDTH, 4.2 * len(tasks)), layout="constrained")
    axes = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
    X = user.table.X * user.scale + user.centre
    for t, axis in zip(tasks, axes, strict=True):
        real = user.rows[t] >= 0
        hole = ~user.table.observed[t, real, p]
        value = np.where(
            hole, _settled(user.kinds[p], predicted, t, real, p)[0], user.table.Y[t, real, p]
        )
        limits: Any = {"vmin": np.quantile(value, 0.01), "vmax": np.quantile(value, 0.99)}
        place = X[t, real]
        shown = axis.scatter(
            *place[~hole, :2].T, c=value[~hole], s=14, linewidths=0, label="observed", **limits
        )
        axis.scatter(
            *place[hole, :2].T,
            c=value[hole],
            s=26,
            marker="s",
            edgecolors="k",
            linewidths=0.6,
            label="filled",
            **limits,
        )
        figure.colorbar(shown, ax=axis, label=_plain(user.kinds[p].name, 40))
        axis.set_xlabel(_plain(user.table.input_names[0], 40))
        axis.set_ylabel(_plain(user.table.input_names[1], 40))
        if user.tasks[t]:
            axis.set_title(_plain(user.tasks[t], 60), fontsize=9, loc="left")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        fontsize=8,
        ncols=2,
        frameon=False,
        loc="outside upper right",
    )
    return figure


def _tasks(user: UserTable, p: int) -> list[int]:
    """The tasks with most holes, in their order."""
    holes = np.count_nonzero(~user.table.observed[..., p] & user.table.rows, axis=1)
    return sorted(np.argsort(-holes, kind="stable")[:_TASKS_DRAWN].tolist())


def _settled(
    kind: ColumnKind, predicted: CellPredictions, t: int, real: np.ndarray, p: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and ends of intervals as the filled table has them."""
    value, _, low, high = kind.settle(*(array[t, real, p] for array in predicted))
    return value, low, high


def _plain(text: str, longest: int) -> str:
    """Text that is not typeset as a formula, and not longer than there is room for."""
    text = str(text)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")
