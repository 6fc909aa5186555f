"""A Gaussian of rows against closed forms, and weights that gaps decide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute.model.calibration import Trial, VarianceScales, calibrate
from gpflow_bae.impute.model.gaps import HiddenGaps, hide_gaps
from gpflow_bae.impute.model.rows import GaussianRows


def rows(number: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((2, 4))
    return rng.standard_normal((number, 2)) @ mixing + 0.3 * rng.standard_normal((number, 4)) + 1.0


def test_complete_rows_have_their_own_moments() -> None:
    """The covariance is that of the rows with three pseudo-rows of the identity, by definition."""
    Y = rows()
    found = GaussianRows.fit(Y[:, :1], Y[:, 1:])
    ordered = np.concatenate([Y[:, 1:], Y[:, :1]], axis=-1)
    centred = ordered - ordered.mean(0)
    np.testing.assert_allclose(found.mean, ordered.mean(0), rtol=1e-12)
    expected = (centred.T @ centred + 3.0 * np.eye(4)) / (len(Y) + 3.0)
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-12)


def test_a_column_with_holes_is_regressed_on_those_without() -> None:
    """With holes in one column alone the maximum is the regression of the complete rows (Little and
    Rubin 2002, section 7.2); of 20,000 rows the prior's three are next to nothing, and EM stops
    when a covariance of order one changes by less than 1e-3.
    """
    Y = rows(20_000)
    Z = Y.copy()
    Z[Y[:, 0] > 1.5, 3] = np.nan  # missing by another column's values, which tells nothing new
    hole = np.isnan(Z[:, 3])
    A = np.concatenate([Z[:, :3], np.ones((len(Z), 1))], axis=-1)
    weights, *_ = np.linalg.lstsq(A[~hole], Z[~hole, 3], rcond=None)
    residual = Z[~hole, 3] - A[~hole] @ weights
    X = np.zeros((len(Z), 0))
    mean, variance = GaussianRows.fit(X, Z).predict(X, Z)
    np.testing.assert_allclose(mean[hole, 3], A[hole] @ weights, atol=0.02)
    np.testing.assert_allclose(variance[hole, 3], residual.var(), rtol=0.03)
    np.testing.assert_array_equal(mean[~hole], Z[~hole])
    np.testing.assert_array_equal(variance[~hole], 0.0)


def test_every_pattern_of_holes_is_conditioned_on_what_is_seen() -> None:
    """Against the textbook's formula, row by row; a row without any cell is the mean."""
    rng = np.random.default_rng(1)
    Z = rows(50)
    Z[rng.random(Z.shape) < 0.4] = np.nan
    Z[0] = np.nan
    root = rng.standard_normal((4, 4))
    model = GaussianRows(rng.standard_normal(4), root @ root.T + 0.1 * np.eye(4))
    mean, variance = model.predict(np.zeros((50, 0)), Z)
    S = model.covariance
    for n, z in enumerate(Z):
        o, m = np.flatnonzero(~np.isnan(z)), np.flatnonzero(np.isnan(z))
        gain = S[np.ix_(m, o)] @ np.linalg.inv(S[np.ix_(o, o)])
        np.testing.assert_allclose(mean[n, m], model.mean[m] + gain @ (z[o] - model.mean[o]))
        left = S[np.ix_(m, m)] - gain @ S[np.ix_(o, m)]
        np.testing.assert_allclose(variance[n, m], np.diagonal(left), rtol=1e-8)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_weights_and_variances_are_those_that_made_the_gaps(weight: float) -> None:
    """Truth is a mixture of two predictions, and noise twice as wide as it is said to be.

    Of some 400 hidden cells of a column the weight's standard error is 0.5 / sqrt(2 * 400), about
    0.02, and the weight is the largest within one of them; of all 2,000 cells the variance's ninth
    decile, that of a Gaussian four times as wide, has one of about 7 %.
    """
    rng = np.random.default_rng(0)
    shape = (1, 4000, 5)
    m, n = rng.standard_normal((2, *shape))
    truth = weight * m + (1.0 - weight) * n + 0.5 * rng.standard_normal(shape)
    table = MultiOutputTable(X=np.arange(4000.0)[None, :, None], Y=truth)
    gaps = hide_gaps(table, 0.1, 0)
    spread = np.full(shape, 0.25**2)
    trial = Trial(gaps, (m, spread), (n, spread))
    found, _, error = calibrate([trial], truth, truth)
    np.testing.assert_allclose(found, weight, atol=0.08)
    assert error == pytest.approx(0.5 / np.sqrt(np.mean(truth**2)), rel=0.05)
    # Where both predictions agree nothing but their own variance is left to be scaled.
    agreed = Trial(gaps, (m, spread), (m, spread))
    _, scales, _ = calibrate([agreed], m + 0.5 * rng.standard_normal(shape), truth)
    np.testing.assert_allclose(scales.factors, 4.0, rtol=0.25)
    # The reach of a column is that of its own cells.
    spreads = np.square(np.arange(1.0, 6.0)) * spread
    _, scales, _ = calibrate([Trial(gaps, (m, spreads), (m, spreads))], truth, truth)
    np.testing.assert_allclose(scales.reach, spreads[0, 0])


def test_many_columns_are_conditioned_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the inverse of the missing columns' precision, and by the observed ones' covariance."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 4)) @ rng.standard_normal((4, 45)) + rng.standard_normal((80, 45))
    Z[rng.random(Z.shape) < 0.15] = np.nan
    Z[3], X = np.nan, np.zeros((80, 0))
    wide = GaussianRows.fit(X, Z)
    monkeypatch.setattr("gpflow_bae.impute.model.rows._WIDE", 100)
    narrow = GaussianRows.fit(X, Z)
    np.testing.assert_allclose(wide.covariance, narrow.covariance, atol=1e-9)
    expected = narrow.predict(X, Z)
    monkeypatch.undo()
    for found, moment in zip(narrow.predict(X, Z), expected, strict=True):
        np.testing.assert_allclose(found, moment, atol=1e-9)
    # Of 4000 draws of a row the standard error of a correlation is at most 0.016.
    many = np.repeat(Z[:1], 4000, axis=0)
    drawn = narrow.draw_residuals(np.zeros((4000, 0)), many, rng)
    hole = np.isnan(Z[0])
    K = narrow.covariance
    left = K[np.ix_(hole, hole)] - K[np.ix_(hole, ~hole)] @ np.linalg.solve(
        K[np.ix_(~hole, ~hole)], K[np.ix_(~hole, hole)]
    )
    deviations = np.sqrt(np.diagonal(left))
    correlation = np.corrcoef(drawn[:, hole].T)
    np.testing.assert_allclose(correlation, left / deviations[:, None] / deviations, atol=0.07)
    assert (drawn[:, ~hole] == 0.0).all()


def test_without_gaps_models_stand_alone() -> None:
    Z = rows(30)[None]
    weight, scales, error = calibrate([], Z, Z)
    assert (weight == 1.0).all() and (scales.factors == 1.0).all() and np.isnan(error)


def test_variances_far_above_those_of_hidden_cells_are_not_made_small() -> None:
    scales = VarianceScales(np.array([0.25, 4.0]), np.array([1.0, 1.0]))
    variance = np.array([0.5, 1.0, 9.0])[None, :, None] * np.ones(2)
    expected = [[0.125, 2.0], [0.25, 4.0], [8.25, 36.0]]
    np.testing.assert_allclose(scales.apply(variance)[0], expected)


def test_intervals_hold_another_gap_nine_times_of_ten_however_few_there_were() -> None:
    """Of 20 gaps, whose cells are wrong alike, the 19th smallest error is asked for: another gap's
    is below it with probability 19 / 21 = 0.905 (uniform spacings). The 90 % quantile of the cells
    is the 18th, 0.857. Of 400 draws the mean has a standard error of 0.0031.
    """
    rng = np.random.default_rng(0)
    number, cells = 20, 5
    errors = rng.standard_normal((400, number))
    gap = np.repeat(np.arange(number), cells)[None, :, None]
    X, mask = np.arange(number * cells)[None, :, None] * 1.0, np.ones(gap.shape, dtype=bool)
    zero, one = np.zeros(gap.shape), np.ones(gap.shape)
    held = []
    for of_gap in errors:
        truth = of_gap[gap]
        table = MultiOutputTable(X, zero * np.nan, truth=truth, test_mask=mask)
        trial = Trial(HiddenGaps(table, gap, True), (zero, one), (zero, one))
        _, scales, _ = calibrate([trial], truth, truth)
        half = 1.6448536269514722 * np.sqrt(scales.factors[0])
        held.append(math.erf(half / np.sqrt(2.0)))
    assert np.mean(held) == pytest.approx(19 / 21, abs=0.01)
