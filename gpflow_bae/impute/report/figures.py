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

from ..reading.indicators import Indicator
from ..reading.kinds.column_kind import ColumnKind
from ..reading.user_table import CellPredictions, UserTable

__all__ = ["draw", "file_names", "to_png"]

_TASKS_DRAWN = 3
_WIDTH = 6.4  # inches; letters are still legible on a telephone
_DENSE = 1500  # number of rows from which marks are small


def draw(user: UserTable, predicted: CellPredictions, *, as_map: bool = False) -> dict[str, Figure]:
    """Figures of each output: its observed values, its filled values, and the 90 % interval.

    :param predicted: of all cells [T, N, P], in the units of the outputs.
    :param as_map: whether the first two inputs are the axes of a map; else the first one is the
        horizontal axis.
    :return: by the output's name; the three tasks of each that have most holes. Columns of
        categories have none.
    """
    return {
        kind.name: _figure(user, predicted, p, kind, as_map)
        for p, kind in enumerate(user.columns.kinds)
        if not isinstance(kind.name, Indicator)
    }


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; a warning for each would be too much.
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from", category=UserWarning)
        figure.savefig(buffer, dpi=150, format="png")
    return buffer.getvalue()


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Different parts of file names for columns of any names.

    Letters and digits of any alphabet stay, as do ``-`` and ``.`` inside; all else becomes ``_``.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", str(name))).strip("_.-")
        # At most 100 bytes, of the 255 that a file name may have.
        plain = plain[:60].encode()[:100].decode(errors="ignore") or "column"
        choice, number = plain, 1
        while choice.casefold() in taken:  # some file systems ignore capitals
            number += 1
            choice = f"{plain}_{number}"
        taken.add(choice.casefold())
        found[name] = choice
    return found


def _figure(
    user: UserTable, predicted: CellPredictions, p: int, kind: ColumnKind, as_map: bool
) -> Figure:
    holes = np.count_nonzero(~user.table.observed[..., p] & user.table.rows, axis=1)
    tasks = sorted(np.argsort(-holes, kind="stable")[:_TASKS_DRAWN].tolist())
    height = 4.2 * len(tasks) if as_map else 0.5 + 1.9 * len(tasks)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots(len(tasks), 1, squeeze=False)[:, 0]
    names = [_plain(name, 40 if as_map else 60) for name in user.inputs or ("row",)]
    for t, axis in zip(tasks, axes, strict=True):
        real = user.table.rows[t]
        rows, observed = user.rows[t, real], user.table.Y[t, real, p]
        # Values and intervals as the filled table has them.
        value, _, low, high = kind.settle(*(moment[t, real, p] for moment in predicted))
        if as_map:
            shown = _draw_map(axis, user.X[rows, :2], observed, value)
            figure.colorbar(shown, ax=axis, label=_plain(kind.name, 40))
            axis.set_xlabel(names[0])
            axis.set_ylabel(names[1])
        else:
            _draw_series(
                axis,
                user.times[rows],
                observed,
                value,
                low,
                high,
                band=not kind.whole and bool(user.inputs),
            )
            axis.set_ylabel(_plain(kind.name, 24))
        if user.tasks[t]:
            axis.set_title(_plain(user.tasks[t], 60), fontsize=9, loc="left")
    if not as_map:
        axes[-1].set_xlabel(names[0])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=3, frameon=False, loc="outside upper right")
    return figure


def _draw_series(
    axis: Axes,
    times: np.ndarray,
    observed: np.ndarray,
    value: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    band: bool,
) -> None:
    """Draw marks at the cells, and intervals of missing ones.

    An interval is a band over each gap, and a vertical line at a single cell.

    :param band: whether intermediate times have values; else every cell has a line.
    """
    order = np.argsort(times, kind="stable")
    times, observed, value, low, high = (
        array[order] for array in (times, observed, value, low, high)
    )
    hole = np.isnan(observed)
    size = 3.0 if len(times) < _DENSE else 1.2
    axis.plot(times, observed, "k.", markersize=size, label="observed")
    axis.plot(times[hole], value[hole], "C0.", markersize=size + 0.5, label="filled", zorder=3)
    label = "90 % interval"
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hole.astype(int), [0]])))
    for start, stop in edges.reshape(-1, 2):
        gap = slice(start, stop)
        look: Any = {"color": "C0", "alpha": 0.3, "label": label}
        if stop - start == 1 or not band:
            axis.vlines(times[gap], low[gap], high[gap], **look)
        else:
            axis.fill_between(times[gap], low[gap], high[gap], linewidth=0, **look)
        label = "_nolegend_"
    if np.issubdtype(times.dtype, np.datetime64):  # whole dates would overlap
        locator = mdates.AutoDateLocator(minticks=3, maxticks=7)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))


def _draw_map(axis: Axes, places: np.ndarray, observed: np.ndarray, value: np.ndarray) -> Any:
    """Marks at places [rows, 2], coloured by their values; returns those of observed cells."""
    hole = np.isnan(observed)
    value = np.where(hole, value, observed)
    limits: Any = {"vmin": np.quantile(value, 0.01), "vmax": np.quantile(value, 0.99)}
    x, y = places.T
    shown = axis.scatter(
        x[~hole], y[~hole], c=value[~hole], s=14, linewidths=0, label="observed", **limits
    )
    look: Any = {"marker": "s", "edgecolors": "k", "linewidths": 0.6} | limits
    axis.scatter(x[hole], y[hole], c=value[hole], s=26, label="filled", **look)
    return shown


def _plain(text: str, longest: int) -> str:
    """Text cut to a length, whose dollar signs matplotlib does not typeset as formulas."""
    text = str(text)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")
