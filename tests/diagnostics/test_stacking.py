"""Stacking weights: the conditions of their maximum, and mixtures that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gpflow_bae.diagnostics import stacking_weights


def test_no_weight_can_gain() -> None:
    """Karush, Kuhn and Tucker: slopes are 1 where weights are positive, and at most 1 elsewhere."""
    rng = np.random.default_rng(0)
    log_density = rng.normal(size=(6, 50)) - np.array([0, 0, 0.3, 0.6, 1.0, 4.0])[:, None]
    weights = stacking_weights(log_density)
    np.testing.assert_allclose(weights.sum(), 1.0)
    density = np.exp(log_density)
    slopes = (density / (weights @ density)).mean(1)
    assert slopes.max() <= 1 + 1e-8
    assert weights[-1] < 1e-6 < weights[0]
    # Expectation maximisation comes near to a slope of 1 slowly where a weight tends to 0.
    np.testing.assert_allclose(slopes[weights > 0.01], 1.0, atol=1e-4)


def test_the_weights_of_a_mixture_are_found() -> None:
    """10,000 draws of 0.7 N(-2, 1) + 0.3 N(2, 1): a standard error of 0.0046, and a little more for
    the overlap; five of it.
    """
    rng = np.random.default_rng(1)
    y = rng.normal(np.where(rng.uniform(size=10_000) < 0.7, -2.0, 2.0), 1.0)
    log_density = np.stack([stats.norm.logpdf(y, m) for m in (-2.0, 2.0, 30.0)])
    np.testing.assert_allclose(stacking_weights(log_density), [0.7, 0.3, 0.0], atol=0.025)


def test_members_alike_share_alike() -> None:
    np.testing.assert_allclose(stacking_weights(np.zeros((4, 3))), 0.25)
    impossible = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_allclose(stacking_weights(impossible), 0.5)


@pytest.mark.parametrize(
    "values, message",
    [([[0.0, np.nan]], "NaN"), ([[0.0, -np.inf], [0.0, -np.inf]], r"points \[1\]")],
)
def test_densities_that_are_none_are_refused(values: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stacking_weights(np.array(values))
