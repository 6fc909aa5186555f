"""Figures of a run of the SPRITES experiment, drawn at its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.common.curves import plot_losses
from experiments.common.driver import Outcome
from experiments.common.images import plot_images
from experiments.sprites.networks import CHANNELS
from experiments.sprites.scores import Generated
from gpflow_bae import plotting

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
    """Frames in colour, and maps of them."""
    made = drawn.made
    images = {"truth": drawn.truth, "mean": made.mean, "one draw": made.one_draw}
    error, variance = np.square(made.mean - drawn.truth), made.epistemic_variance
    maps = {
        "epistemic\nstd": (np.sqrt(_over_channels(variance)), "std\n(colour)"),
        "squared\nerror": (_over_channels(error), "error\n(colour²)"),
    }
    names = [f"{character}, pose {pose}" for character, pose in drawn.X.astype(int)]
    return plot_images(names, {k: _as_images(v) for k, v in images.items()}, maps)


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
