"""What was hidden, and what was said of it."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

__all__ = ["sequences", "series"]

_SHOWN = 300  # times of a long series
_SEQUENCES = 4


def series(
    X: np.ndarray, Y: np.ndarray, truth: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> Any:
    """The first outputs at the first times: truth, what was seen, and 90 % intervals around means.

    :param X: times [N, 1] in order.
    :param Y: [N, P], NaN where hidden, and so are ``truth``, ``mean`` and ``variance``.
    """
    figure, axes = plt.subplots(3, 1, figsize=(8.0, 5.4), sharex=True, layout="constrained")
    t, part = X[:_SHOWN, 0], slice(_SHOWN)
    for p, axis in enumerate(axes):
        width = 1.6448536 * np.sqrt(variance[part, p])
        low, high = mean[part, p] - width, mean[part, p] + width
        axis.fill_between(t, low, high, alpha=0.3, label="90 % of observations")
        axis.plot(t, mean[part, p], label="prediction")
        axis.plot(t, truth[part, p], "k--", lw=0.8, label="truth, without noise")
        axis.plot(t, Y[part, p], "k.", ms=3, label="seen")
        axis.set_ylabel(f"output {p + 1}")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=4, fontsize="small", loc="outside upper center")
    axes[-1].set_xlabel("time (shorter lengthscale: 1)")
    plt.close(figure)
    return figure


def sequences(
    X: np.ndarray, Y: np.ndarray, truth: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> Any:
    """Some sequences, three rows each: truth, what was seen (grey where missing), and means.

    :param Y: [T, N, P] of square images, NaN where missing; ``truth`` and ``mean`` likewise.
    """
    side = int(np.sqrt(Y.shape[-1]))
    count = min(_SEQUENCES, len(Y))
    rows = np.stack([truth[:count], np.where(np.isnan(Y), 0.5, Y)[:count], mean[:count]], axis=1)
    rows = rows.reshape(3 * count, -1, side, side)
    tiled = np.pad(rows, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=0.5)
    picture = tiled.transpose(0, 2, 1, 3).reshape(3 * count * (side + 2), -1)
    shape = picture.shape
    figure, axis = plt.subplots(figsize=(6.0, 6.0 * shape[0] / shape[1]), layout="constrained")
    axis.imshow(picture, cmap="gray_r", vmin=0.0, vmax=1.0)
    axis.set_xticks([])
    names = ["truth", "seen", "filled"] * count
    axis.set_yticks((np.arange(3 * count) + 0.5) * (side + 2), names, fontsize="small")
    plt.close(figure)
    return figure
