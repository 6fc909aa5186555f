"""Figures of a run: the tissue by domains, and a gene before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common.curves import plot_losses
from experiments.common.driver import Outcome


def draw(outcome: Outcome, train: Any, found: np.ndarray) -> None:
    """Draw the figures of the training cells.

    :param found: clusters of the codes.
    """
    outcome.figures["domains"] = _domains(train, found)
    if "gpbae_mean" in train.layers:
        outcome.figures["gene"] = _gene(train)
    outcome.figures["loss"] = plot_losses(
        outcome.curves, {"loss": ("record of the fit", "training loss per cell")}
    )


def _panels(number: int, places: np.ndarray) -> tuple[Figure, Any]:
    width, height = np.ptp(places, axis=0)
    # Panels beside each other where the tissue is tall, below each other where it is wide.
    rows, columns = (number, 1) if width > height else (1, number)
    shape = height / width
    unit = 6.0 if width > height else 4.0
    size = (columns * unit, rows * min(max(unit * shape, 2.0), 9.0) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def _scatter(axis: Any, places: np.ndarray, **colours: Any) -> Any:
    shown = axis.scatter(*places.T, s=5, linewidths=0, **colours)
    axis.set(aspect="equal", xticks=[], yticks=[])
    return shown


def _domains(train: Any, found: np.ndarray) -> Figure:
    """Annotated ones, and clusters coloured as the domain that most of their cells are of."""
    places = train.obsm["spatial"]
    names, labels = np.unique(train.obs["domain"].astype(str), return_inverse=True)
    figure, axes = _panels(2, places)
    colours = {"cmap": "tab20", "vmin": -0.5, "vmax": 19.5}
    axes[0].set_title("domains, as annotated")
    for i, name in enumerate(names):
        own = labels == i
        _scatter(axes[0], places[own], c=np.full(own.sum(), i), label=name, **colours)
    axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=3, fontsize="x-small")
    of_clusters = [np.bincount(labels[found == k]).argmax() for k in range(found.max() + 1)]
    axes[1].set_title("k-means of places' rates")
    _scatter(axes[1], places, c=np.array(of_clusters)[found], **colours)
    return figure


def _gene(train: Any) -> Figure:
    """The gene whose denoised rates vary most over its noise: counts, rates, and interval."""
    rates = train.layers["gpbae_mean"]
    spread = np.std(np.log1p(rates), 0)
    gene = int(np.argmax(spread))
    size = np.asarray(train.X.sum(1), float)[:, 0]
    counts = np.asarray(train.X[:, gene].todense(), float)[:, 0] / (size / np.median(size))
    width = train.layers["gpbae_upper"][:, gene] - train.layers["gpbae_lower"][:, gene]
    figure, axes = _panels(3, train.obsm["spatial"])
    top = float(np.quantile(rates[:, gene], 0.99))
    panels = {
        f"{train.var_names[gene]}: counts per size": (counts, top),
        "expected at median size": (rates[:, gene], top),
        "width of its 90 % interval": (width, float(np.quantile(width, 0.99))),
    }
    for axis, (title, (values, most)) in zip(axes, panels.items(), strict=True):
        axis.set_title(title)
        shown = _scatter(
            axis, train.obsm["spatial"], c=values, cmap="viridis", vmin=0.0, vmax=max(most, 1e-9)
        )
        figure.colorbar(shown, ax=axis, label="counts")
    return figure
