"""Interpolation and chained regressions: they reduce to known answers."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines import iterative_imputer, linear_interpolation
from experiments.common import scores
from tests.impute.tables import make_table

# Interpolation.


def test_lines_are_followed_exactly() -> None:
    x = np.array([0.0, 1.0, 3.0, 4.0, 8.0, 9.0])
    truth = (2.0 * x + 1.0)[None, :, None]
    hidden = np.zeros(truth.shape, bool)
    hidden[0, [2, 3]] = True
    mean, _ = linear_interpolation.fit_predict(make_table(truth, hidden, X=x[None, :, None]))
    # Inner cells from both sides, observed ones too; at the ends the neighbour's value.
    np.testing.assert_allclose(mean[0, 1:-1, 0], truth[0, 1:-1, 0])
    assert mean[0, [0, -1], 0].tolist() == [truth[0, 1, 0], truth[0, -2, 0]]


def test_rows_of_one_place_are_a_series() -> None:
    """Two stations on five days, in mixed order; station B was never observed."""
    day = np.array([0.0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    place = np.tile([7.0, 9.0], 5)
    X = np.stack([day, place], -1)[None]
    truth = np.where(place == 7.0, day**2, 50.0)[None, :, None]
    hidden = (place == 9.0)[None, :, None] | (np.stack([day, place], -1) == [2.0, 7.0]).all(-1)[
        None, :, None
    ]
    order = np.random.default_rng(0).permutation(10)
    table = make_table(truth[:, order], hidden[:, order], X=X[:, order])
    mean, variance = linear_interpolation.fit_predict(table)
    back = np.argsort(order)
    assert mean[0, back[4], 0] == 5.0  # station A on day 2: between 1 and 9
    seen = np.array([0.0, 1.0, 9.0, 16.0])
    # Station B has nothing but the mean of the output, with its deviation.
    np.testing.assert_allclose(mean[0, back[1::2], 0], seen.mean())
    np.testing.assert_allclose(variance[0, back[1::2], 0], seen.var())


def test_the_error_of_a_line_grows_with_the_gap() -> None:
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.standard_normal((40, 200, 1)), axis=1)
    hidden = np.zeros(walks.shape, bool)
    hidden[:, 50:59], hidden[:, 190:] = True, True
    table = make_table(walks, hidden)
    mean, variance = linear_interpolation.fit_predict(table)
    # A random walk of unit steps, a rows after one value and b rows before another, is a bridge
    # with variance a b / (a + b); beyond the last value, a. About 6000 correlated residuals of
    # each kind: the worst, a = 10, are some 800 independent ones, 0.05 of relative standard error.
    after = np.arange(1.0, 10.0)
    np.testing.assert_allclose(variance[0, 50:59, 0], after * (10 - after) / 10, rtol=0.2)
    np.testing.assert_allclose(variance[0, 190:, 0], np.arange(1.0, 11.0), rtol=0.2)
    found = scores.score(table, mean, variance)
    # 760 test cells in 80 gaps, correlated within: as good as 160 independent ones, so a standard
    # error of 0.024; three are allowed.
    assert abs(found["coverage_90"] - 0.9) < 0.07


def test_few_residuals_leave_the_output_its_own_variance() -> None:
    truth = np.array([0.0, 1.0, 2.0, 4.0])[None, :, None]
    table = make_table(truth, np.zeros(truth.shape, bool))
    _, variance = linear_interpolation.fit_predict(table)
    np.testing.assert_allclose(variance, np.var(truth))


# IterativeImputer.


def test_the_iterative_imputer_finds_what_columns_tell_of_each_other() -> None:
    """A column is the sum of two others with noise of 0.1: that is its error, and what it says."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((1, 400, 3))
    truth[..., 2] = truth[..., 0] + truth[..., 1] + 0.1 * rng.standard_normal((1, 400))
    hidden = np.zeros(truth.shape, bool)
    hidden[0, ::5, 2] = True
    table = make_table(truth, hidden)
    mean, variance = iterative_imputer.fit_predict(table)
    missed = (mean - truth)[hidden]
    # Of 80 errors of 0.1 the root mean square has a standard error of 0.008.
    assert np.sqrt(np.mean(missed**2)) < 0.13
    assert 0.07 < np.sqrt(variance[0, 0, 2]) < 0.14
    shown = table.observed
    np.testing.assert_allclose(mean[shown], truth[shown], rtol=1e-9)


@pytest.mark.parametrize("place", [48.85, 1e12 + 0.1])
def test_the_iterative_imputer_is_told_nothing_by_a_place_that_only_rounding_moves(
    place: float,
) -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((60, 1)) + 0.3 * rng.standard_normal((60, 3))
    Z[rng.random(Z.shape) < 0.2] = np.nan
    time = np.arange(60.0)[:, None]
    still = place + np.spacing(place) * rng.integers(-1, 2, (60, 1))
    found = iterative_imputer.impute(Z, np.concatenate([time, still], 1), 5)
    np.testing.assert_allclose(found, iterative_imputer.impute(Z, time, 5), atol=1e-6)


def test_the_iterative_imputer_sees_the_calendar() -> None:
    """A column that nothing but a feature tells of."""
    rng = np.random.default_rng(0)
    feature = rng.standard_normal((1, 300, 1))
    truth = np.concatenate([2.0 * feature, rng.standard_normal((1, 300, 1))], -1)
    hidden = np.zeros(truth.shape, bool)
    hidden[0, 100:130, 0] = True
    table = make_table(truth, hidden)
    mean, _ = iterative_imputer.fit_predict(table, features=feature)
    np.testing.assert_allclose(mean[hidden], truth[hidden], atol=1e-3)
