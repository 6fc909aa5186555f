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

from experiments.baselines import gp_fitting, independent_gps, linear_interpolation
from experiments.baselines import mean as mean_baseline
from experiments.common import scores
from gpflow_bae.data import Standardiser
from gpflow_bae.datasets import jura
from tests.impute.tables import NAN, every_row_but_padding_is_predicted, make_table, waves

_BESIDE = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "jura").is_dir()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="Jura is not on this machine")

ONE_RUN = gp_fitting.FitSettings(num_restarts=1)
# For what holds at any hyperparameters.
SHORT_RUN = gp_fitting.FitSettings(num_restarts=1, max_iterations=5)

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


def test_a_fit_that_is_late_makes_no_further_step() -> None:
    table = waves()
    y = Standardiser.fit(table.Y).transform(table.Y)[..., 0]
    settings = dataclasses.replace(gp_fitting.FitSettings(), max_seconds=0.0)
    stopped = gp_fitting.fit(table.X, y, gpflow.kernels.SquaredExponential, 0, settings)
    whole = gp_fitting.fit(table.X, y, gpflow.kernels.SquaredExponential, 0, ONE_RUN)
    assert stopped.log_marginal_likelihood < whole.log_marginal_likelihood
