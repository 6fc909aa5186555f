"""Scores of predictions that are no Gaussian: mixtures, and outputs modelled as logarithms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from experiments.common import scores
from gpflow_bae.data import MultiOutputTable, Standardiser
from tests.impute.tables import make_table


def of_draws(truth: np.ndarray) -> MultiOutputTable:
    """One output, all of it hidden."""
    truth = truth[None, :, None]
    return make_table(truth, np.ones(truth.shape, bool))


def test_a_mixture_has_the_density_of_its_parts_and_their_moments() -> None:
    rng = np.random.default_rng(0)
    table = of_draws(rng.standard_normal(50))
    means, variances = rng.standard_normal((3, 1, 50, 1)), rng.uniform(0.1, 2.0, (3, 1, 50, 1))
    parts = [
        scores.TablePrediction.gaussian(table, m, v) for m, v in zip(means, variances, strict=True)
    ]
    found = scores.TablePrediction.mixture(parts)
    densities = stats.norm.logpdf(table.truth, means, np.sqrt(variances))
    expected = special.logsumexp(densities, axis=0, b=1.0 / 3.0)
    np.testing.assert_allclose(found.log_density, expected, rtol=1e-12)
    second = np.mean(variances + means**2, axis=0)
    np.testing.assert_allclose(found.variance, second - means.mean(0) ** 2, rtol=1e-10)
    values = scores.score_prediction(table, found)
    assert values["nll"] == pytest.approx(-expected.mean(), rel=1e-12)
    by_moments = stats.norm.logpdf(table.truth, found.mean, np.sqrt(found.variance))
    assert values["nll_moments"] == pytest.approx(-by_moments.mean(), rel=1e-12)


def test_of_two_far_modes_the_mixture_says_more_than_its_moments() -> None:
    """Truth at both: log 2 and the entropy of a mode, against a Gaussian as wide as both."""
    rng = np.random.default_rng(1)
    sides = np.repeat([-20.0, 20.0], 5000)
    table = of_draws(sides + rng.standard_normal(sides.size))
    ones = np.ones(table.Y.shape)
    found = scores.TablePrediction.mixture(
        [scores.TablePrediction.gaussian(table, m * ones, ones) for m in (-20.0, 20.0)]
    )
    values = scores.score_prediction(table, found)
    entropy = 0.5 * np.log(2.0 * np.pi * np.e)
    # A log density has standard deviation 1 / sqrt(2) here: four standard errors.
    assert values["nll"] == pytest.approx(entropy + np.log(2.0), abs=4 / np.sqrt(2 * sides.size))
    assert values["nll_moments"] == pytest.approx(entropy + 0.5 * np.log(401.0), abs=0.05)


def test_logarithms_are_scored_by_the_lognormal_distribution() -> None:
    """Of its own draws: density and quantiles are SciPy's, and no other point has less error."""
    rng = np.random.default_rng(2)
    m, s, count = 0.7, 0.9, 20_000
    table = of_draws(np.exp(m + s * rng.standard_normal(count)))
    scale = Standardiser(np.array([0.3]), np.array([2.0]), log_outputs=True)
    ones = np.ones(table.Y.shape)
    found = scores.TablePrediction.gaussian(
        table, (m - 0.3) / 2.0 * ones, (s / 2.0) ** 2 * ones, scale
    )
    values = scores.score_prediction(table, found)
    lognormal = stats.lognorm(s, scale=np.exp(m))
    y = table.truth[0, :, 0]
    assert values["nll"] == pytest.approx(-lognormal.logpdf(y).mean(), rel=1e-10)
    assert values["mae"] == pytest.approx(np.abs(y - lognormal.median()).mean(), rel=1e-10)
    assert values["smse"] == pytest.approx(np.mean((y - lognormal.mean()) ** 2) / y.var())
    inside = (lognormal.ppf(0.05) <= y) & (y <= lognormal.ppf(0.95))
    assert values["coverage_90"] == inside.mean()
    assert values["coverage_90"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / count))
    # The median has the least mean absolute error, the mean the least square one.
    others = [np.abs(y - c * lognormal.median()).mean() for c in (0.9, 1.1)]
    assert values["mae"] < min(*others, np.abs(y - lognormal.mean()).mean())
    assert values["smse"] < np.mean((y - lognormal.median()) ** 2) / y.var()
    gaussian = stats.norm(lognormal.mean(), lognormal.std())
    assert values["nll_moments"] == pytest.approx(-gaussian.logpdf(y).mean(), rel=1e-10)
    assert values["nll"] < values["nll_moments"]  # as draws of the lognormal say


def test_a_density_from_elsewhere_takes_the_place_of_the_gaussians() -> None:
    table = of_draws(np.array([1.0, 2.0, 4.0]))
    ones = np.ones(table.Y.shape)
    log_density = np.array([-1.0, -2.0, -6.0])[None, :, None]
    found = scores.TablePrediction.gaussian(table, ones, ones, log_density=log_density)
    values = scores.score_prediction(table, found)
    assert values["nll"] == 3.0
    assert values["nll_moments"] == scores.score(table, ones, ones)["nll"]
