"""Weights and variances by how well gaps were predicted that nobody had seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..gaps import HiddenGaps

__all__ = ["Trial", "calibrate", "stacked"]

_INTERVAL = 1.6448536269514722
_TRUST = 10.0  # gaps of a column from which its own calibration weighs as much as everybody's
_LEAST, _MOST = 0.25, 16.0  # of what variances are multiplied by


class Trial(NamedTuple):
    """Hidden gaps, and moments [T, N, P] of their cells by models and by rows alone."""

    gaps: HiddenGaps
    smooth: tuple[np.ndarray, np.ndarray]
    of_rows: tuple[np.ndarray, np.ndarray]

    @property
    def mask(self) -> np.ndarray:
        """Which cells were hidden: Booleans [T, N, P]."""
        return self.gaps.table.test_mask


@check_shapes("truth: [T, N, P]", "Z: [T, N, P]", "return[0]: [P]", "return[1]: [P]")
def calibrate(
    trials: Sequence[Trial], truth: np.ndarray, Z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights of the models, what variances are multiplied by, and the error that is left.

    :param truth: the values that trials predict.
    :param Z: the same before the trend was taken away, about which column means are zero.
    :return: without trials ones, ones and NaN. The error is a share of that of column means.
    """
    if not trials:
        return np.ones(Z.shape[-1]), np.ones(Z.shape[-1]), np.nan
    weight = _weights(trials, truth)
    missed, ratios, total, spread = [], [], 0.0, 0.0
    for trial in trials:
        mean, variance = stacked(weight, trial.smooth, trial.of_rows)
        missed.append(np.abs(truth - mean))
        ratios.append(missed[-1] / np.sqrt(variance))
        total += float(np.sum(np.square(missed[-1][trial.mask])))
        spread += float(np.sum(np.square(Z[trial.mask])))

    def scale(values: list[np.ndarray]) -> float:
        return 2.0 * float(np.log(np.quantile(np.concatenate(values), 0.9) / _INTERVAL + 1e-12))

    found = np.exp(_by_column(trials, ratios, scale))
    error = float(np.sqrt(total / spread)) if spread > 0.0 else np.nan
    return weight, np.clip(found, _LEAST, _MOST), error


def _weights(trials: Sequence[Trial], truth: np.ndarray) -> np.ndarray:
    """Of the models [P]: those with the least squared error, in [0, 1] (Breiman 1996)."""
    pairs = [np.stack([t.smooth[0] - t.of_rows[0], truth - t.of_rows[0]], axis=-1) for t in trials]

    def least_squares(values: list[np.ndarray]) -> float:
        apart, missed = np.concatenate(values).T
        squares = float(np.sum(np.square(apart)))
        return float(np.sum(apart * missed)) / squares if squares > 0.0 else 1.0

    return np.clip(_by_column(trials, pairs, least_squares), 0.0, 1.0)


def _by_column(trials, values, estimate):  # type: ignore[no-untyped-def]
    """An estimate from the hidden cells of each column [P], drawn towards that from all cells.

    :param values: of each trial [T, N, P] or [T, N, P, k].
    :param estimate: a number of a list of arrays [cells] or [cells, k].
    """
    everybody = estimate([v[trial.mask] for trial, v in zip(trials, values, strict=True)])
    found = []
    for p in range(trials[0].mask.shape[-1]):
        own = [trial.mask[..., p] for trial in trials]
        gaps = [t.gaps.gap[..., p][o] for t, o in zip(trials, own, strict=True)]
        count = sum(len(np.unique(gap)) for gap in gaps)
        weight = count / (count + _TRUST)
        cells = [v[:, :, p][o] for v, o in zip(values, own, strict=True)]
        found.append(weight * estimate(cells) + (1.0 - weight) * everybody if count else everybody)
    return np.array(found)


@check_shapes("weight: [broadcast T, broadcast N, P]")
def stacked(
    weight: np.ndarray,
    smooth: tuple[np.ndarray, np.ndarray],
    of_rows: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [T, N, P] of the mixture of two predictions, the first with this weight."""
    (m, v), (n, u) = smooth, of_rows
    rest = 1.0 - weight
    mean = np.where(rest > 0.0, weight * m + rest * n, m)
    spread = weight * v + rest * u + weight * rest * np.square(m - n)
    return mean, np.where(rest > 0.0, spread, v)
