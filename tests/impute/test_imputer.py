"""The estimator: what it fills, what it keeps, and the check against simple methods."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import sklearn.base

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute import Imputer, saved_fits
from gpflow_bae.impute.model import choice
from gpflow_bae.impute.model.gaps import hide_gaps
from gpflow_bae.impute.reading.problems import TableWarning
from tests.impute.tables import COLUMNS, stations

pytestmark = pytest.mark.usefixtures("untraced_predictions")


def arrays(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """X [T, N, D] and Y [T, N, P] of the stations."""
    days = np.tile(np.arange(40.0)[:, None], (2, 1, 1))
    return days, frame[["a", "b"]].to_numpy().reshape(2, 40, 2)


@pytest.fixture(scope="module")
def fitted() -> Imputer:
    """One latent channel, which is the truth of the table."""
    return Imputer(**COLUMNS, latent_dim=1, num_steps=20, progress=False).fit(stations()[1])


def test_holes_are_filled_within_what_is_said(fitted: Imputer) -> None:
    """The filled cells mix a curve that both outputs show: their error must be near the noise.

    That is 0.1 for a, of which three times are allowed; the column's own spread is 1.4.
    """
    whole, holes = stations()
    filled = fitted.impute()
    hole = holes["a"].isna()
    pd.testing.assert_frame_equal(
        filled[holes.columns][~hole].drop(columns="b"), holes[~hole].drop(columns="b")
    )
    error = (filled["a"] - whole["a"])[hole]
    assert np.sqrt(np.mean(error**2)) < 0.3
    assert (filled["a_sd"].notna() == hole).all()
    inside = whole["a"].between(filled["a_lower"], filled["a_upper"])[hole]
    assert inside.mean() > 0.6  # 16 cells at 90 %: fewer than 10 has a probability of 1e-4


def test_a_fit_is_kept_and_knows_tasks_that_were_not_there(
    fitted: Imputer, tmp_path: pathlib.Path
) -> None:
    fitted.save(tmp_path / "fit")
    assert sorted(p.name for p in (tmp_path / "fit").iterdir()) == ["fit.json", "posterior.npz"]
    loaded = Imputer.load(tmp_path / "fit")
    assert loaded.get_params() == fitted.get_params()
    whole, other = stations(seed=5)
    other["station"] = "west-" + other["station"]
    for moment, expected in zip(loaded.predict_y(other), fitted.predict_y(other), strict=True):
        np.testing.assert_allclose(moment, expected, rtol=1e-6)
    error = (loaded.impute(other)["a"] - whole["a"])[other["a"].isna()]
    assert np.sqrt(np.mean(error**2)) < 0.6
    with pytest.raises(RuntimeError, match="A loaded Imputer does not have its table"):
        loaded.impute()
    with pytest.raises(ValueError, match=r"no column \['station'\]"):
        loaded.impute(other.drop(columns="station"))


def test_arrays_and_frames_are_filled_with_the_same_numbers() -> None:
    """Equal seeds give equal fits, others do not. Only dates have a calendar, left out here."""
    _, holes = stations()
    options = {"latent_dim": 1, "num_steps": 5, "progress": False}
    options |= {"settings": {"num_fits": 1}, "periods": ()}
    X, Y = arrays(holes)
    frame = Imputer(**COLUMNS, **options).fit(holes).impute()
    array = Imputer(**options).fit(X, Y).impute()
    np.testing.assert_allclose(array.filled.reshape(80, 2), frame[["a", "b"]].to_numpy(), rtol=1e-5)
    hole = np.isnan(Y)
    np.testing.assert_allclose(
        array.sd[..., 0][hole[..., 0]], frame["a_sd"].dropna().to_numpy(), rtol=1e-5
    )
    other = Imputer(**options, seed=1).fit(X, Y).impute()
    assert np.abs(other.filled - array.filled)[hole].max() > 1e-3


def test_the_check_scores_cells_that_nobody_saw() -> None:
    """Column means are scored as NumPy scores them on the same cells; the fit stays as it was."""
    X, Y = arrays(stations()[1])
    imputer = Imputer(latent_dim=1, num_steps=5, seed=4, progress=False)
    result = imputer.check(X, Y, fraction=0.2)
    found = result.summary
    assert imputer.posterior_ is None and imputer.checked_ is not None
    rivals = ["IterativeImputer", "IterativeImputer with trees", "linear interpolation"]
    assert list(found) == ["auto", "coregionalised GPs", *rivals, "column means"]
    hidden = hide_gaps(MultiOutputTable(X, Y), 0.2, 4, evenly=True).table
    assert result.num_hidden == np.count_nonzero(hidden.test_mask)
    assert result.best in found and "instead" not in result.verdict
    low, high = result.expected_error[1:]
    assert low <= found["auto"]["rmse"] <= high
    errors = (hidden.test_truth - np.nanmean(hidden.Y, (0, 1))) ** 2
    rmse = (np.sqrt(np.nanmean(errors, (0, 1))) / np.nanstd(hidden.Y, (0, 1))).mean()
    np.testing.assert_allclose(found["column means"]["rmse"], rmse, rtol=1e-10)
    # The curve is smooth, and its two columns go together.
    assert found["coregionalised GPs"]["rmse"] < 0.5 * rmse
    # A check may be the start of a fit, which then fills by the methods that the check names.
    assert imputer.fit(X, Y, start=imputer.checked_).posterior_ is not imputer.checked_.posterior
    assert imputer.methods_ == result.filled_by
    assert all(method in result.verdict for method in result.filled_by.values())
    assert all(np.isfinite(list(scores.values())).all() for scores in found.values())


def test_a_fit_that_is_no_better_than_means_says_so() -> None:
    """Of noise nothing can be known."""
    Y = np.random.default_rng(0).standard_normal((300, 2))
    Y[::7, 0] = np.nan
    imputer = Imputer(num_steps=2, progress=False, settings={"num_fits": 1})
    with pytest.warns(TableWarning, match="no better than column means"):
        imputer.fit(np.arange(300.0)[:, None], Y)


def test_what_scikit_learn_asks_of_an_estimator() -> None:
    imputer = Imputer(["a"], time="t", settings={"nugget": 0.2})
    copy = sklearn.base.clone(imputer)
    assert copy is not imputer and copy.get_params() == imputer.get_params()
    assert copy.set_params(seed=3, task="s").get_params() == imputer.get_params() | {
        "seed": 3,
        "task": "s",
    }
    with pytest.raises(ValueError, match=r"no parameter \['tasks'\]"):
        imputer.set_params(tasks="s")


def test_what_cannot_be_filled_is_refused_before_a_fit(tmp_path: pathlib.Path) -> None:
    _, holes = stations()
    X, Y = arrays(holes)
    quick = {"num_steps": 1, "progress": False}
    with pytest.raises(RuntimeError, match="no fit yet: call fit"):
        Imputer().impute(X, Y)
    with pytest.raises(ValueError, match="outputs is 'ab'; it must be a list"):
        Imputer("ab", time="day").fit(holes)
    with pytest.raises(ValueError, match=r"Rows have shape \(2, 40, 1\); expected \[N, P\]"):
        Imputer().fit(X)
    with pytest.raises(ValueError, match="name columns, which arrays do not have"):
        Imputer(time="day").fit(X, Y)
    with pytest.raises(ValueError, match="latent_dim must be at least 1, got 0"):
        Imputer(latent_dim=0, **quick).fit(X, Y)
    with pytest.raises(ValueError, match="'b' is never observed"):
        Imputer(**COLUMNS, **quick).fit(holes.assign(b=np.nan))
    with pytest.raises(FileNotFoundError, match=r"holds no fit\.json"):
        Imputer.load(tmp_path)
    (tmp_path / "fit.json").write_text(json.dumps({"plan": {}, "columns": {}}))
    with pytest.raises(ValueError, match="written by an earlier version"):
        Imputer.load(tmp_path)


def test_other_rows_have_the_columns_of_the_fit() -> None:
    X, Y = arrays(stations()[1])
    imputer = Imputer(num_steps=1, progress=False, settings={"num_fits": 1}).fit(X, Y)
    with pytest.raises(ValueError, match="1 inputs and 1 outputs; the one of fit had 1 and 2"):
        imputer.impute(X, Y[..., :1])


@pytest.fixture(scope="module")
def of_numbers() -> tuple[pd.DataFrame, Imputer]:
    """A short fit of columns named by numbers and a tuple, at one latitude, by NumPy's settings."""
    t = np.arange(40.0)
    wind, rain = np.sin(t / 4.0), np.cos(t / 4.0)
    wind[5:9] = np.nan
    frame = pd.DataFrame({0: t, 1: wind, 2: rain, 3: 48.85})
    frame.columns = pd.Index([0, 1, ("sky", "rain"), 3], tupleize_cols=False)
    imputer = Imputer(
        frame.columns[1:3],
        time=0,
        inputs=np.array([3]),
        seed=np.int64(1),
        kinds={1: np.array([-3, 3])},
        settings={"num_fits": np.int64(1), "num_steps": np.int64(3)},
        progress=False,
    )
    with pytest.warns(TableWarning, match="3 has one value in all rows"):
        return frame, imputer.fit(frame)


def test_names_and_numbers_of_any_kind_are_fitted_saved_and_loaded(
    of_numbers: tuple[pd.DataFrame, Imputer], tmp_path: pathlib.Path
) -> None:
    frame, imputer = of_numbers
    filled = imputer.impute()
    assert list(filled.columns) == [
        *(0, 1, ("sky", "rain"), 3, "1_sd", "1_lower", "1_upper"),
        *(("sky", f"rain_{end}") for end in ("sd", "lower", "upper")),
    ]
    assert filled["1_sd"].notna().sum() == 4 and filled[1].between(-3, 3).all()
    imputer.save(tmp_path)
    loaded = Imputer.load(tmp_path)
    assert loaded.outputs == [1, ("sky", "rain")] and loaded.seed == 1
    assert loaded.kinds == {1: [-3, 3]}
    pd.testing.assert_frame_equal(loaded.impute(frame), filled, rtol=1e-9)


def test_an_input_of_one_value_in_a_fit_changes_nothing_later(
    of_numbers: tuple[pd.DataFrame, Imputer],
) -> None:
    """A millionth of a degree away, and a degree away: as at the latitude of the fit."""
    frame, imputer = of_numbers
    expected = imputer.predict_y(frame)
    assert np.sqrt(expected[1]).max() < 1.0  # what is far from all rows has the prior's, above 1
    for step in (1e-6, 0.01, 1.0):
        other = frame.copy()
        other[3] += step
        with pytest.warns(TableWarning, match="one value in all rows of the fit"):
            np.testing.assert_array_equal(imputer.predict_y(other), expected)


def test_a_save_that_was_killed_is_no_fit_of_two(
    of_numbers: tuple[pd.DataFrame, Imputer],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame, imputer = of_numbers
    imputer.save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(saved_fits, "to_json", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            imputer.save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / "posterior.npz").write_bytes(before["posterior.npz"] + b" ")
    with pytest.raises(ValueError, match="is not what .*fit.json was written with"):
        Imputer.load(tmp_path)


def test_a_home_is_a_home(
    of_numbers: tuple[pd.DataFrame, Imputer],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    of_numbers[1].save("~/fit")
    assert (tmp_path / "fit" / "fit.json").exists()
    assert Imputer.load("~/fit").outputs == [1, ("sky", "rain")]


def test_a_start_is_a_fit_of_the_same_table(of_numbers: tuple[pd.DataFrame, Imputer]) -> None:
    frame, imputer = of_numbers
    other = frame.iloc[::-1].copy()
    copy = sklearn.base.clone(imputer)
    for start in (imputer._fit_, "checked"):
        with (
            pytest.warns(TableWarning),
            pytest.raises(ValueError, match="start is no fit of this table"),
        ):
            copy.fit(other, start=start)


@pytest.mark.parametrize(
    "names",
    [pd.Index(["a", "b"]), np.array(["a", "b"]), pd.Series(["a", "b"]), iter(["a", "b"])],
    ids=["index", "array", "series", "generator"],
)
def test_names_come_in_anything_that_holds_some(names: object) -> None:
    imputer = Imputer(names, time="day", task="station")
    for _ in range(2):
        assert imputer.read(stations()[1]).outputs == ("a", "b")
    assert sklearn.base.clone(imputer).outputs == ["a", "b"]


def test_a_second_table_beside_a_frame_is_refused() -> None:
    _, holes = stations()
    imputer = Imputer(**COLUMNS)
    for table in (holes, imputer.read(holes)):
        with pytest.raises(ValueError, match="Y is given beside a .*, which holds the outputs"):
            imputer.fit(table, holes[["a"]])
    with pytest.raises(ValueError, match=r"\['day'\] is no column name"):
        Imputer(["a"], time=["day"]).fit(holes)
    with pytest.raises(ValueError, match="complex"):
        Imputer().fit(np.arange(6.0)[:, None], np.arange(6)[:, None] * 1j)


def test_a_method_that_is_too_slow_for_a_table_is_left_out_of_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the report says so; the methods that are quick stay."""
    X, Y = arrays(stations()[1])
    monkeypatch.setattr(choice, "_BUDGET", dict.fromkeys(choice._BUDGET, 0.0))
    result = Imputer(method="linear", progress=False).check(X, Y)
    assert result.methods == ("linear interpolation", "column means")
    assert "IterativeImputer and IterativeImputer with trees took no part" in result.hidden
    assert result.filled_by == dict.fromkeys(["y0", "y1"], "linear interpolation")


def test_days_of_another_table_count_from_the_first_date_of_the_fit(
    tmp_path: pathlib.Path,
) -> None:
    holes = stations()[1].assign(day=lambda frame: pd.to_datetime(frame["day"]))
    options = {"num_steps": 1, "latent_dim": 1, "settings": {"num_fits": 1}}
    imputer = Imputer(**COLUMNS, progress=False, **options).fit(holes)
    imputer.save(tmp_path / "fit")
    later = holes[holes["day"] >= "2024-01-11"]
    for fitted in (imputer, Imputer.load(tmp_path / "fit")):
        np.testing.assert_allclose(
            fitted.read(later).table.X, imputer.table_.table.X[:, 10:], atol=1e-12
        )


def test_times_far_from_zero_change_nothing() -> None:
    """Seconds since 1970, say: shifts that rounding leaves as they are give the same numbers."""
    rng = np.random.default_rng(0)
    t, y = np.arange(32.0), np.sin(np.arange(32.0) / 3.0) + 0.1 * rng.standard_normal(32)
    y[10:13] = np.nan
    options = {"num_steps": 3, "progress": False, "settings": {"num_fits": 1}}
    found = [
        Imputer(["y"], time="t", **options).fit(pd.DataFrame({"t": t + shift, "y": y})).impute()
        for shift in (0.0, 2.0**11, 2.0**31)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other["y"], found[0]["y"], rtol=1e-9)
        np.testing.assert_allclose(other["y_sd"], found[0]["y_sd"], rtol=1e-9)


def test_a_dictionary_is_no_table() -> None:
    with pytest.raises(TypeError, match="table must be a DataFrame or an array, got dict"):
        Imputer(["a"]).fit({"a": [1.0, 2.0]})
