"""The weights of the stacked models and the scales of variances, from errors in hidden gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from .gaps import HiddenGaps

__all__ = ["Trial", "VarianceScales", "calibrate", "gap_weights", "stacked", "variance_scales"]

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


class VarianceScales(NamedTuple):
    """Scales of variances with which 90 % intervals held nine of ten hidden cells.

    A factor below one says that hidden cells were predicted better than thought. It says nothing of
    cells of which much less is known, such as those of a row without any observation: what a
    variance has beyond the reach stays.

    * factors [P]: of the variances.
    * reach [P]: variances that nine of ten hidden cells did not exceed.
    """

    factors: np.ndarray
    reach: np.ndarray

    @check_shapes("variance: [T, N, P]", "return: [T, N, P]")
    def apply(self, variance: np.ndarray) -> np.ndarray:
        """The scaled variances."""
        beyond = np.maximum(variance - self.reach, 0.0)
        return self.factors * variance + np.maximum(1.0 - self.factors, 0.0) * beyond


@check_shapes("truth: [T, N, P]", "Z: [T, N, P]", "return[0]: [P]")
def calibrate(
    trials: Sequence[Trial], truth: np.ndarray, Z: np.ndarray
) -> tuple[np.ndarray, VarianceScales, float]:
    """Fit the weights of the GPs [P] and the scales of variances, and measure the remaining error.

    :param truth: the values that trials predict, residuals from the trend.
    :param Z: standardised values, whose column means are zero.
    :return: weights, scales, and the root mean squared error as a share of that of column means;
        without trials ones, ones and NaN.
    """
    if not trials:
        ones = np.ones(Z.shape[-1])
        return ones, VarianceScales(ones, ones), np.nan
    weight = _weights(trials, truth)
    moments = [stacked(weight, trial.smooth, trial.of_rows) for trial in trials]
    total = sum(
        float(np.sum(np.square((truth - mean)[trial.mask])))
        for trial, (mean, _) in zip(trials, moments, strict=True)
    )
    spread = sum(float(np.sum(np.square(Z[trial.mask]))) for trial in trials)
    error = float(np.sqrt(total / spread)) if spread > 0.0 else np.nan
    return weight, variance_scales([trial.gaps for trial in trials], moments, truth), error


@check_shapes("truth: [T, N, P]")
def variance_scales(
    hidden: Sequence[HiddenGaps],
    moments: Sequence[tuple[np.ndarray, np.ndarray]],
    truth: np.ndarray,
) -> VarianceScales:
    """Scales of the variances of predictions with which nine of ten hidden cells are covered.

    :param moments: means and variances [T, N, P] of the cells of each set of hidden gaps.
    """
    level = _quantile_level(sum(gaps.num_gaps for gaps in hidden))

    def scale(values: list[np.ndarray]) -> float:
        return 2.0 * float(np.log(np.quantile(np.concatenate(values), level) / _INTERVAL + 1e-12))

    ratios = [  # observed cells may have a variance of zero
        np.abs(truth - mean) / np.sqrt(np.where(gaps.table.test_mask, variance, 1.0))
        for gaps, (mean, variance) in zip(hidden, moments, strict=True)
    ]
    factors = np.clip(np.exp(_by_column(hidden, ratios, scale)), _LEAST, _MOST)
    masks = [gaps.table.test_mask for gaps in hidden]
    cells = np.concatenate([v[mask] for mask, (_, v) in zip(masks, moments, strict=True)])
    column = np.concatenate([np.nonzero(mask)[2] for mask in masks])
    reach = np.full(len(factors), np.quantile(cells, _LEVEL))
    for p in np.unique(column):
        reach[p] = np.quantile(cells[column == p], _LEVEL)
    return VarianceScales(factors, reach)


def _quantile_level(num_gaps: int) -> float:
    """The quantile of the errors in hidden gaps that covers the cells of nine in ten new gaps.

    The level of split conformal prediction (Vovk et al. 2005; Lei et al. 2018, section 2.2), with
    gaps in the place of cells, because errors within a gap are correlated. For fewer than nine gaps
    it would exceed 1; it is cut at a quantile that some cells still determine.
    """
    return min(_LEVEL * (num_gaps + 1) / num_gaps, _HIGHEST)


def _weights(trials: Sequence[Trial], truth: np.ndarray) -> np.ndarray:
    """For each column the largest weight of the GPs whose error is not clearly above the least.

    That is a squared error within one standard error of the least. The rule is that of Hastie et
    al. (2009, section 7.10), with differences paired by gap, because errors within a gap are
    correlated: a few long gaps must not give all weight to the rows. Gaps of other columns count as
    few of a column's own.
    """
    masks = [trial.mask for trial in trials]
    unit = np.ones(truth.shape[-1])  # columns with larger errors may not outweigh others
    for q in range(len(unit)):
        cells = [
            np.stack([truth - trial.smooth[0], truth - trial.of_rows[0]])[..., q][:, mask[..., q]]
            for trial, mask in zip(trials, masks, strict=True)
        ]
        square = (
            np.mean(np.square(np.concatenate(cells, axis=1))) if any(map(np.size, cells)) else 0
        )
        unit[q] = np.sqrt(square) if square > 0.0 else 1.0
    moved, left, columns = [], [], []  # the first two summed by gap: (m - n)^2 and (m - n)(y - m)
    for trial in trials:
        number, column = trial.gaps.gap[trial.mask], np.nonzero(trial.mask)[2]
        place = column * trial.gaps.num_gaps + number
        apart = ((trial.smooth[0] - trial.of_rows[0]) / unit)[trial.mask]
        missed = ((truth - trial.smooth[0]) / unit)[trial.mask]
        there = np.unique(place)
        moved.append(np.bincount(place, np.square(apart))[there])
        left.append(np.bincount(place, apart * missed)[there])
        columns.append(there // trial.gaps.num_gaps)
    squares, products = np.concatenate(moved), np.concatenate(left)
    # With weight 1 - r the squared error of a gap is that of the models, and 2 r (m - n)(y - m)
    # + r^2 (m - n)^2: of all gaps least at r*.
    shares = np.linspace(0.0, 1.0, _SHARES)[:, None]
    errors = 2.0 * shares * products + np.square(shares) * squares  # [shares, gaps]
    of_gap = np.concatenate(columns)
    return np.array([_weight(errors, squares, of_gap == p) for p in range(len(unit))])


def _weight(errors: np.ndarray, squares: np.ndarray, own: np.ndarray) -> float:
    """The weight of a column.

    :param errors: excess of the squared error [shares, gaps].
    :param squares: of the difference of both predictions [gaps].
    :param own: whether a gap is the column's [gaps].
    """
    counts = gap_weights(own)
    if not (counts * squares).sum() > 0.0:
        return 1.0
    least = int(np.argmin(errors @ counts))
    worse = errors - errors[least]
    excess = worse @ counts
    mean = excess / counts.sum()
    doubt = np.sqrt(np.square(worse - mean[:, None]) @ np.square(counts))
    return 1.0 - np.linspace(0.0, 1.0, _SHARES)[np.argmax(excess <= doubt)]


@check_shapes("own: [gaps]", "return: [gaps]")
def gap_weights(own: np.ndarray) -> np.ndarray:
    """How much each gap counts for a column: one if it is its own, others ten gaps together."""
    rest = np.count_nonzero(~own)
    return np.where(own, 1.0, min(1.0, _TRUST / max(rest, 1)))


def _by_column(hidden, values, estimate):  # type: ignore[no-untyped-def]
    """An estimate from the hidden cells of each column [P], shrunk towards that from all cells.

    :param values: of each set of hidden gaps [T, N, P].
    :param estimate: a function of a list of arrays [cells] that returns a number.
    """
    masks = [gaps.table.test_mask for gaps in hidden]
    everybody = estimate([v[mask] for mask, v in zip(masks, values, strict=True)])
    found = []
    for p in range(masks[0].shape[-1]):
        own = [mask[..., p] for mask in masks]
        gaps = [h.gap[..., p][o] for h, o in zip(hidden, own, strict=True)]
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
