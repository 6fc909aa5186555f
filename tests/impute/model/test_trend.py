"""The calendar enters where hidden gaps are predicted better with it."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute.model.posterior import features_of
from gpflow_bae.impute.model.trend import fit_trend

PERIODS = ("weekday",)
ROWS = 200


def days(number: int) -> np.ndarray:
    return np.datetime64("2024-01-01", "s") + np.arange(number) * np.timedelta64(1, "D")


def trend(columns: np.ndarray, number: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Features and coefficients of the trend of columns [N, P] with six gaps of five days."""
    Y = (columns - columns.mean(0)) / columns.std(0)
    for first in np.linspace(3, number - 9, 6).astype(int):
        Y[first : first + 5] = np.nan
    X = np.linspace(-1.7, 1.7, number)[None, :, None]
    features = features_of(days(number)[None], PERIODS, (1, number))
    return features, fit_trend(features, PERIODS, MultiOutputTable(X, Y[None]), Y[None], 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_meter_a_walk_and_a_line_have_no_calendar(seed: int) -> None:
    rng = np.random.default_rng(seed)
    meter = np.cumsum(225.0 + rng.normal(0.0, 60.0, ROWS))
    walk = np.cumsum(rng.standard_normal(ROWS))
    _, found = trend(np.stack([meter, walk, np.arange(float(ROWS))], axis=-1))
    # What is left of a component by chance is small beside the columns' variance of one.
    assert np.abs(found[1:]).max() < 0.06


def test_a_weekly_cycle_is_found_in_the_column_that_has_it() -> None:
    """Its amplitude is that of the data, within the noise; the other column has none.

    Chance leaves coefficients of up to 0.2 there, of which the cycle's gaps let some pass.
    """
    rng = np.random.default_rng(0)
    cycle = np.array([0.0, 2.0, 1.0, 3.0, 8.0, 12.0, -4.0])[np.arange(ROWS) % 7]
    noisy = np.stack([cycle, 0.0 * cycle], -1) + rng.standard_normal((ROWS, 2))
    features, found = trend(noisy)
    fitted = (features[0] @ found)[:, 0] * noisy[:, 0].std() + noisy[:, 0].mean()
    assert np.sqrt(np.mean(np.square(fitted - cycle))) < 0.6
    assert np.abs(found[1:, 1]).max() < 0.15


def test_columns_tell_each_other_of_a_cycle_and_a_line_beside_it_takes_it_from_none() -> None:
    """Ten noisy columns with the same small cycle, which their own gaps hardly show, and a line.

    By each column's own gaps alone the error is 0.96 of the cycle.
    """
    cycle = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.4])[np.arange(ROWS) % 7]
    errors = []
    for seed in range(3):
        noisy = cycle[:, None] + np.random.default_rng(seed).standard_normal((ROWS, 10))
        both = np.concatenate([noisy, np.arange(float(ROWS))[:, None]], axis=1)
        features, found = trend(both)
        fitted = (features[0] @ found)[:, :10] * noisy.std(0)
        errors.append(fitted - fitted.mean(0) - (cycle - cycle.mean())[:, None])
        assert np.abs(found[1:, 10]).max() < 0.02
    assert np.sqrt(np.mean(np.square(errors))) < 0.9 * cycle.std()


@pytest.mark.parametrize("seed", range(2))
def test_a_smooth_column_is_not_outweighed_by_noisy_ones(seed: int) -> None:
    """Interpolation errs by less than 0.01 in it; ten columns with a cycle err by about one."""
    rng = np.random.default_rng(seed)
    cycle = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.5, 1.5])[np.arange(ROWS) % 7]
    noisy = cycle[:, None] + rng.standard_normal((ROWS, 10))
    walk = np.cumsum(rng.standard_normal(ROWS))
    smooth = np.cumsum(walk - walk.mean())
    _, found = trend(np.concatenate([noisy, smooth[:, None]], axis=1))
    assert np.abs(found[1:, 10]).max() < 0.01  # 0.03 if errors count as they are


def test_without_gaps_to_hide_there_is_no_calendar() -> None:
    Y = np.array([[[1.0], [np.nan], [np.nan]]])
    features = features_of(days(3)[None], PERIODS, (1, 3))
    found = fit_trend(features, PERIODS, MultiOutputTable(np.arange(3.0)[None, :, None], Y), Y, 0)
    assert (found[1:] == 0.0).all()
