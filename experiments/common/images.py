"""Rows of images with maps of their uncertainty, and figures as small PNG files."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from PIL import Image


def save_png(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Write a figure with a palette of 256 colours, which takes a third of the bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    image = Image.open(drawn).convert("RGB")
    method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    image.quantize(256, method, kmeans=5, dither=dither).save(path, format="PNG", optimize=True)


def plot_images(
    titles: Sequence[str],
    rows: Mapping[str, np.ndarray],
    maps: Mapping[str, tuple[np.ndarray, str]],
) -> Figure:
    """Draw rows of images in [0, 1], then rows of maps, each with a colour bar.

    :param titles: titles of the N columns.
    :param rows: grey images [N, side, side], with a colour bar, or colour images
        [N, side, side, 3], by the label of their row.
    :param maps: values [N, side, side] and the label of their colour bar, by the label of the row.
    """
    count, columns = len(rows) + len(maps), len(titles)
    figure = Figure(figsize=(columns + 2.6, 1.05 * count + 0.5), layout="constrained")
    axes = figure.subplots(count, columns, squeeze=False)
    for line, (name, images) in zip(axes, rows.items(), strict=False):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, image in zip(line, np.clip(images, 0.0, 1.0), strict=True):
            shown = axis.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    if next(iter(rows.values())).ndim == 3:
        figure.colorbar(shown, ax=axes[: len(rows)].ravel().tolist(), label="grey value")
    for line, (name, (values, label)) in zip(axes[len(rows) :], maps.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        top = max(float(values.max()), 1e-12)
        for axis, image in zip(line, values, strict=True):
            shown = axis.imshow(image, cmap="viridis", vmin=0.0, vmax=top)
        figure.colorbar(shown, ax=line.tolist(), label=label, aspect=6)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize="x-small")
    return figure
