"""Baselines of the missing-data experiments: they reduce to known models and known answers."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import gpflow
import numpy as np
import pytest
import sklearn.linear_model

from experiments.common import scores
from gpflow_bae.data import Standardiser
from gpflow_bae.datasets import jura
from gpflow_bae.impute.baselines import (
    gp_fitting,
    independent_gps,
    iterative_imputer,
    linear_interpolation,
)
from gpflow_bae.impute.baselines import mean as mean_baseline
from tests.impute.tables import (
    NAN,
    ONE_RUN,
    SHORT_RUN,
    every_row_but_padding_is_predicted,
    make_table,
    waves,
)

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "jura").is_dir()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="Jura is not on this machine")

# What the methods share.


@needs_data
def test_jura_sanity_figures() -> None:
    table = jura.load(DATA)
    found = scores.score(table, *mean_baseline.fit_predict(table))
    # Measured once, independently: MAE 0.566 and NLL 1.118.
    assert round(found["mae"], 3) == 0.566 and round(found["nll"], 3) == 1.118
    shown = table.observed[0, :, 2]
    line = sklearn.linear_model.LinearRegression().fit(table.Y[0, shown, :2], table.Y[0, shown, 2])
    mean, variance = np.array(table.Y), np.ones(table.Y.shape)
    mean[0, :, 2] = line.predict(table.Y[0, :, :2])
    variance[0, :, 2] = np.var(table.Y[0, shown, 2] - mean[0, shown, 2])
    found = scores.score(table, mean, variance)
    assert round(found["mae"], 3) == 0.469 and round(found["nll"], 3) == 1.019


def test_scores_are_averages_over_tested_outputs() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((2, 20, 3)) * [1.0, 10.0, 3.0]
    hidden = rng.random(truth.shape) < [0.5, 0.0, 0.3]
    table = make_table(truth, hidden, output_names=("a", "b", "c"))
    mean, variance = truth + rng.standard_normal(truth.shape), np.full(truth.shape, 1.5)
    mean[~hidden] = NAN  # nobody looks there
    prediction = scores.TablePrediction.gaussian(table, mean, variance)
    per_output = scores.score_outputs(table, prediction)
    assert list(per_output) == ["a", "c"]
    for name, column in (("a", 0), ("c", 2)):
        where = hidden[..., column]
        y, m = truth[..., column][where], mean[..., column][where]
        expected = {
            "smse": np.mean((y - m) ** 2) / np.var(y),
            "mae": np.mean(np.abs(y - m)),
            "rmse": np.sqrt(np.mean((y - m) ** 2)),
            "nll": np.mean(0.5 * np.log(2 * np.pi * 1.5) + (y - m) ** 2 / 3.0),
            "nll_moments": np.mean(0.5 * np.log(2 * np.pi * 1.5) + (y - m) ** 2 / 3.0),
            "coverage_90": np.mean(np.abs(y - m) < 1.6448536 * np.sqrt(1.5)),
        }
        assert per_output[name] == pytest.approx(expected, rel=1e-6)
    averages = scores.score(table, mean, variance)
    assert averages["mae"] == pytest.approx((per_output["a"]["mae"] + per_output["c"]["mae"]) / 2)
    with pytest.raises(ValueError, match="no test cell"):
        scores.score(make_table(truth, np.zeros_like(hidden)), mean, variance)


@pytest.mark.parametrize("baseline", [mean_baseline, linear_interpolation, independent_gps])
def test_every_row_but_padding_is_predicted(baseline: Any) -> None:
    slow = {"settings": SHORT_RUN} if baseline is independent_gps else {}
    every_row_but_padding_is_predicted(baseline, **slow)


# Independent Gaussian processes.


def test_one_output_is_a_gpflow_regression() -> None:
    table = waves()
    mean, variance = independent_gps.fit_predict(table, settings=ONE_RUN)

    shown = table.observed[0, :, 0]
    X, y = table.X[0], table.Y[0, :, 0]
    centre, scale = y[shown].mean(), y[shown].std()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3 * X.std(0))
    data = (X[shown], ((y[shown] - centre) / scale)[:, None])
    model = gpflow.models.GPR(data, kernel, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, tf_fun_args={"autograph": False}
    )
    expected_mean, expected_variance = (moment.numpy()[:, 0] for moment in model.predict_y(X))
    # Both optimisers stop within 1e-5 of the same optimum's gradient; the predictions follow.
    np.testing.assert_allclose(mean[0, :, 0], expected_mean * scale + centre, rtol=1e-4)
    np.testing.assert_allclose(variance[0, :, 0], expected_variance * scale**2, rtol=1e-3)


def test_the_run_with_the_highest_marginal_likelihood_is_kept() -> None:
    table = waves(num_rows=20)
    y = Standardiser.fit(table.Y).transform(table.Y)[..., 0]
    shown = ~np.isnan(y[0])

    def fit(
        lengthscale: float, num_restarts: int, scale: float, *others: float
    ) -> gp_fitting.Regressions:
        settings = gp_fitting.FitSettings(num_restarts=num_restarts, restart_scale=scale)
        first, *alternatives = [
            lambda value=value: gpflow.kernels.SquaredExponential(lengthscales=[value])
            for value in (lengthscale, *others)
        ]
        return gp_fitting.fit(table.X, y, first, 0, settings, alternatives=alternatives)

    # From a lengthscale far below the spacing the regression stays white noise of variance 1.
    white = -0.5 * np.count_nonzero(shown) * (1.0 + np.log(2.0 * np.pi))
    assert fit(1e-3, 1, 1.0).log_marginal_likelihood == pytest.approx(white, abs=1e-3)
    assert fit(1e-3, 6, 5.0).log_marginal_likelihood > white + 5.0
    # Here the first run is good, and the others start from absurd scales: they come last, and must
    # leave neither their likelihood nor their parameters.
    good = fit(4.0, 4, 20.0)
    assert good.log_marginal_likelihood == fit(4.0, 1, 1.0).log_marginal_likelihood
    # Of starts that are offered the likeliest is taken: neither white noise nor a straight line.
    offered = fit(1e-3, 1, 1.0, 4.0, 1e3)
    assert offered.log_marginal_likelihood == good.log_marginal_likelihood
    mean, variance = good.predict(0, table.X[0])
    # Noise of 0.3 in outputs of standard deviation 2.1: a variance of 0.02 standardised.
    assert np.mean((mean[shown] - y[0, shown]) ** 2) < 0.06 and np.mean(variance) < 0.12


def test_a_task_without_points_has_the_prior() -> None:
    table = waves(2, 12)
    y = Standardiser.fit(table.Y).transform(table.Y)[..., 0]
    y[1] = NAN
    kernels: list[gpflow.kernels.Kernel] = []

    def make_kernel() -> gpflow.kernels.Kernel:
        kernels.append(gpflow.kernels.SquaredExponential())
        return kernels[-1]

    far = np.array([[1e6]])
    shared = gp_fitting.fit(table.X, y, make_kernel, 0, SHORT_RUN)
    # Far from all data the first task has its prior as well.
    for moment, expected in zip(shared.predict(1, far), shared.predict(0, far), strict=True):
        np.testing.assert_allclose(moment, expected, atol=1e-9)
    assert len(shared.predict(0, far[:0])[0]) == 0
    with pytest.raises(ValueError, match="nothing to fit"):
        gp_fitting.fit(table.X, y * NAN, make_kernel, 0, SHORT_RUN)
    with pytest.raises(ValueError, match="No run of 1 reached a finite marginal likelihood"):
        gp_fitting.fit(table.X, np.where(y > 0, np.inf, y), make_kernel, 0, SHORT_RUN)


def test_sparse_regression_at_all_inputs_is_the_exact_one() -> None:
    table = waves(num_rows=24)
    exact = independent_gps.fit_predict(table, settings=ONE_RUN)
    settings = dataclasses.replace(ONE_RUN, max_points=5, num_inducing=100)
    # SGPR adds a jitter of 1e-6 to the covariance of its inducing points, and so stops elsewhere.
    for moment, expected in zip(
        independent_gps.fit_predict(table, settings=settings), exact, strict=True
    ):
        np.testing.assert_allclose(moment, expected, rtol=1e-2)
    with pytest.raises(ValueError, match="num_inducing is 0"):
        gp_fitting.FitSettings(num_inducing=0)


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


def test_a_fit_that_is_late_makes_no_further_step() -> None:
    table = waves()
    y = Standardiser.fit(table.Y).transform(table.Y)[..., 0]
    settings = dataclasses.replace(gp_fitting.FitSettings(), max_seconds=0.0)
    stopped = gp_fitting.fit(table.X, y, gpflow.kernels.SquaredExponential, 0, settings)
    whole = gp_fitting.fit(table.X, y, gpflow.kernels.SquaredExponential, 0, ONE_RUN)
    assert stopped.log_marginal_likelihood < whole.log_marginal_likelihood
