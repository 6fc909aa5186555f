"""A joint distribution of the cells of tasks against closed forms, and in a fit of windows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute import model as table_model
from gpflow_bae.impute.model import Plan, TablePosterior, task_fitting
from gpflow_bae.impute.model.gaps import with_outputs
from gpflow_bae.impute.model.tasks import (
    StudentTasks,
    at_places,
    common_rows,
    places_of_rows,
)

GAUSSIAN = 1e6


def distribution(degrees: float, rows: int = 3, outputs: int = 2) -> StudentTasks:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((rows * outputs, rows * outputs))
    return StudentTasks(
        np.arange(float(rows))[:, None],
        rng.standard_normal(rows * outputs),
        root @ root.T + np.eye(rows * outputs),
        degrees,
    )


@pytest.mark.parametrize("degrees", [3.0, GAUSSIAN])
def test_missing_cells_have_the_moments_of_a_conditional_t(degrees: float) -> None:
    """By the textbook (Kotz and Nadarajah 2004, section 1.11): the conditional Gaussian's mean, and
    its covariance times (nu + d^2) / (nu + m - 2), for m observed cells at distance d.
    """
    model = distribution(degrees)
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((6, 3, 2))
    Z[rng.random(Z.shape) < 0.5] = np.nan
    Z[0] = np.nan  # nothing is known, so that moments are those of the mean and the covariance
    Z[1] = 0.5  # nothing is missing
    mean, variance = model.predict(Z)
    for t, z in enumerate(Z.reshape(6, -1)):
        o, S = ~np.isnan(z), model.covariance
        gain = S[np.ix_(~o, o)] @ np.linalg.inv(S[np.ix_(o, o)])
        apart = z[o] - model.mean[o]
        distance = apart @ np.linalg.solve(S[np.ix_(o, o)], apart)
        factor = (degrees + distance) / (degrees + o.sum() - 2.0)
        left = S[np.ix_(~o, ~o)] - gain @ S[np.ix_(o, ~o)]
        np.testing.assert_allclose(mean[t].ravel()[~o], model.mean[~o] + gain @ apart, rtol=1e-9)
        np.testing.assert_allclose(variance[t].ravel()[~o], factor * np.diag(left), rtol=1e-9)
        np.testing.assert_array_equal(mean[t].ravel()[o], z[o])
        np.testing.assert_array_equal(variance[t].ravel()[o], 0.0)


def test_a_round_on_complete_gaussian_tasks_is_the_conjugate_posterior() -> None:
    """With one pseudo-task at a mean of zero, and the prior as so many tasks."""
    start = distribution(GAUSSIAN)
    Z = np.random.default_rng(2).standard_normal((50, 3, 2))
    found = start.refit(Z, start.covariance, strength=20.0, rounds=1)
    values = Z.reshape(50, -1)
    mean = values.sum(0) / 51.0
    scatter = (values - mean).T @ (values - mean)
    # A million degrees of freedom are a Gaussian to within 1e-4.
    np.testing.assert_allclose(found.mean, mean, atol=1e-3)
    expected = (scatter + 20.0 * start.covariance) / 70.0
    np.testing.assert_allclose(found.covariance, expected, atol=1e-3)


def test_columns_with_levels_of_their_own_are_predicted_by_their_own_cells() -> None:
    """Of m cells with independent noise of variance s^2 around a level that can be anything, a
    further one has their mean and the variance s^2 (1 + 1 / m): the textbook's prediction.
    """
    noise = np.array([0.5, 2.0])
    rows = np.arange(4.0)[:, None]
    model = StudentTasks(rows, np.zeros(8), np.diag(np.tile(noise, 4)), GAUSSIAN).with_levels(1e5)
    Z = 30.0 + np.random.default_rng(7).standard_normal((1, 4, 2))
    Z[0, 0] = np.nan
    Z[0, 1, 1] = np.nan
    mean, variance = model.predict(Z)
    np.testing.assert_allclose(mean[0, 0], np.nanmean(Z[0], axis=0), rtol=1e-4)
    # Distances count as one observation of the factor's million and more: 1e-5.
    np.testing.assert_allclose(variance[0, 0], noise * (1.0 + 1.0 / np.array([3, 2])), rtol=1e-3)


def test_a_strong_prior_keeps_its_shape_and_a_weak_one_gives_way() -> None:
    start = distribution(GAUSSIAN)
    Z = 2.0 * np.random.default_rng(3).standard_normal((150, 3, 2))
    Z[np.random.default_rng(4).random(Z.shape) < 0.3] = np.nan
    prior = start.covariance
    kept = start.refit(Z, prior, strength=1e9, rounds=1).covariance
    np.testing.assert_allclose(kept, prior, rtol=1e-5)
    # Sample correlations of 75 pairs or more err by 0.12, the largest of 21 by thrice.
    free = start.refit(Z, prior, strength=1.0, rounds=8)
    np.testing.assert_allclose(free.covariance, 4.0 * np.eye(6), atol=4.0 * 0.36)


def test_the_degrees_of_freedom_are_those_of_the_tasks() -> None:
    """Factors are nearly seen in twenty cells, so that 300 tasks tell 4 from 2 or 9."""
    rng = np.random.default_rng(5)
    for degrees, low, high in ((4.0, 3.0, 6.0), (np.inf, 30.0, np.inf)):
        factor = 1.0 if np.isinf(degrees) else degrees / rng.chisquare(degrees, (300, 1, 1))
        Z = np.sqrt(factor) * rng.standard_normal((300, 10, 2))
        start = StudentTasks(np.arange(10.0)[:, None], np.zeros(20), np.eye(20), GAUSSIAN)
        found = start.refit(Z, np.eye(20), strength=100.0, rounds=4)
        assert low <= found.degrees <= high


def test_rows_are_found_by_their_inputs() -> None:
    """In any order, with some missing, unknown, doubled, and with padding."""
    inputs = np.array([[0.0, 1.0], [0.5, 1.0], [0.5, 2.0]])
    X = np.zeros((2, 4, 2))
    X[0] = [[0.5, 2.0], [0.0, 1.0], [0.7, 1.0], [0.5, 1.0]]
    X[1] = [[0.5, 1.0], [0.5 + 1e-9, 1.0], [0.0, 1.0], [0.0, 1.0]]
    Y = np.arange(8.0).reshape(2, 4, 1)
    Y[1, 3:] = np.nan
    table = MultiOutputTable(X, Y, lengths=np.array([4, 3]))
    places = places_of_rows(inputs, table)
    np.testing.assert_array_equal(places, [[2, 0, -1, 1], [-1, -1, 0, -1]])
    np.testing.assert_array_equal(
        at_places(places, Y, 3)[..., 0], [[1.0, 3.0, 0.0], [6.0, np.nan, np.nan]]
    )


def test_few_tasks_or_rows_of_their_own_have_no_common_rows() -> None:
    rng = np.random.default_rng(6)
    same = np.tile(np.arange(5.0)[:, None], (60, 1, 1))
    Y = rng.standard_normal((60, 5, 2))
    found = common_rows(MultiOutputTable(same, Y))
    assert found is not None
    np.testing.assert_array_equal(found[:, 0], np.arange(5.0))
    assert common_rows(MultiOutputTable(same[:30], Y[:30])) is None
    assert common_rows(MultiOutputTable(same + rng.random((60, 1, 1)), Y)) is None


def windows(number: int, seed: int) -> MultiOutputTable:
    """Eight hours of two columns: a shape of the day that no kernel of time alone knows, noise that
    half of the windows have three times as much of, and a quarter of the cells hidden.
    """
    rng = np.random.default_rng(seed)
    hours = np.arange(8.0)
    shape = np.stack([np.where(hours == 3, 3.0, 0.0), np.where(hours > 5, -2.0, 0.0)], axis=-1)
    wild = np.where(rng.random((number, 1, 1)) < 0.5, 1.0, 1.0 / 3.0)
    truth = shape + 0.3 * wild * rng.standard_normal((number, 8, 2))
    truth += 0.3 * rng.standard_normal((number, 1, 1))
    hidden = rng.random(truth.shape) < 0.25
    X = np.tile(hours[:, None] / 4.0, (number, 1, 1))
    return MultiOutputTable(X, np.where(hidden, np.nan, truth), truth, hidden)


@pytest.fixture(scope="module")
def posterior() -> TablePosterior:
    table = windows(160, seed=0)
    plan = Plan.from_dict(
        {"latent_dim": 1, "step": 0.25, "num_steps": 4, "cells_in_fit": 600, "num_fits": 1}
    )
    return table_model.fit(plan, table, table.Y, progress=False)


def test_new_windows_have_the_shape_of_the_day_and_intervals_that_hold(
    posterior: TablePosterior,
) -> None:
    new = windows(150, seed=1)
    hidden = new.test_mask
    mean, variance = posterior.predict(new, new.Y, where=hidden)
    by_gps = dataclasses.replace(posterior, of_tasks=None).predict(new, new.Y, where=hidden)[0]
    missed = np.abs(mean - new.truth)[hidden]
    assert missed.mean() < 0.7 * np.abs(by_gps - new.truth)[hidden].mean()
    # Nine in ten, with a standard error of 0.013 for 600 cells and as much for the calibration.
    assert 0.85 < np.mean(missed < 1.6449 * np.sqrt(variance[hidden])) < 0.95
    assert np.isnan(mean[~hidden]).all()


class _ColumnMeans:
    """Stands for GPs that know nothing of a task."""

    def predict_cells(self, X: np.ndarray, Y: np.ndarray, *_: Any) -> tuple[np.ndarray, ...]:
        return np.zeros(Y.shape), np.ones(Y.shape)


@pytest.mark.parametrize("drift", [0.0, 0.8])
def test_levels_are_added_where_later_tasks_have_other_ones(
    drift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last quarter of the tasks and the new ones have levels that no task before them had."""
    levels = drift * np.array([1.0, -1.0])
    table, new = windows(160, seed=4), windows(60, seed=5)
    table = with_outputs(table, table.Y + levels * (np.arange(160) >= 120)[:, None, None])
    new = dataclasses.replace(new, Y=new.Y - levels, truth=new.truth - levels)
    monkeypatch.setattr(task_fitting, "_covariance", lambda *_: 0.5 * np.eye(16) + 0.5)
    found = []
    for variances in ((0.0,), task_fitting._LEVELS):
        monkeypatch.setattr(task_fitting, "_LEVELS", variances)
        gps: Any = _ColumnMeans()
        fit = task_fitting.fit_tasks(Plan(), table, table.Y, gps, np.random.default_rng(0))
        assert fit is not None
        found.append(fit[0])
    added = found[1].distribution.covariance - found[0].distribution.covariance
    without, own = (
        np.abs(fit.predict(new, new.Y)[0] - new.truth)[new.test_mask].mean() for fit in found
    )
    if drift:
        assert added[0, 2] > 0.0  # the same column in another row
        assert own < 0.95 * without
    else:
        assert own < 1.05 * without  # 2 % are allowed, of errors that are known to as much


def test_rows_that_no_task_had_are_left_to_the_gps(posterior: TablePosterior) -> None:
    new = windows(5, seed=2)
    between = dataclasses.replace(new, X=new.X + 0.1)
    found = posterior.predict(between, new.Y)
    for moment, expected in zip(
        found, dataclasses.replace(posterior, of_tasks=None).predict(between, new.Y), strict=True
    ):
        np.testing.assert_array_equal(moment, expected)


def test_a_file_holds_the_distribution_of_tasks(
    posterior: TablePosterior,
) -> None:
    loaded = TablePosterior.from_arrays(posterior.to_arrays(), posterior.plan)
    new = windows(5, seed=3)
    for moment, expected in zip(
        loaded.predict(new, new.Y), posterior.predict(new, new.Y), strict=True
    ):
        np.testing.assert_allclose(moment, expected, rtol=1e-9)
