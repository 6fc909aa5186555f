"""Figures of the GPLVM studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from experiments.common.curves import plot_losses

_MARKERS = "os^DvPX<>*"


def codes(
    posterior: Any,
    labels: np.ndarray,
    relevance: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    title: str = "digit",
) -> Figure:
    """Mean codes in the two most relevant dimensions, coloured by label.

    :param names: of the labels 0, 1, ...; by default the numbers.
    :param title: what the labels are.
    """
    mean, _ = posterior.moments(20)
    chosen = [0, min(1, mean.shape[1] - 1)]
    if relevance is not None:
        chosen = np.argsort(-relevance)[:2].tolist()
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axis = figure.subplots()
    for label in np.unique(labels):
        of_label = mean[labels == label][:, chosen].T
        name = str(label) if names is None else names[label]
        color = colormaps["tab10"](int(label))
        axis.scatter(*of_label, color=color, s=6, marker=_MARKERS[label], label=name)
    shares = [""] * 2 if relevance is None else [f" (relevance {relevance[i]:.2f})" for i in chosen]
    axis.set(
        xlabel=f"latent dimension {chosen[0]}{shares[0]}",
        ylabel=f"latent dimension {chosen[1]}{shares[1]}",
        title="posterior mean of each code",
    )
    figure.legend(loc="outside right upper", fontsize="small", title=title, markerscale=2)
    return figure


def posteriors(posterior: Any, num_points: int = 6) -> Figure:
    """Draws from q(x_n) of the points whose posterior is widest, over all codes in grey."""
    draws = posterior.sample(400)
    centre, spread = draws.mean(0), draws.var(0).sum(-1)
    figure = Figure(figsize=(2.6 * num_points / 2, 5), layout="constrained")
    figure.suptitle(
        "draws of the codes that are least certain (blue), among the means of all (grey)",
        fontsize="small",
    )
    axes = figure.subplots(2, num_points // 2)
    for axis, n in zip(axes.flat, np.argsort(-spread), strict=False):
        axis.scatter(*centre[:, :2].T, s=1, c="0.85")
        axis.scatter(*draws[:, n, :2].T, s=3, alpha=0.5)
        axis.set_title(f"image {n}", fontsize=8)
        axis.set(xticks=[], yticks=[])
    return figure


def reconstructions(posterior: Any, images: Any, num_images: int = 8) -> Figure:
    """Draw each image as it was seen (holes in red), three draws of it filled, and the truth."""
    draws = posterior.sample(3)[:, :num_images]
    filled = [np.asarray(posterior.model.predict_f(x)[0]) for x in draws]
    rows = [images.Y[:num_images], *filled, images.truth[:num_images]]
    side = int(np.sqrt(images.Y.shape[1]))
    names = ["seen", "draw 1", "draw 2", "draw 3", "truth"]
    figure = Figure(figsize=(num_images, len(rows) + 0.3), layout="constrained")
    figure.suptitle("red: pixels that were hidden; draw 1 to 3: of the code, decoded", fontsize=9)
    axes = figure.subplots(len(rows), num_images)
    palette = colormaps["gray"].with_extremes(bad="tab:red")
    for name, line, values in zip(names, axes, rows, strict=True):
        for axis, image in zip(line, values, strict=True):
            axis.imshow(np.ma.masked_invalid(image.reshape(side, side)), palette, vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=8)
    return figure


def losses(values: Sequence[float]) -> Figure:
    """Loss per row along the fit, a record for each block of its steps."""
    words = ("block of 100 steps of Adam", "loss per row (nats)")
    return plot_losses({"loss": values}, {"loss": words})
