"""Intervals of missing inputs, calibrated by entries that were hidden and are known."""

from __future__ import annotations

import numpy as np
import pytest

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
            intervals = InputIntervals(np.zeros((number + 1, 2)), *parts)
            found.append(intervals.holds(truth[r], period)[-1])
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
