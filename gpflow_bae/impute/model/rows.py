"""A joint Gaussian of the cells of a row, with rows independent of each other.

Chained linear regressions converge to its predictions. It ignores neighbouring rows; its covariance
has full rank and is fitted to all rows at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from .plan import Plan

__all__ = ["GaussianRows", "fit_rows", "predict_rows"]

_PSEUDO_ROWS = 3.0  # with independent columns of unit variance, which keep the covariance definite
_MOST_ROUNDS = 60
_CONVERGED = 1e-3  # largest change of a covariance between rounds
_WIDE = 40  # columns above which patterns are solved for one by one, as their missing columns
_BATCH = 4096  # patterns of missing cells that are solved for at once


@dataclasses.dataclass(frozen=True)
class GaussianRows:
    """Mean [P + D] and covariance [P + D, P + D] of a row's outputs and inputs.

    Fitted by EM (Little and Rubin 2002, section 11.2) under a weak inverse Wishart prior.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    @check_shapes("X: [n, D]", "Z: [n, P]")
    def fit(cls, X: np.ndarray, Z: np.ndarray) -> GaussianRows:
        """Fit the maximum a posteriori moments.

        :param X: inputs, complete.
        :param Z: outputs, nearly standardised; NaN where missing.
        """
        values = np.concatenate([Z, X], axis=-1)
        shown = ~np.isnan(values)
        mean, width = np.nanmean(values, axis=0), values.shape[1]
        covariance = np.eye(width)
        for _ in range(_MOST_ROUNDS):
            filled, left = _conditional(mean, covariance, values, shown)
            new_mean = filled.mean(0)
            centred = filled - new_mean
            total = centred.T @ centred + _PSEUDO_ROWS * np.eye(width)
            for rows, columns, own in left:
                total[np.ix_(columns, columns)] += len(rows) * own
            new = total / (len(values) + _PSEUDO_ROWS)
            change = np.abs(new - covariance).max()
            mean, covariance = new_mean, new
            if change < _CONVERGED:
                break
        return cls(mean, covariance)

    @check_shapes("X: [n, D]", "Z: [n, P]", "return[0]: [n, P]", "return[1]: [n, P]")
    def predict(self, X: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all cells given those of their row; observed ones are certain."""
        values = np.concatenate([Z, X], axis=-1)
        shown = ~np.isnan(values)
        filled, left = _conditional(self.mean, self.covariance, values, shown)
        variance = np.zeros_like(values)
        for rows, columns, own in left:
            variance[np.ix_(rows, columns)] = np.maximum(np.diagonal(own), 0.0)
        P = Z.shape[1]
        return filled[:, :P], np.where(shown, 0.0, variance)[:, :P]

    @check_shapes("X: [n, D]", "Z: [n, P]", "return: [n, P]")
    def draw_residuals(self, X: np.ndarray, Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Standard normal numbers of the missing cells, correlated as cells of their row are.

        Given the observed cells of the row; those are 0.
        """
        values = np.concatenate([Z, X], axis=-1)
        shown = ~np.isnan(values)
        found = np.zeros(values.shape)
        for rows, columns, _, left in _patterns(self.covariance, shown):
            deviations = np.sqrt(np.maximum(np.diagonal(left), 1e-12))
            correlation = left / deviations[:, None] / deviations
            correlation[shown[rows[0], columns]] = 0.0
            variances, directions = np.linalg.eigh(correlation)
            root = directions * np.sqrt(np.maximum(variances, 0.0))
            drawn = rng.standard_normal((len(rows), len(root))) @ root.T
            found[np.ix_(rows, columns)] = drawn
        return found[:, : Z.shape[1]]


def fit_rows(plan: Plan, table: MultiOutputTable, Z: np.ndarray) -> GaussianRows:
    """The Gaussian of the rows of a table.

    :param Z: residuals of the outputs from the trend; NaN where missing.
    """
    return GaussianRows.fit(_inputs(plan, table), Z[table.rows])


def predict_rows(
    rows: GaussianRows, plan: Plan, table: MultiOutputTable, Z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [T, N, P] of cells given the others of their row; NaN in padding.

    :param Z: residuals from the trend.
    """
    mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
    real = table.rows
    mean[real], variance[real] = rows.predict(_inputs(plan, table), Z[real])
    return mean, variance


def _inputs(plan: Plan, table: MultiOutputTable) -> np.ndarray:
    """Inputs of all rows without time, of which outputs are no linear function."""
    return table.X[table.rows][:, int(plan.step is not None) :]


def _conditional(
    mean: np.ndarray, covariance: np.ndarray, values: np.ndarray, shown: np.ndarray
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Rows with missing cells at their conditional means, and the conditional covariances.

    The latter are those of each pattern of observed columns: the numbers of its rows, those of
    columns, and the covariance of these, zero where observed.
    """
    filled = np.array(values)
    centred = np.where(shown, values - mean, 0.0)
    covariances = []
    for rows, columns, gain, left in _patterns(covariance, shown):
        filled[np.ix_(rows, columns)] = mean[columns] + centred[rows] @ gain.T
        covariances.append((rows, columns, left))
    return np.where(shown, values, filled), covariances


def _patterns(
    covariance: np.ndarray, shown: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Generate the patterns of observed columns.

    :return: for each the rows; columns that hold its C missing ones; the coefficients [C, P] of
        their regression on the observed columns, for rows that are zero where missing; and their
        conditional covariance [C, C], zero where observed.
    """
    patterns, of_row = np.unique(shown, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(of_row.ravel()))[:-1])
    width = len(covariance)
    if width > _WIDE:
        # The covariance of the missing columns is the inverse of their part of the precision.
        precision = np.linalg.inv(covariance)
        for own, known in zip(rows, patterns, strict=True):
            columns = np.flatnonzero(~known)
            left = np.linalg.inv(precision[np.ix_(columns, columns)])
            yield own, columns, -left @ precision[columns], left
        return
    for first in range(0, len(patterns), _BATCH):
        known = patterns[first : first + _BATCH].astype(float)
        both = known[:, :, None] * known[:, None, :]
        # Missing columns are made independent of the observed ones.
        observed = both * covariance + (1.0 - known)[:, :, None] * np.eye(width)
        cross = known[:, :, None] * covariance
        gains = np.swapaxes(np.linalg.solve(observed, cross), 1, 2)
        left = covariance - gains @ cross
        left *= (1.0 - known)[:, :, None] * (1.0 - known)[:, None, :]
        for own, *found in zip(rows[first : first + _BATCH], gains, left, strict=True):
            yield own, np.arange(width), *found
