"""Figures of a run of the SPRITES experiment, drawn at its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.common.curves import plot_losses
from experiments.common.driver import Outcome
from experiments.sprites.networks import CHANNELS
from experiments.sprites.scores import Generated
from gpflow_bae import plotting

__all__ = ["Drawn", "draw"]

MSE = "MSE per pixel and channel"
PUBLISHED = 0.0079  # Jazbec et al. (2021), SVGP-VAE


class Drawn(NamedTuple):
    """Some frames: who in which pose [N, 2], as they are [N, P], and as they were generated."""

    X: np.ndarray
    truth: np.ndarray
    made: Generated


def draw(outcome: Outcome, drawn: Drawn) -> None:
    """The figures of one run, and the arrays that they are drawn from."""
    made = drawn.made
    outcome.arrays = {
        "X": drawn.X.astype(np.float32),
        "truth": drawn.truth.astype(np.float16),
        "mean": made.mean.astype(np.float16),
        "one_draw": made.one_draw.astype(np.float16),
        "epistemic_variance": made.epistemic_variance.astype(np.float32),
    }
    outcome.figures["generated"] = _plot_frames(drawn)
    curves = outcome.curves
    if curves.get("mse"):
        figure, axis = plotting.single_axis("training time (s)", MSE)
        axis.plot(curves["seconds"], curves["mse"], marker=".", label="some test frames")
        axis.axhline(PUBLISHED, color=plotting.GREY, ls=":", label=f"published, {PUBLISHED}")
        axis.set_yscale("log")
        axis.legend(frameon=False)
        outcome.figures["curve"] = figure
    if any(len(curves.get(name, ())) for name in _LOSSES):
        outcome.figures["loss"] = plot_losses(curves, _LOSSES)


def _plot_frames(drawn: Drawn) -> Figure:
    """Rows of frames in colour, then maps of them, which have a colour bar each."""
    made = drawn.made
    images = {"truth": drawn.truth, "mean": made.mean, "one draw": made.one_draw}
    error, variance = np.square(made.mean - drawn.truth), made.epistemic_variance
    maps = {
        "epistemic\nstd": (np.sqrt(_over_channels(variance)), "std\n(colour)"),
        "squared\nerror": (_over_channels(error), "error\n(colour²)"),
    }
    count, columns = len(images) + len(maps), len(drawn.X)
    figure = Figure(figsize=(columns + 2.6, 1.05 * count + 0.5), layout="constrained")
    axes = figure.subplots(count, columns, squeeze=False)
    for row, (name, values) in zip(axes, images.items(), strict=False):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, image in zip(row, np.clip(_as_images(values), 0.0, 1.0), strict=True):
            axis.imshow(image)
    for row, (name, (values, label)) in zip(axes[len(images) :], maps.items(), strict=True):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
        top = max(float(values.max()), 1e-12)
        for axis, image in zip(row, values, strict=True):
            shown = axis.imshow(image, cmap="viridis", vmin=0.0, vmax=top)
        figure.colorbar(shown, ax=row.tolist(), label=label, aspect=6)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for axis, (character, pose) in zip(axes[0], drawn.X.astype(int), strict=True):
        axis.set_title(f"{character}, pose {pose}", fontsize="x-small")
    return figure


def _as_images(values: np.ndarray) -> np.ndarray:
    """[N, P] to [N, side, side, channels]."""
    side = round((values.shape[1] / CHANNELS) ** 0.5)
    return values.reshape(-1, side, side, CHANNELS)


def _over_channels(values: np.ndarray) -> np.ndarray:
    return _as_images(values).mean(-1)


_LOSSES = {
    "classifier_loss": ("step of the classifier", "log loss per frame (nats)"),
    "variational_loss": ("record of the fit", "training loss per frame"),
}
