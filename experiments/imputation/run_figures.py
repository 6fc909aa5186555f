"""Figures of one run on a table: hidden cells, their prediction, and its uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

from experiments.common import plans
from experiments.common.curves import plot_losses
from experiments.common.scores import TablePrediction
from gpflow_bae import plotting
from gpflow_bae.data import MultiOutputTable

_FRAMES = 120  # drawn frames of a sequence
_FILMED = 3  # every third frame is in the film, because noise makes large files
# Units of the outputs of tables, if all have the same.
UNITS = {"jura": "ppm", "eeg": "µV", "eeg_large": "µV", "japan_weather": "°C"}


def draw(name: str, table: MultiOutputTable, prediction: TablePrediction) -> dict[str, Figure]:
    """Draw the figures of a table, by name.

    Lines are medians and bands lie between quantiles, as in the scores.

    :param table: table with the predicted test cells.
    """
    if name == "bouncing_ball":
        return {"frames": frames(table, prediction.mean)}
    if table.X.shape[-1] == 1:
        return {"series": series(table, prediction, UNITS.get(name, ""))}
    return {}


def series(table: MultiOutputTable, prediction: TablePrediction, unit: str = "") -> Figure:
    """Draw a task's three outputs with most test cells: observed, hidden and predicted values."""
    counts = table.test_mask.sum(1)  # [T, P]
    task = int(np.argmax(counts.sum(1)))
    outputs = [int(p) for p in np.argsort(-counts[task], kind="stable")[:3] if counts[task, p]]
    rows = slice(0, int(table.lengths[task]))
    x = table.X[task, rows, 0]
    order = np.argsort(x)
    quantiles = [prediction.quantile(q)[task, rows] for q in (0.05, 0.5, 0.95)]
    figure = Figure(figsize=(10.0, 2.3 * len(outputs) + 0.7), layout="constrained")
    panels = figure.subplots(len(outputs), 1, sharex=True, squeeze=False)[:, 0]
    for axis, p in zip(panels, sorted(outputs), strict=True):
        lower, middle, upper = (values[order, p] for values in quantiles)
        band = {"color": plotting.VERMILION, "alpha": 0.25, "linewidth": 0}
        axis.fill_between(x[order], lower, upper, label="its central 90 %", **band)
        axis.plot(x[order], middle, color=plotting.VERMILION, ls="--", label="predicted")
        hidden = np.where(table.test_mask[task, rows, p], table.truth[task, rows, p], np.nan)
        seen = table.Y[task, rows, p]
        for values, color, label in ((seen, "black", "seen"), (hidden, plotting.BLUE, "hidden")):
            axis.plot(x[order], values[order], ".", color=color, markersize=4, label=label)
        axis.set_ylabel(table.output_names[p] + (f" ({unit})" if unit else ""))
        axis.margins(x=0.01)
    panels[-1].set_xlabel(table.input_names[0])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _window(table: MultiOutputTable) -> tuple[int, slice]:
    """Return the sequence with most hidden frames, and its frames around the first hidden one."""
    hidden = table.test_mask.any(-1)
    task = int(np.argmax(hidden.sum(1)))
    length = len(hidden[task])
    unseen = np.flatnonzero(np.isnan(table.Y[task]).all(-1))
    first = int(unseen[0]) if len(unseen) else 0
    start = max(0, min(first - _FRAMES // 3, length - _FRAMES))
    return task, slice(start, min(start + _FRAMES, length))


def _panels(
    table: MultiOutputTable, mean: np.ndarray, task: int, rows: slice
) -> list[tuple[str, np.ndarray]]:
    """Return titles and images [P, frames] of observed, predicted and true values."""
    seen = "seen (grey: not seen)"
    images = {seen: table.Y, "predicted": mean, "truth": table.truth}
    return [(title, np.ma.masked_invalid(v[task, rows].T)) for title, v in images.items()]


def _limits(table: MultiOutputTable, task: int) -> tuple[float, float]:
    return float(np.nanmin(table.truth[task])), float(np.nanmax(table.truth[task]))


def frames(table: MultiOutputTable, mean: np.ndarray) -> Figure:
    """Draw observed, predicted and true frames of a sequence, each a column of pixels."""
    task, rows = _window(table)
    figure = Figure(figsize=(11.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axis, (title, image) in zip(panels, _panels(table, mean, task, rows), strict=True):
        extent = (rows.start - 0.5, rows.stop - 0.5, -0.5, len(image) - 0.5)
        style = {"aspect": "auto", "origin": "lower", "cmap": "viridis", "extent": extent}
        shown = axis.imshow(image, **style)
        shown.set_clim(*_limits(table, task))
        axis.set_facecolor("0.9")
        axis.set(xlabel="frame")
        axis.set_title(title, fontsize="medium")
    panels[0].set_ylabel("pixel")
    figure.colorbar(shown, ax=panels.tolist(), label="grey value")
    return figure


def film(table: MultiOutputTable, mean: np.ndarray) -> FuncAnimation:
    """Make a film of the same sequence: columns of observed, predicted and true pixels."""
    task, rows = _window(table)
    parts = _panels(table, mean, task, rows)
    figure = Figure(figsize=(3.2, 2.8), dpi=60, layout="constrained")
    panels, columns = figure.subplots(1, 3, sharey=True), []
    panels[0].set_ylabel("pixel")
    for axis, (title, image) in zip(panels, parts, strict=True):
        shown = axis.imshow(image[:, :1], aspect="auto", origin="lower", cmap="viridis")
        shown.set_clim(*_limits(table, task))
        axis.set_facecolor("0.85")
        axis.set(xticks=[])
        axis.set_title(title.split(" (")[0], fontsize="medium")
        columns.append((shown, image))
    heading = figure.suptitle("", fontsize="medium")

    def draw(number: int) -> list[Any]:
        for shown, image in columns:
            shown.set_data(image[:, number : number + 1])
        heading.set_text(f"frame {rows.start + number}")
        return [shown for shown, _ in columns]

    shown = range(0, rows.stop - rows.start, _FILMED)
    return FuncAnimation(figure, draw, frames=shown, interval=150)


def ahead(errors: list[float]) -> Figure:
    """Draw mean absolute errors by the number of frames after the last observed one."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot(np.arange(1, len(errors) + 1), errors, color=plotting.BLUE)
    axis.set(xlabel="frames ahead of the last one seen", ylabel="mean absolute error (grey value)")
    axis.set_ylim(bottom=0.0)
    return figure


def fit(plan: Any, posterior: Any) -> dict[str, Figure]:
    """Draw the loss of the fit, and both parts of a chain's log density."""
    figures = {}
    curves = plans.chain_curves(posterior)
    if curves.get("variational_loss"):
        words = ("block of 50 steps of Adam", "negative bound per row (nats)")
        figures["loss"] = plot_losses(curves, {"variational_loss": words})
    if plan.sampler is not None:
        figures["chain"] = plans.chain_figure(posterior, plan.schedule)
    return figures
