"""The trend of a table: periods of the calendar, where hidden gaps show that they help."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from scipy import optimize

from ...core.scales import spread
from ...data import MultiOutputTable
from ..baselines.linear_interpolation import Lines
from .calendar import PERIODS
from .gaps import HiddenGaps, hide_gaps_if_any, with_outputs

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
    subtracted before and added after. Without a clear gain it is 0. So a table with a trend, or
    with slow changes that interpolation follows, has no calendar.

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
    missed: list[np.ndarray] = []
    moved: list[np.ndarray] = []
    for gaps in hidden:
        coefficients = _ridge(features, gaps.table, gaps.table.Y)
        periodic = [features[..., part] @ coefficients[part] for part in parts]
        missed.append(Z - _interpolated(gaps.table, gaps.table.Y))
        moved.append(np.stack([f - _interpolated(gaps.table, f) for f in periodic]))
    for p in range(Z.shape[-1]):
        factors = _factors(hidden, missed, moved, p, len(parts))
        for part, factor in zip(parts, factors, strict=True):
            found[part, p] *= factor
    return found


def _factors(
    hidden: list[HiddenGaps], missed: list[np.ndarray], moved: list[np.ndarray], p: int, number: int
) -> np.ndarray:
    """Factors of so many periods in an output.

    :param missed, moved: errors [T, N, P] without them, and what each changes [K, T, N, P].
    """
    masks = [gaps.table.test_mask[..., p] for gaps in hidden]
    if not any(mask.any() for mask in masks):
        return np.zeros(number)
    y = np.concatenate([e[..., p][mask] for e, mask in zip(missed, masks, strict=True)])
    A = np.concatenate([d[..., p][:, mask] for d, mask in zip(moved, masks, strict=True)], axis=1)
    factors = np.asarray(optimize.lsq_linear(A.T, y, (0.0, 1.0)).x)
    gains = np.square(y) - np.square(y - factors @ A)
    places = np.concatenate(
        [
            gaps.gap[..., p][mask] + k * gaps.gap.size
            for k, (gaps, mask) in enumerate(zip(hidden, masks, strict=True))
        ]
    )
    by_gap = np.bincount(np.unique(places, return_inverse=True)[1].ravel(), gains)
    doubt = by_gap.std() * np.sqrt(len(by_gap))
    return factors if by_gap.sum() > _DOUBT * doubt else np.zeros(number)


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
