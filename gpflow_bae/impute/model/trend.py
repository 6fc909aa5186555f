"""The trend of a table: periods of the calendar, where hidden gaps show that they help."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from scipy import optimize

from ...core.scales import spread
from ...data import MultiOutputTable
from ..baselines.linear_interpolation import Lines
from .calendar import PERIODS
from .calibration import gap_weights
from .gaps import hide_gaps_if_any, with_outputs

__all__ = ["fit_trend"]

_RIDGE = 3.0  # pseudo-observations of zero for each calendar feature
_FREE = 0.03  # pseudo-observations for the line of a task, which is next to free
_HIDDEN, _MASKS = 0.1, 3  # share of the cells in gaps, and different gaps
_LEAST_GAPS = 10
_DOUBT = 1.0  # standard errors that the gain of a column must exceed


@check_shapes("features: [T, N, F]", "table.Y: [T, N, P]", "Z: [T, N, P]", "return: [F, P]")
def fit_trend(
    features: np.ndarray,
    periods: tuple[str, ...],
    table: MultiOutputTable,
    Z: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Coefficients of the constant and of the calendar's features.

    Each period is a ridge regression, times a factor in [0, 1] of each column: the least squares
    factor in gaps that are hidden from the regression and interpolated linearly, with the period
    subtracted before and added after. Gaps of other columns count as few of a column's own. Without
    a clear gain it is 0. So a table with a trend, or with slow changes that interpolation follows,
    has no calendar.

    :param features: of all rows, the constant first.
    :param Z: standardised outputs; NaN where missing.
    :param seed: of the gaps.
    """
    found = _ridge(features, table, Z)
    if not periods:
        return found
    ends = 1 + np.cumsum([2 * PERIODS[name][1] for name in periods])
    parts = [slice(a, b) for a, b in zip([1, *ends[:-1]], ends, strict=True)]
    shown = with_outputs(table, Z)
    drawn = (
        hide_gaps_if_any(shown, _HIDDEN, seed + k, least_gaps=_LEAST_GAPS) for k in range(_MASKS)
    )
    hidden = [gaps for gaps in drawn if gaps is not None]
    if not hidden:
        found[1:] = 0.0
        return found
    masks = [gaps.table.test_mask for gaps in hidden]
    missed: list[np.ndarray] = []
    moved: list[np.ndarray] = []
    for gaps, mask in zip(hidden, masks, strict=True):
        coefficients = _ridge(features, gaps.table, gaps.table.Y)
        periodic = [features[..., part] @ coefficients[part] for part in parts]
        missed.append((Z - _interpolated(gaps.table, gaps.table.Y))[mask])
        moved.append(np.stack([(f - _interpolated(gaps.table, f))[mask] for f in periodic]))
    y, A = np.concatenate(missed), np.concatenate(moved, axis=1)
    column = np.concatenate([np.nonzero(mask)[2] for mask in masks])
    for p in np.unique(column):  # columns with larger errors may not outweigh others
        own = column == p
        squares = np.mean(np.square(y[own])) + np.mean(np.square(A[:, own]), axis=1).sum()
        unit = np.sqrt(squares) if squares > 0.0 else 1.0
        y[own], A[:, own] = y[own] / unit, A[:, own] / unit
    number = np.concatenate(
        [
            k * gaps.gap.size + gaps.gap[mask]
            for k, (gaps, mask) in enumerate(zip(hidden, masks, strict=True))
        ]
    )
    gap = np.unique(number * Z.shape[-1] + column, return_inverse=True)[1].ravel()
    for p in range(Z.shape[-1]):
        factors = _factors(y, A, gap, column == p)
        for part, factor in zip(parts, factors, strict=True):
            found[part, p] *= factor
    return found


@check_shapes("y: [n]", "A: [K, n]", "gap: [n]", "own: [n]", "return: [K]")
def _factors(y: np.ndarray, A: np.ndarray, gap: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Factors of K periods in an output, whose gaps count more than those of others.

    :param y: errors of hidden cells without the periods.
    :param A: what each period changes.
    :param gap: the number of each cell's gap, of one column each.
    :param own: which cells are the output's.
    """
    weights = gap_weights(np.bincount(gap, own) > 0.0)
    root = np.sqrt(weights)[gap]
    factors = np.asarray(optimize.lsq_linear((A * root).T, y * root, (0.0, 1.0)).x)
    gains = np.bincount(gap, np.square(y) - np.square(y - factors @ A))
    gain = float(gains @ weights)
    doubt = np.sqrt(np.square(gains - gain / weights.sum()) @ np.square(weights))
    return factors if gain > _DOUBT * doubt else np.zeros(len(A))


def _interpolated(table: MultiOutputTable, values: np.ndarray) -> np.ndarray:
    """Values [T, N, P] of hidden cells from those of the nearest observed cells."""
    shown = with_outputs(table, np.where(table.observed, values, np.nan))
    return Lines(np.zeros((0, 2), int), np.zeros((0, table.num_outputs))).predict(shown)[0]


def _ridge(features: np.ndarray, table: MultiOutputTable, Z: np.ndarray) -> np.ndarray:
    """Coefficients [F + 1, P] of a ridge regression on the observed cells.

    The periodic features would take up part of a steady rise wherever a table stops within a cycle.
    So each task has a line along the first input beside them. The line is not kept: slow changes
    are left to the GPs.

    :param features: of all rows [T, N, F + 1], the constant first.
    """
    count = features.shape[-1]
    penalty = np.full(count, _RIDGE)
    penalty[0] = 1e-9
    squares = np.tile(np.diag(penalty), (Z.shape[-1], 1, 1))
    products = np.zeros((Z.shape[-1], count))
    for t, length in enumerate(table.lengths):
        x = table.X[t, :length, 0] if count > 1 else np.arange(length, dtype=float)
        line = ((x - x.mean()) / spread(x, axis=0))[:, None]
        for p, z in enumerate(Z[t, :length].T):
            shown = ~np.isnan(z)
            A, y = features[t, :length][shown], z[shown]
            left = A
            if count > 1:
                b = line[shown]
                left = A - b @ (b.T @ A) / (np.sum(b * b) + _FREE)
            squares[p] += left.T @ A
            products[p] += left.T @ y
    return np.linalg.solve(squares, products[..., None])[..., 0].T
