"""The weight of the stacked models and the scale of variances, from errors in hidden gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from .gaps import HiddenGaps

__all__ = ["Trial", "calibrate", "stacked"]

_INTERVAL = 1.6448536269514722
_LEVEL = 0.9  # of the intervals
_HIGHEST = 0.95  # highest quantile of the errors that is taken, with few gaps
_TRUST = 10.0  # gaps at which a column's own scale weighs as much as that of all columns
_SHARES = 101  # weights of the Gaussian of rows that are tried
_LEAST, _MOST = 0.25, 16.0  # of the scale of variances


class Trial(NamedTuple):
    """Hidden gaps, and moments [T, N, P] of their cells by the GPs and by the Gaussian of rows."""

    gaps: HiddenGaps
    smooth: tuple[np.ndarray, np.ndarray]
    of_rows: tuple[np.ndarray, np.ndarray]

    @property
    def mask(self) -> np.ndarray:
        """Which cells were hidden: Booleans [T, N, P]."""
        return self.gaps.table.test_mask


@check_shapes("truth: [T, N, P]", "Z: [T, N, P]", "return[1]: [P]")
def calibrate(
    trials: Sequence[Trial], truth: np.ndarray, Z: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """Fit the weight of the GPs, the scale of variances [P], and measure the remaining error.

    :param truth: the values that trials predict, residuals from the trend.
    :param Z: standardised values, whose column means are zero.
    :return: weight, scales, and the root mean squared error as a share of that of column means;
        without trials 1, ones and NaN.
    """
    if not trials:
        return 1.0, np.ones(Z.shape[-1]), np.nan
    weight = _weight(trials, truth)
    missed, ratios, total, spread = [], [], 0.0, 0.0
    for trial in trials:
        mean, variance = stacked(weight, trial.smooth, trial.of_rows)
        missed.append(np.abs(truth - mean))
        deviation = np.sqrt(np.where(trial.mask, variance, 1.0))  # of observed cells it may be 0
        ratios.append(missed[-1] / deviation)
        total += float(np.sum(np.square(missed[-1][trial.mask])))
        spread += float(np.sum(np.square(Z[trial.mask])))

    level = _quantile_level(sum(trial.gaps.num_gaps for trial in trials))

    def scale(values: list[np.ndarray]) -> float:
        return 2.0 * float(np.log(np.quantile(np.concatenate(values), level) / _INTERVAL + 1e-12))

    found = np.exp(_by_column(trials, ratios, scale))
    error = float(np.sqrt(total / spread)) if spread > 0.0 else np.nan
    return weight, np.clip(found, _LEAST, _MOST), error


def _quantile_level(num_gaps: int) -> float:
    """The quantile of the errors in hidden gaps that covers the cells of nine in ten new gaps.

    The level of split conformal prediction (Vovk et al. 2005; Lei et al. 2018, section 2.2), with
    gaps in the place of cells, because errors within a gap are correlated. For fewer than nine gaps
    it would exceed 1; it is cut at a quantile that some cells still determine.
    """
    return min(_LEVEL * (num_gaps + 1) / num_gaps, _HIGHEST)


def _weight(trials: Sequence[Trial], truth: np.ndarray) -> float:
    """The largest weight of the GPs whose squared error is within one standard error of the least.

    The rule is that of Hastie et al. (2009, section 7.10), with differences paired by gap, because
    errors within a gap are correlated: a few long gaps must not give all weight to the rows.
    """
    moved, left = [], []  # summed by gap: (m - n)^2 and (m - n)(y - m)
    for trial in trials:
        gap = trial.gaps.gap[trial.mask]
        apart = (trial.smooth[0] - trial.of_rows[0])[trial.mask]
        missed = (truth - trial.smooth[0])[trial.mask]
        moved.append(np.bincount(gap, np.square(apart)))
        left.append(np.bincount(gap, apart * missed))
    squares, products = np.concatenate(moved), np.concatenate(left)
    # With weight 1 - r the squared error of a gap is that of the models, and 2 r (m - n)(y - m)
    # + r^2 (m - n)^2: of all gaps least at r*.
    if not squares.sum() > 0.0:
        return 1.0
    shares = np.linspace(0.0, 1.0, _SHARES)[:, None]
    errors = 2.0 * shares * products + np.square(shares) * squares  # [shares, gaps]
    least = int(np.argmin(errors.sum(1)))
    worse = errors - errors[least]
    doubt = worse.std(axis=1) * np.sqrt(len(squares))
    return 1.0 - float(shares[np.argmax(worse.sum(1) <= doubt), 0])


def _by_column(trials, values, estimate):  # type: ignore[no-untyped-def]
    """An estimate from the hidden cells of each column [P], shrunk towards that from all cells.

    :param values: of each trial [T, N, P].
    :param estimate: a function of a list of arrays [cells] that returns a number.
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


def stacked(
    weight: float | np.ndarray,
    smooth: tuple[np.ndarray, np.ndarray],
    of_rows: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [T, N, P] of the mixture of two predictions.

    :param weight: of the first prediction, in [0, 1]; one number, or one for each cell.
    """
    (m, v), (n, u) = smooth, of_rows
    rest = 1.0 - weight
    mean = np.where(rest > 0.0, weight * m + rest * n, m)
    spread = weight * v + rest * u + weight * rest * np.square(m - n)
    return mean, np.where(rest > 0.0, spread, v)
