"""The model of a table: its blocks, its calendar, its mixture of fits, and its files."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute import Imputer
from gpflow_bae.impute import model as table_model
from gpflow_bae.impute.model import Plan, TablePosterior, calendar_features, visible_periods
from gpflow_bae.impute.model.calibration import VarianceScales
from gpflow_bae.impute.model.starts import noise_floor
from gpflow_bae.impute.model.trend import _ridge
from gpflow_bae.posteriors import CoregionalisationPosterior


def coupled(num_rows: int = 700, seed: int = 0) -> tuple[MultiOutputTable, np.ndarray]:
    """Four columns that mix two rough series, with runs of twelve rows hidden."""
    rng = np.random.default_rng(seed)
    keep = np.exp(-1.0 / 15.0)
    codes = np.zeros((num_rows, 2))
    for n in range(1, num_rows):
        codes[n] = keep * codes[n - 1] + np.sqrt(1 - keep**2) * rng.standard_normal(2)
    truth = (codes @ rng.standard_normal((2, 4)) + 0.2 * rng.standard_normal((num_rows, 4)))[None]
    hidden = np.zeros(truth.shape, dtype=bool)
    for first in range(10, num_rows - 20, 30):
        hidden[0, first : first + 12, rng.permutation(4)[: rng.integers(1, 4)]] = True
    X = np.linspace(-1.7, 1.7, num_rows)[None, :, None]
    return MultiOutputTable(X, np.where(hidden, np.nan, truth), truth, hidden), truth


def plan_of(table: MultiOutputTable, **changes) -> Plan:
    step = float(table.X[0, 1, 0] - table.X[0, 0, 0])
    quick = {"num_steps": 12, "cells_in_fit": 1500, "cells_per_fit_block": 200}
    fixed = {"latent_dim": 2, "step": step, "cells_per_block": 300}
    return Plan.from_dict(quick | fixed | changes)


@pytest.fixture(scope="module")
def fitted() -> tuple[MultiOutputTable, TablePosterior]:
    table, _ = coupled()
    return table, table_model.fit(plan_of(table), table, table.Y, progress=False)


def test_filled_gaps_are_better_than_lines_and_their_intervals_hold(
    fitted: tuple[MultiOutputTable, TablePosterior],
) -> None:
    table, posterior = fitted
    mean, variance = posterior.predict(table, table.Y, where=table.test_mask)
    hidden = table.test_mask
    assert np.isnan(mean[~hidden]).all()
    missed = (mean - table.truth)[hidden]
    from experiments.baselines import linear_interpolation

    lines, _ = linear_interpolation.fit_predict(table)
    assert np.sqrt(np.mean(missed**2)) < 0.8 * np.sqrt(np.mean((lines - table.truth)[hidden] ** 2))
    covered = np.mean(np.abs(missed) < 1.6449 * np.sqrt(variance[hidden]))
    # Some 46 gaps, whose cells go together: a standard error of 0.03, of which three are allowed.
    assert 0.8 < covered < 0.98


def test_blocks_that_hold_everything_are_exact(
    fitted: tuple[MultiOutputTable, TablePosterior],
) -> None:
    """And blocks of a tenth of that are near: the rest is too far away to matter."""
    _, posterior = fitted
    table, _ = coupled(120, seed=5)
    one = posterior.smooth.models[:1]

    def in_blocks(cells: int) -> tuple[np.ndarray, np.ndarray]:
        alone = dataclasses.replace(
            posterior,
            smooth=CoregionalisationPosterior(one, cells),
            variance_scales=VarianceScales(np.ones(4), np.ones(4)),
            weight=1.0,
        )
        return alone.predict(table, table.Y, where=table.test_mask)

    exact = in_blocks(10_000)
    seen = np.argwhere(table.observed[0])
    asked = np.argwhere(table.test_mask[0])
    row, column = (np.concatenate([seen, asked])[:, i].astype(np.int32) for i in (0, 1))
    K = one[0].covariance(table.X[0], row, column).numpy()
    n = len(seen)
    residual = table.Y[0][tuple(seen.T)] - posterior.coefficients[0, seen[:, 1]]
    expected = K[n:, :n] @ np.linalg.solve(K[:n, :n], residual)
    expected += posterior.coefficients[0, asked[:, 1]]
    np.testing.assert_allclose(exact[0][0][tuple(asked.T)], expected, atol=1e-8)
    near, _ = in_blocks(120)
    assert np.nanmax(np.abs(near - exact[0])) < 0.1 * np.nanstd(table.Y)


def test_equal_seeds_give_equal_fits_and_a_saved_one_comes_back(
    fitted: tuple[MultiOutputTable, TablePosterior],
) -> None:
    table, posterior = fitted
    again = table_model.fit(plan_of(table), table, table.Y, progress=False)
    loaded = TablePosterior.from_arrays(posterior.to_arrays(), posterior.plan)
    expected = posterior.predict(table, table.Y, where=table.test_mask)
    for other in (again, loaded):
        found = other.predict(table, table.Y, where=table.test_mask)
        for moment, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(moment, known, rtol=1e-10)


def test_several_fits_predict_their_mixture() -> None:
    """Means are averaged; variances too, and the variance of the means is added."""
    table, _ = coupled(60)
    plan = plan_of(table, num_fits=2, num_steps=3)
    posterior = table_model.fit(plan, table, table.Y, progress=False)
    assert len(posterior.smooth.models) == 2
    alone = [
        dataclasses.replace(
            posterior,
            smooth=CoregionalisationPosterior((model,)),
            variance_scales=VarianceScales(np.ones(4), np.ones(4)),
        ).predict(table, table.Y, where=table.test_mask)
        for model in posterior.smooth.models
    ]
    means, variances = (np.stack(part)[:, table.test_mask] for part in zip(*alone, strict=True))
    assert np.abs(means[0] - means[1]).max() > 1e-3
    loaded = TablePosterior.from_arrays(posterior.to_arrays(), plan)
    mean, variance = loaded.predict(table, table.Y, where=table.test_mask)
    np.testing.assert_allclose(mean[table.test_mask], means.mean(0), rtol=1e-10)
    expected = np.full(table.Y.shape, np.nan)
    expected[table.test_mask] = np.mean(variances + means**2, axis=0) - means.mean(0) ** 2
    expected = posterior.variance_scales.apply(expected)[table.test_mask]
    np.testing.assert_allclose(variance[table.test_mask], expected, rtol=1e-8)


def test_settings_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match=r"The imputer has no setting \['nugget'\]"):
        Plan.from_dict({"nugget": 0.1})
    with pytest.raises(ValueError, match="latent_dim is 0"):
        Plan(latent_dim=0)
    with pytest.raises(ValueError, match="num_fits is 0"):
        Plan(num_fits=0)
    table, _ = coupled(60)
    with pytest.raises(ValueError, match="latent_dim is 5 for 4 outputs"):
        plan = dataclasses.replace(plan_of(table), latent_dim=5)
        table_model.fit(plan, table, table.Y, progress=False)


# The calendar.


def hours(number: int) -> np.ndarray:
    return np.datetime64("2024-03-04T00", "s") + np.arange(number) * np.timedelta64(1, "h")


def test_periods_are_seen_twice_and_sampled_four_times() -> None:
    assert visible_periods(hours(47), 1 / 24) == ()
    assert visible_periods(hours(49), 1 / 24) == ("hour",)
    assert visible_periods(hours(24 * 15), 1 / 24) == ("hour", "weekday")
    assert visible_periods(hours(24 * 15)[::24], 1.0) == ("weekday",)
    days = np.datetime64("2020-01-01", "s") + np.arange(900) * np.timedelta64(1, "D")
    assert visible_periods(days, 1.0) == ("weekday", "season")
    assert visible_periods(None, 1.0) == ()


def test_features_repeat_with_their_period_and_start_on_a_monday_at_midnight() -> None:
    """4 March 2024 is a Monday: all sines are 0 there, all cosines 1."""
    found = calendar_features(hours(24 * 8), ("hour", "weekday"))
    np.testing.assert_allclose(found[0], np.tile([0.0, 1.0], 6), atol=1e-9)
    np.testing.assert_allclose(found[24, :6], found[0, :6], atol=1e-9)
    np.testing.assert_allclose(found[24 * 7], found[0], atol=1e-9)
    np.testing.assert_allclose(found[6, 0], 1.0)  # a quarter of a day after midnight
    assert calendar_features(hours(3), ()).shape == (3, 0)


def test_a_daily_cycle_is_known_where_a_column_has_no_neighbours() -> None:
    """A week of a column is missing, and no other column tells of it: the cycle of the rest does.

    Its amplitude is 1 and the noise 0.2; half of the amplitude would be the error of a mean.
    """
    rng = np.random.default_rng(0)
    time = hours(24 * 21)
    phase = 2 * np.pi * np.arange(len(time)) / 24
    truth = np.stack([np.sin(phase), rng.standard_normal(len(time))], -1)[None]
    truth = truth + 0.2 * rng.standard_normal(truth.shape)
    hidden = np.zeros(truth.shape, dtype=bool)
    hidden[0, 240:408, 0] = True
    X = np.linspace(-1.7, 1.7, len(time))[None, :, None]
    table = MultiOutputTable(X, np.where(hidden, np.nan, truth), truth, hidden)
    plan = plan_of(table, num_steps=3, periods=("hour",))
    posterior = table_model.fit(plan, table, table.Y, time[None], progress=False)
    mean, _ = posterior.predict(table, table.Y, time[None], hidden)
    assert np.sqrt(np.mean((mean - truth)[hidden] ** 2)) < 0.3
    with pytest.raises(ValueError, match="knows the calendar's hour; this table's time has no"):
        posterior.predict(table, table.Y)


def days(number: int) -> np.ndarray:
    return np.datetime64("2024-01-01", "s") + np.arange(number) * np.timedelta64(1, "D")


@pytest.mark.parametrize("number", [30, 200])
def test_a_column_that_rises_has_no_calendar(number: int) -> None:
    """A regression on the weekdays alone gives a line an amplitude of 7 / pi of its steps.

    With a line in two tasks, at two levels, only what is periodic is left: here a cosine of 0.2.
    """
    step = 3.46 / number
    X = step * np.tile(np.arange(float(number))[:, None], (2, 1, 1))
    features = table_model.posterior.features_of(
        np.stack([days(number)] * 2), ("weekday",), (2, number)
    )
    rising = X * [1.0, -3.0] + np.array([0.0, 2.0])[:, None, None]
    values = rising + 0.2 * features[..., 2:3]
    values[:, 10:13] = np.nan
    found = _ridge(features, MultiOutputTable(X, values), values)
    expected = np.zeros((7, 2))
    expected[2] = 0.2 * number / (number + 3.0)  # two tasks, cosines of mean square a half
    np.testing.assert_allclose(found[1:], expected[1:], atol=0.1 * step + 0.01)


def test_a_line_of_daily_rows_is_filled_with_the_line() -> None:
    table = pd.DataFrame(
        {"day": pd.date_range("2024-01-01", periods=30), "a": 10.5 + np.arange(30)}
    )
    table.loc[11:13, "a"] = np.nan
    options = {"num_steps": 10, "progress": False, "settings": {"num_fits": 1}}
    filled = Imputer(["a"], time="day", **options).fit(table).impute()
    np.testing.assert_allclose(filled["a"][11:14], [21.5, 22.5, 23.5], atol=0.1)


def test_a_meter_that_rises_is_filled_as_well_as_by_lines() -> None:
    """Its rise is a hundred times as large as what a day adds to it, and may not become noise."""
    rng, days = np.random.default_rng(0), np.arange(200)
    weekly = 15.0 * np.array([0.75, 1.0, 0.9, 0.25, -0.25, -1.4, -1.25])
    rises = 225.0 + weekly[days % 7] + rng.normal(0.0, 30.0, 200)
    truth = np.cumsum(np.clip(rises, 50.0, 400.0))
    hidden = np.zeros(200, bool)
    for first in (8, 37, 66, 98, 141, 175):
        hidden[first : first + 5] = True
    table = pd.DataFrame({"day": pd.date_range("2023-01-02", periods=200), "meter": truth})
    table.loc[hidden, "meter"] = np.nan
    imputer = Imputer(["meter"], time="day", progress=False, settings={"num_fits": 1})
    filled = imputer.fit(table).impute()["meter"][hidden]
    lines = np.interp(days[hidden], days[~hidden], truth[~hidden])
    errors = [np.sqrt(np.mean(np.square(v - truth[hidden]))) for v in (filled, lines)]
    assert errors[0] < errors[1] * (1.0 + 1e-9)  # it may be filled by lines


def test_a_logarithm_is_not_predicted_far_beyond_what_was_seen(tmp_path: pathlib.Path) -> None:
    """A row's other column is ten times as large as any: the line of the logarithms says exp(30).

    Of a table whose values are larger than the fit's, those are what was seen.
    """
    rng = np.random.default_rng(0)
    a = rng.uniform(0.0, 1.0, 60)
    b = np.exp(3.0 * a + 0.05 * rng.standard_normal(60))
    a[7] = 10.0
    b[[7, 20, 40]] = np.nan
    table = pd.DataFrame({"t": np.arange(60.0), "a": a, "b": b})
    kinds = {"a": "continuous", "b": "positive"}
    options = {"method": "gp", "num_steps": 3, "progress": False, "settings": {"num_fits": 1}}
    imputer = Imputer(["a", "b"], time="t", kinds=kinds, **options).fit(table)
    filled = imputer.impute()
    assert filled["b"][7] < 2.0 * np.nanmax(b)
    spread = np.nanstd(np.log(b))
    assert filled["b_upper"][7] > np.exp(np.nanmax(np.log(b)) + 0.8 * spread)
    larger = table.assign(b=100.0 * table["b"])
    imputer.save(tmp_path / "fit")
    again = Imputer.load(tmp_path / "fit").impute(larger)
    assert again["b"][7] > 10.0 * np.nanmax(b)
    pd.testing.assert_frame_equal(again, imputer.impute(larger), rtol=1e-6)
    np.testing.assert_allclose(Imputer.load(tmp_path / "fit").impute(table)["b"], filled["b"])


def test_the_floor_of_the_noise_is_of_steps_in_time_within_tasks() -> None:
    """Whatever the order of rows, and however far one task's values are from another's."""
    rng = np.random.default_rng(0)
    X = np.tile(np.arange(50.0)[:, None], (2, 1, 1))
    Y = np.stack([0.01 * X[..., 0] + [[0.0], [3.0]], rng.normal(size=(2, 50))], axis=-1)
    Y[0, 3:9, 0] = np.nan
    order = rng.permutation(50)
    plan = Plan(latent_dim=2, step=1.0)
    for rows in (slice(None), order):
        found = noise_floor(MultiOutputTable(X[:, rows], Y[:, rows]), plan)
        np.testing.assert_allclose(found, [1e-6, 1e-4], rtol=1e-9)  # 0.01 of 0.01^2; at most
    flat = noise_floor(MultiOutputTable(X, Y), dataclasses.replace(plan, step=None))
    np.testing.assert_array_equal(flat, [1e-4, 1e-4])
