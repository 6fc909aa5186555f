"""Figures of the GPLVM studies."""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["codes", "posteriors", "reconstructions"]

_DPI = 100


def _save(figure: Any, path: pathlib.Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def codes(
    path: pathlib.Path, posterior: Any, labels: np.ndarray, relevance: np.ndarray | None = None
) -> None:
    """Mean codes in the two most relevant dimensions, coloured by label."""
    mean, _ = posterior.moments(20)
    chosen = [0, min(1, mean.shape[1] - 1)]
    if relevance is not None:
        chosen = np.argsort(-relevance)[:2].tolist()
    figure, axis = plt.subplots(figsize=(5, 4.5))
    colours = axis.scatter(*mean[:, chosen].T, c=labels, s=6, cmap="tab10", vmin=0, vmax=9)
    axis.set_xlabel(f"latent dimension {chosen[0]}")
    axis.set_ylabel(f"latent dimension {chosen[1]}")
    axis.legend(*colours.legend_elements(), fontsize=7, title="label")
    _save(figure, path)


def posteriors(path: pathlib.Path, posterior: Any, num_points: int = 6) -> None:
    """Draws from q(x_n) of the points whose posterior is widest, over all codes in grey."""
    draws = posterior.sample(400)
    centre, spread = draws.mean(0), draws.var(0).sum(-1)
    figure, axes = plt.subplots(2, num_points // 2, figsize=(2.6 * num_points / 2, 5))
    for axis, n in zip(axes.flat, np.argsort(-spread), strict=False):
        axis.scatter(*centre[:, :2].T, s=1, c="0.85")
        axis.scatter(*draws[:, n, :2].T, s=3, alpha=0.5)
        axis.set_title(f"image {n}", fontsize=8)
        axis.set_xticks([])
        axis.set_yticks([])
    _save(figure, path)


def reconstructions(path: pathlib.Path, posterior: Any, images: Any, num_images: int = 8) -> None:
    """In columns: what was seen (holes in red), three draws of the filled image, the truth."""
    draws = posterior.sample(3)[:, :num_images]
    filled = [np.asarray(posterior.model.predict_f(x)[0]) for x in draws]
    rows = [images.Y[:num_images], *filled, images.truth[:num_images]]
    side = int(np.sqrt(images.Y.shape[1]))
    names = ["seen", "draw 1", "draw 2", "draw 3", "truth"]
    figure, axes = plt.subplots(len(rows), num_images, figsize=(num_images, len(rows)))
    palette = plt.get_cmap("gray").copy()
    palette.set_bad("tab:red")
    for name, line, values in zip(names, axes, rows, strict=True):
        for axis, image in zip(line, values, strict=True):
            axis.imshow(np.ma.masked_invalid(image.reshape(side, side)), palette, vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(name, fontsize=8)
    _save(figure, path)
