"""GPAR: a chain of one is a regression, and a linear Gaussian chain has an exact answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from experiments.baselines import gp_fitting, gpar, independent_gps
from experiments.common import scores
from gpflow_bae.data import MultiOutputTable
from tests.impute.tables import every_row_but_padding_is_predicted, make_table, waves

ONE_RUN = gp_fitting.FitSettings(num_restarts=1)
# For what holds at any hyperparameters.
SHORT_RUN = gp_fitting.FitSettings(num_restarts=1, max_iterations=5)


def test_a_chain_of_one_is_an_independent_regression() -> None:
    table = waves()
    expected = independent_gps.fit_predict(table, settings=SHORT_RUN)
    found = gpar.fit_predict(table, settings=SHORT_RUN, num_samples=3)
    for moment, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(moment, other, rtol=1e-6)


def test_every_row_but_padding_is_predicted() -> None:
    every_row_but_padding_is_predicted(gpar, settings=SHORT_RUN)


def linear_gaussian(seed: int = 0) -> MultiOutputTable:
    """y1 ~ N(0, 1) and y2 = 2 y1 + N(0, 0.5^2), white in x; y2 hidden in a third of the rows.

    In a third of these y1 is hidden too.
    """
    rng = np.random.default_rng(seed)
    first = rng.standard_normal(180)
    truth = np.stack([first, 2.0 * first + 0.5 * rng.standard_normal(180)], axis=-1)[None]
    hidden = np.zeros(truth.shape, bool)
    hidden[0, ::3, 1], hidden[0, ::9, 0] = True, True
    return make_table(truth, hidden)


@pytest.mark.parametrize("linear", [True, False])
def test_the_exact_conditional_is_found(linear: bool) -> None:
    table = linear_gaussian()
    prediction = gpar.predict(table, settings=ONE_RUN, num_samples=500, linear=linear, seed=3)
    mean, variance = prediction.mean, prediction.variance
    first, hidden = table.truth[0, :, 0], table.test_mask[0]
    given = hidden[:, 1] & ~hidden[:, 0]
    # E[y2 | y1] = 2 y1: the slope is estimated with standard error 0.5 / sqrt(120) = 0.05 and the
    # mean with as much; where |y1| < 2 that is 0.1 together, of which three are allowed.
    inner = given & (np.abs(first) < 2.0)
    assert np.max(np.abs(mean[0, inner, 1] - 2.0 * first[inner])) < 0.3
    # Var[y2 | y1] = 0.25, estimated with a relative standard error of sqrt(2 / 120) = 0.13.
    np.testing.assert_allclose(variance[0, inner, 1], 0.25, rtol=0.4)
    # With y1 unknown, y2 ~ N(0, 2^2 + 0.5^2). The moments of the 160 y1 that are known, and of the
    # 500 samples, have relative standard errors of about 0.11 and 0.06 in the variance.
    both = hidden.all(-1)
    np.testing.assert_allclose(variance[0, both, 1], 4.25, rtol=0.4)
    # Its mean is that of the y2 seen and of the samples: sqrt(4.25 / 120 + 4.25 / 500) = 0.21.
    assert np.max(np.abs(mean[0, both, 1])) < 0.75
    # The whole is calibrated: 60 test cells, a standard error of 0.04.
    assert abs(scores.score_outputs(table, prediction)["y1"]["coverage_90"] - 0.9) < 0.12


def test_missing_earlier_outputs_are_filled_by_their_predictive_mean() -> None:
    """y1 is seen only where y0 is not: what y1 is of y0 can be learnt from filled rows alone."""
    rng = np.random.default_rng(2)
    x = np.arange(80.0) / 8.0
    first = np.sin(2.0 * x)
    truth = np.stack([first, 3.0 * first**2], axis=-1)[None]
    truth += 0.02 * rng.standard_normal(truth.shape)
    hidden = np.zeros(truth.shape, bool)
    hidden[0, 1:40:2, 0], hidden[0, :, 1] = True, True
    hidden[0, 1:40:2, 1] = False
    table = make_table(truth, hidden, X=x[None, :, None])
    mean, _ = gpar.fit_predict(table, settings=ONE_RUN, linear=False)
    # Later rows, where x says nothing: y0 interpolates a sine at 25 points a period, so its filled
    # values and what is learnt of them are off by a few times the noise of 0.02. Without y0 the
    # error is the deviation of y1, which is 1.06.
    later = slice(45, None)
    assert np.sqrt(np.mean(np.square(mean - truth)[0, later, 1])) < 0.15


def test_outputs_come_by_how_often_they_are_missing() -> None:
    table = waves(num_rows=15, num_outputs=2)  # y1 has hidden cells, y0 none
    swapped = make_table(
        table.truth[..., ::-1], table.test_mask[..., ::-1], output_names=("y1", "y0")
    )
    arguments: dict[str, Any] = {"settings": SHORT_RUN, "num_samples": 2}
    found, variance = gpar.fit_predict(table, **arguments)
    other = [moment[..., ::-1] for moment in gpar.fit_predict(swapped, **arguments)]
    np.testing.assert_allclose(other[0], found, rtol=1e-6)
    np.testing.assert_allclose(other[1], variance, rtol=1e-6)


def test_a_chain_of_one_on_logarithms_is_a_lognormal_distribution() -> None:
    table = waves(num_rows=20)
    logs = make_table(np.log(table.truth), table.test_mask)
    m, v = independent_gps.fit_predict(logs, settings=SHORT_RUN)
    found = gpar.predict(table, settings=SHORT_RUN, num_samples=2, log_outputs=True)
    lognormal = stats.lognorm(np.sqrt(v), scale=np.exp(m))
    np.testing.assert_allclose(found.mean, lognormal.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.variance, lognormal.var(), rtol=1e-5)
    for probability in (0.05, 0.5, 0.95):
        expected = lognormal.ppf(probability)
        np.testing.assert_allclose(found.quantile(probability), expected, rtol=1e-5)
    density = lognormal.logpdf(table.test_truth)
    np.testing.assert_allclose(found.log_density, density, rtol=1e-5)  # NaN but in test cells
    moments = gpar.fit_predict(table, settings=SHORT_RUN, num_samples=2, log_outputs=True)
    np.testing.assert_array_equal(moments, (found.mean, found.variance))
    with pytest.raises(ValueError, match=r"positive outputs; \['y0', 'y1'\]"):
        gpar.fit_predict(linear_gaussian(), log_outputs=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "cosine"}, "kernel is 'cosine'"),
        ({"num_samples": 0}, "num_samples is 0"),
    ],
)
def test_unknown_choices_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpar.fit_predict(linear_gaussian(), **arguments)
