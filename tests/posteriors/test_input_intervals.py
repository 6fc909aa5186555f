"""Intervals of missing inputs, calibrated by entries that were hidden and are known."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import inputs, likelihoods, models, posteriors
from gpflow_bae.posteriors.input_intervals import InputIntervals, calibrated

TURN = 2.0 * np.pi


@pytest.mark.parametrize("period", [None, TURN])
def test_other_entries_are_held_as_often_as_is_said(period: float | None) -> None:
    """By draws that are three times too sure, on a line and across the cut of a circle.

    The error of another entry is as likely to be of each rank among those that are known: of n of
    them the k-th smallest holds it k times out of n + 1.
    """
    rng = np.random.default_rng(0)
    number, repeats = 19, 2000
    truth = rng.uniform(-0.2, 0.2, (repeats, number + 1))
    centre = truth + 0.3 * rng.standard_normal(truth.shape)
    draws = centre + 0.1 * rng.standard_normal((100, *truth.shape))
    if period is not None:
        draws, truth = np.mod(draws, period), np.mod(truth, period)
    held, raw, scales = [], [], []
    for r in range(repeats):
        values = truth[r].copy()
        values[-1] = np.nan
        for known, found in ((values, held), (None, raw)):
            parts = calibrated(draws[:, r], known, 0.9, period)
            intervals = InputIntervals(np.zeros((number + 1, 2)), *parts, period)
            found.append(intervals.holds(truth[r])[-1])
        scales.append(calibrated(draws[:, r], values, 0.9, period)[-1])
    # 18 of 20, and four standard errors of a share; uncalibrated, |N(0, 1)| < 1.645 / 3.
    assert abs(np.mean(held) - 0.9) < 4.0 * np.sqrt(0.09 / repeats)
    assert abs(np.mean(raw) - 0.416) < 0.06
    assert 2.5 < np.median(scales) < 4.0


def test_the_scale_is_the_largest_error_of_nine() -> None:
    """In units of the interval's own half on the error's side, which differ."""
    draws = np.concatenate([np.linspace(-1.0, 0.0, 51), np.linspace(0.0, 3.0, 51)])[:, None]
    draws = draws - draws.mean() + np.zeros(10)
    low, high = np.quantile(draws[:, 0], [0.05, 0.95])
    values = np.r_[np.linspace(0.1, 0.8, 7) * high, 1.5 * low, 1.2 * high, np.nan]
    estimate, lower, upper, scale = calibrated(draws, values, 0.9, None)
    np.testing.assert_allclose(scale, 1.5, rtol=1e-12)
    np.testing.assert_allclose(lower, 1.5 * low + estimate, rtol=1e-9)
    np.testing.assert_allclose(upper, 1.5 * high + estimate, rtol=1e-9)
    with pytest.raises(ValueError, match="8 entries that were hidden; intervals of 0.9 need 9"):
        calibrated(draws, np.where(np.arange(10) == 0, np.nan, values), 0.9, None)


def test_no_interval_is_more_than_the_circle() -> None:
    rng = np.random.default_rng(0)
    spread = np.repeat([0.01, 0.1], [9, 3])  # scaled by 200 or so these would go round
    draws = 1.0 + spread * rng.standard_normal((50, 12))
    values = np.where(np.arange(12) < 9, 3.0, np.nan)
    _, lower, upper, scale = calibrated(draws, values, 0.9, TURN)
    assert scale > 50.0
    np.testing.assert_allclose((upper - lower)[9:], TURN)
    assert (upper - lower).max() < TURN + 1e-9
    with pytest.raises(ValueError, match="draws of an entry do not differ"):
        calibrated(np.ones((3, 2)), None, 0.9, None)


def posterior_of(q: str | None) -> tuple[posteriors.Posterior, np.ndarray, np.ndarray]:
    """Of a model that was not fitted, whose second column is an angle: X with holes, and without.

    :param q: of missing angles; None for a model without any.
    """
    rng = np.random.default_rng(0)
    complete = np.stack([np.arange(30.0), rng.uniform(0.0, TURN, 30)], 1)
    X = complete.copy()
    kernel: Any = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(active_dims=[1]))
    if q is not None:
        X[::3, 1] = np.nan
        kernel = inputs.CompletedInputs(
            kernel,
            inputs.MissingInputs(X, periods={1: TURN}, q=q),  # type: ignore[arg-type]
        )
    encoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    model = models.SVGPVAE(
        kernel, np.zeros((1, 2)), decoder, encoder, likelihoods.Gaussian(1.0), latent_dim=1
    )
    data = (X, rng.standard_normal((30, 2)))
    return posteriors.Posterior.from_point(model, data), X, complete


def test_intervals_of_a_model() -> None:
    """Of ten missing angles nine are known, whose largest error all intervals are scaled to."""
    posterior, X, complete = posterior_of("gaussian")
    known = complete.copy()
    known[0] = np.nan
    found, raw = (posteriors.input_intervals(posterior, 1, known=v) for v in (known, None))
    np.testing.assert_array_equal(found.places, np.argwhere(np.isnan(X[None, :, 1])))
    assert raw.scale == 1.0 and found.period == raw.period == TURN
    np.testing.assert_array_equal(raw.estimate, found.estimate)
    truth = complete[::3, 1]
    assert found.holds(truth)[1:].all() and not raw.holds(truth)[1:].all()
    widened = np.minimum(found.scale * (raw.upper - raw.estimate), 0.5 * TURN)
    np.testing.assert_allclose(found.upper - found.estimate, widened)


def test_what_has_no_intervals_is_refused() -> None:
    posterior, _, complete = posterior_of("gaussian")
    wrong: dict[str, Any]
    for wrong, error in (
        ({"column": 0}, "column 0 has no missing entries"),
        ({"column": 1, "known": complete[:5]}, "known has shape"),
        ({"column": 1, "level": 1.0}, "level must be between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=error):
            posteriors.input_intervals(posterior, **wrong)
    with pytest.raises(ValueError, match='fit with q="gaussian"'):
        posteriors.input_intervals(posterior_of("point")[0], 1)
    with pytest.raises(TypeError, match="this model's inputs are known"):
        posteriors.input_intervals(posterior_of(None)[0], 1)
