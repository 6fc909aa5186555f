"""A user's DataFrame: what is read, what is refused, what is written back, what is left alone."""

from __future__ import annotations

import pathlib
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute.reading import frames, table_files
from gpflow_bae.impute.reading.filling import beside_names
from gpflow_bae.impute.reading.problems import TableError
from gpflow_bae.impute.reading.table_format import TableFormat
from gpflow_bae.impute.reading.user_table import INTERVAL, from_arrays
from tests.impute.tables import COLUMNS, stations


def read(frame: pd.DataFrame, **changes: Any) -> Any:
    return frames.read_frame(frame, **(COLUMNS | changes))


def test_observed_cells_and_other_columns_stay_character_by_character(
    tmp_path: pathlib.Path,
) -> None:
    _, holes = stations()
    holes.to_csv(tmp_path / "t.csv", index=False)
    raw = table_files.read_file(tmp_path / "t.csv")
    user = read(raw)
    assert user.tasks == ("north", "south") and user.table.X.shape == (2, 40, 1)
    assert (user.num_rows, user.num_holes) == (80, 32)
    shape = user.table.Y.shape
    table_files.write_file(user.fill(np.full(shape, 7.0), np.full(shape, 4.0)), tmp_path / "f.csv")
    again = table_files.read_file(tmp_path / "f.csv")
    assert set(raw.columns) < set(again.columns)
    for column in raw.columns:
        kept = raw[column] != ""
        assert (again[column][kept] == raw[column][kept]).all()
        assert (again[column][~kept] == "7").all()
    hole = raw["a"] == ""
    assert (again["a_sd"][hole] == "2.0").all() and (again["a_sd"][~hole] == "").all()
    # The central 90 % of N(7, 2^2), from tables of the normal distribution.
    bounds = again.loc[hole, ["a_lower", "a_upper"]].astype(float)
    np.testing.assert_allclose(bounds - 7.0, np.tile([-3.2897, 3.2897], (16, 1)), atol=1e-4)


def test_parquet_keeps_its_types(tmp_path: pathlib.Path) -> None:
    """Numbers and dates come as such from the file, and the filled table goes back as such."""
    pytest.importorskip("pyarrow", reason="pandas reads Parquet with pyarrow")
    _, holes = stations()
    holes["day"] = pd.to_datetime(holes["day"])
    table_files.write_file(holes, tmp_path / "t.parquet")
    user = read(table_files.read_file(tmp_path / "t.parquet"))
    missing = holes[["a", "b"]].isna().to_numpy()
    assert np.isnan(user.table.Y).sum() == missing.sum()
    days = user.table.X[0, :, 0] * user.columns.scale[0] + user.columns.centre[0]
    np.testing.assert_allclose(days, np.arange(40), atol=1e-9)
    shape = user.table.Y.shape
    table_files.write_file(user.fill(np.full(shape, 7.0), np.ones(shape)), tmp_path / "f.parquet")
    again = table_files.read_file(tmp_path / "f.parquet")
    assert again["day"].dtype == holes["day"].dtype and again["a"].dtype == float
    assert (again["a"][holes["a"].isna()] == 7.0).all()
    assert (again["a"] == holes["a"])[holes["a"].notna()].all()


def test_rows_in_any_order_and_tasks_of_unequal_length_come_back_to_their_places() -> None:
    whole, holes = stations()
    order = np.random.default_rng(3).permutation(80)[:70]
    user = read(holes.iloc[order])  # and an index that is no range
    assert sorted(user.table.lengths) == sorted(whole.iloc[order].groupby("station").size())
    truth = whole[["a", "b"]].to_numpy()[order]
    filled = user.fill(truth[user.rows], np.ones(user.table.Y.shape))
    np.testing.assert_array_equal(filled[["a", "b"]], truth)
    assert (filled.index == holes.index[order]).all()


def test_arrays_are_read_as_the_same_numbers_in_a_frame_are() -> None:
    whole, holes = stations()
    days = np.tile(np.arange(40.0)[:, None], (2, 1, 1))
    Y = holes[["a", "b"]].to_numpy().reshape(2, 40, 2)
    found, frame = from_arrays(days, Y, ("a", "b")), read(holes)
    np.testing.assert_allclose(found.table.X, frame.table.X, atol=1e-12)
    np.testing.assert_array_equal(found.table.Y, frame.table.Y)
    shared = from_arrays(days[0], Y)
    np.testing.assert_array_equal(shared.table.X, found.table.X)
    truth = whole[["a", "b"]].to_numpy().reshape(2, 40, 2)
    imputed = found.fill(truth, np.full(Y.shape, 4.0))
    np.testing.assert_array_equal(imputed.filled, truth)
    np.testing.assert_array_equal(imputed.sd, 2.0 * np.isnan(Y))
    np.testing.assert_allclose(imputed.upper - imputed.lower, 2 * INTERVAL * imputed.sd, atol=1e-12)


def broken(change: str, frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.astype({"a": object})
    if change == "twice":
        frame.loc[3, "day"] = frame.loc[2, "day"]
    elif change == "date":
        frame.loc[3, "day"] = "yesterday"
    elif change == "no date":
        frame.loc[3, "day"] = None
    elif change == "no task":
        frame.loc[3, "station"] = np.nan
    else:
        frame.loc[3, "a"] = change
    return frame


CHANGES = {
    "cold": r"Column 'a' holds what is no number: 'cold' in row 4",
    "inf": r"Column 'a' is infinite in row 4",
    "twice": r"the same task and the same day as another: row 3 and row 4",
    "date": r"neither a number nor a date: 'yesterday' in row 4. Expected numbers",
    "no date": r"Time 'day' is missing in row 4. Every row needs its time",
    "no task": r"Task 'station' is missing in row 4. To which series",
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_bad_cells(change: str) -> None:
    with pytest.raises(TableError, match=CHANGES[change]):
        read(broken(change, stations()[1]))


def test_all_problems_come_at_once_with_the_lines_of_the_file(tmp_path: pathlib.Path) -> None:
    """Line 1 is the header, so the fourth row is in line 5; a dozen cells of a kind are shown."""
    frame = broken("cold", broken("date", stations()[1]))
    frame["b"] = frame["b"].astype(object)
    frame.loc[10:29, "b"] = "broken"
    frame.loc[40, "b"] = "inf"
    frame["lat"] = 48.0
    frame.loc[7, "lat"] = np.nan
    frame["never"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    raw = table_files.read_file(tmp_path / "t.csv")
    with pytest.raises(TableError) as caught:
        read(raw, inputs=["lat"], outputs=["a", "b", "never", "A"])
    problems = caught.value.problems
    assert len(problems) == 7 and str(caught.value).startswith("7 problems:\n- ")
    for words in (
        r"no column \['A'\] in the table",
        r"'yesterday' in line 5\.",
        r"Input 'lat' is missing in line 9\.",
        r"Column 'a' holds what is no number: 'cold' in line 5\.",
        r"Column 'b' .*'broken' in line 12, .*'broken' in line 23 and 8 more\.",
        r"Column 'b' is infinite in line 42\.",
        r"Column 'never' is never observed: all 80 cells",
    ):
        assert sum(bool(re.search(words, problem)) for problem in problems) == 1, words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": ["a", "c"]}, r"no column \['c'\] in the table"),
        ({"outputs": ["a", "Remark"]}, r"Did you mean 'remark' for 'Remark'\?"),
        ({"outputs": ["A"]}, r"Did you mean 'a' for 'A'\?"),
        ({"outputs": ["a"], "time": None}, "rows in no order are no series"),
        ({"outputs": []}, r"name the columns to fill. Columns with missing cells are \['a', 'b'\]"),
        ({"inputs": ["a"]}, r"Columns \['a'\] are named twice"),
        ({"outputs": ["b"], "inputs": ["a"]}, r"Input 'a' is missing in row \d+, .* and 4 more"),
    ],
)
def test_bad_columns(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        read(stations()[1], **changes)


def test_bad_tables(tmp_path: pathlib.Path) -> None:
    _, holes = stations()
    holes.to_csv(tmp_path / "t.csv", index=False, sep=";")
    assert read(table_files.read_file(tmp_path / "t.csv", TableFormat(";"))).num_rows == 80
    with pytest.raises(TableError, match=r"\['a'\] are in the table twice"):
        read(pd.concat([holes, holes[["a"]]], axis=1))
    with pytest.raises(TableError, match="a header and no rows"):
        read(holes[:0])
    with pytest.raises(TableError, match="The table has one row"):
        read(holes[1:2])
    with pytest.raises(ValueError, match=r"X has shape \(3,\) and Y \(3, 1\)"):
        from_arrays(np.arange(3.0), np.ones((3, 1)))


def test_repeated_rows_are_listed_in_groups() -> None:
    """And a series without anything observed is no series of a fit."""
    holes = stations()[1]
    empty = holes.assign(a=holes["a"].where(holes["station"] == "north"))
    with pytest.raises(
        TableError, match="1 series of 'station' have no observed output .* 'south'"
    ):
        read(empty, outputs=["a"])
    repeated = pd.concat([holes, holes[:8], holes[:1]])
    with pytest.raises(TableError) as caught:
        read(repeated)
    found = str(caught.value)
    assert "17 rows have the same task and the same day as another" in found
    assert "row 1 and row 81 and row 89; row 2 and row 82;" in found
    assert "and 2 more such groups" in found


def test_a_constant_column_is_filled_with_its_constant_and_not_modelled() -> None:
    holes = stations()[1].assign(c="")
    holes.loc[5:60, "c"] = "7.50"
    user = read(holes, outputs=["a", "c", "b"])
    assert user.table.output_names == ("a", "b") and user.num_holes == 32 + 24
    assert any("'c' is 7.5 wherever it is observed (56 times)" in note for note in user.notes)
    cells = np.ones(user.table.Y.shape)
    filled = user.fill(cells, cells)
    assert (filled.loc[5:60, "c"] == "7.50").all() and (filled.loc[:4, "c"] == "7.5").all()
    assert (filled.loc[:4, "c_sd"] == 0.0).all() and filled.loc[5:60, "c_sd"].isna().all()
    X, Y = np.arange(6.0)[:, None], np.column_stack([np.arange(6.0), [3, 3, 3, np.nan, 3, 3]])
    arrays = from_arrays(X, Y)
    assert arrays.table.output_names == ("y0",) and arrays.columns.constants == {"y1": 3.0}
    imputed = arrays.fill(*np.ones((2, 1, 6, 1)))
    assert imputed.filled.shape == (6, 2) and imputed.filled[3, 1] == 3.0


def test_filled_cells_stay_in_their_columns_range() -> None:
    """The interval of a logarithm is asymmetric: its ends are given, not two of one half width."""
    holes = stations()[1].assign(n=np.arange(80) % 7)
    user = read(holes, outputs=["a", "n"], kinds={"a": "positive", "n": "count"})
    shape = user.table.Y.shape
    cells = np.full(shape, 5.0), np.full(shape, 4.0), np.full(shape, 0.7), np.full(shape, 20.2)
    filled = user.fill(*cells)
    hole = holes["a"].isna()
    assert (filled.loc[hole, "a_lower"] == 0.7).all() and (
        filled.loc[hole, "a_upper"] == 20.2
    ).all()
    with pytest.raises(TableError, match="'a' is positive, as its logarithm, and holds"):
        read(holes.assign(a=-holes["a"]), kinds={"a": "positive"})


def test_dates_of_rows_are_there_for_the_calendar() -> None:
    user = read(stations()[1][:70])
    assert user.calendar is not None and user.calendar.shape == (2, 40)
    days = (user.calendar - user.calendar[0, 0]) / np.timedelta64(1, "D")
    scaled = (user.table.X[..., 0] - user.table.X[0, 0, 0]) * user.time_scale
    np.testing.assert_allclose(days, scaled, atol=1e-9)
    assert user.interval == pytest.approx(1.0)
    assert from_arrays(np.arange(3.0)[:, None], np.eye(3)).calendar is None


def far_and_near(columns: list[str]) -> pd.DataFrame:
    """Daily waves at one latitude, whose mean over rows differs from it by rounding."""
    t = np.arange(40.0)
    frame = pd.DataFrame({"t": t, "wind": np.sin(t), "rain": np.cos(t), "lat": 48.85})
    frame.loc[5:8, "wind"] = np.nan
    return frame[columns]


def test_rounding_of_single_precision_makes_no_column_vary() -> None:
    """Neighbours among numbers of single precision, which in double precision are far apart."""
    frame = far_and_near(["t", "wind", "rain"])
    near = np.float32(48.85) + np.arange(40) % 3 * np.spacing(np.float32(48.85))
    frame["lat"] = near.astype(np.float32)
    options = {"outputs": ["wind", "rain"], "time": "t", "task": None}
    user = read(frame, **options, inputs=["lat"])
    assert user.columns.scale[1] == 1.0 and user.columns.still.tolist() == [False, True]
    frame["rain"] = frame.pop("lat")
    assert read(frame, **options).table.output_names == ("wind",)
    varied = read(frame.assign(lat=near.astype(np.float64)), **options, inputs=["lat"])
    assert varied.columns.scale[1] < 1e-5


@pytest.mark.parametrize("jitter", [0.0, 1e-14])
def test_an_input_of_one_value_is_not_scaled_by_a_rounding_error(jitter: float) -> None:
    """What the model sees is as without that column, whatever value later rows have."""
    options = {"outputs": ["wind"], "time": "t", "task": None}
    frame = far_and_near(["t", "wind", "lat"])
    frame["lat"] += jitter * (np.arange(40) % 3)
    user = read(frame, **options, inputs=["lat"])
    alone = read(frame.drop(columns="lat"), **options)
    assert user.columns.scale[1] == 1.0 and user.columns.still.tolist() == [False, True]
    np.testing.assert_array_equal(user.table.X, alone.table.X * [1.0, 0.0])
    assert any("'lat' has one value in all rows" in note for note in user.notes)
    later = read(frame.assign(lat=48.86), **options, inputs=["lat"], fitted=user.columns)
    np.testing.assert_array_equal(later.table.X, user.table.X)
    assert any("'lat' had one value in all rows of the fit" in note for note in later.notes)
    same = read(frame, **options, inputs=["lat"], fitted=user.columns)
    assert not any("'lat'" in note for note in same.notes)
    X, Y = frame[["t", "lat"]].to_numpy(), frame[["wind"]].to_numpy()
    arrays = from_arrays(X, Y)
    np.testing.assert_array_equal(arrays.table.X, user.table.X)
    moved = from_arrays(X + [0.0, 1.0], Y, fitted=arrays.columns)
    np.testing.assert_array_equal(moved.table.X, user.table.X)


@pytest.mark.parametrize(
    ("outputs", "taken"),
    [(["wind", "wind_sd"], "wind_sd"), (["wind"], "wind_lower"), (["rain"], "rain_upper")],
)
def test_a_column_that_would_be_written_over_is_refused(outputs: list[str], taken: str) -> None:
    frame = far_and_near(["t", "wind", "rain"]).assign(**{taken: 1.0})
    with pytest.raises(TableError, match=rf"Columns \['{taken}'\] are in the table.*Rename them"):
        read(frame, outputs=outputs, time="t", task=None)


def test_a_filled_table_is_not_filled_again() -> None:
    user = read(far_and_near(["t", "wind"]), outputs=["wind"], time="t", task=None)
    cells = np.ones(user.table.Y.shape)
    with pytest.raises(TableError, match="filled before, whose filled cells count as observed"):
        read(user.fill(cells, cells), outputs=["wind"], time="t", task=None)


@pytest.mark.parametrize("number", [np.nan, 0.0])
def test_sparse_columns_are_filled(number: float) -> None:
    """pandas lets nobody assign to their cells."""
    raw = pd.DataFrame({"t": np.arange(40.0), "a": np.sin(np.arange(40.0))})
    raw.loc[[3, 7], "a"] = np.nan
    sparse = raw.assign(a=raw["a"].astype(pd.SparseDtype(float, number)))
    user = read(sparse, outputs=["a"], time="t", inputs=[], task=None)
    mean = np.full(user.table.Y.shape, 0.25)
    filled = user.fill(mean, np.ones_like(mean))
    assert filled["a"].dtype == sparse["a"].dtype
    np.testing.assert_array_equal(filled["a"].to_numpy(), raw["a"].fillna(0.25))


def test_columns_keep_their_types_and_every_digit() -> None:
    large = 2**53 + 1  # no float64 is this number
    frame = pd.DataFrame(
        {
            "t": np.arange(40.0),
            "whole": np.arange(40) + large,
            "nullable": pd.array(range(large, large + 40), dtype="Int64"),
            "narrow": np.arange(40, dtype=np.float32) + np.float32(0.1),
            "truth": np.arange(40) > 20,
            "Int64": pd.array([None, *range(large, large + 39)], dtype="Int64"),
            "UInt8": pd.array([None, *range(100, 139)], dtype="UInt8"),
            "boolean": pd.array([None, *[True, False, True] * 13], dtype="boolean"),
            "float32": np.array([np.nan, *range(39)], dtype=np.float32),
            "text": ["", *(f"{i}.50" for i in range(39))],
            "objects": [None, *[1.5, 2] * 19, 3.5],
        }
    )
    frame.attrs["source"] = "buoy"
    names = list(frame.columns[1:])
    user = read(frame, outputs=names, time="t", task=None, kinds=dict.fromkeys(names, "continuous"))
    mean = np.full(user.table.Y.shape, 300.6)
    mean[..., names.index("boolean")] = 0.6
    mean[..., names.index("text")] = 1e12 + 10
    filled = user.fill(mean, np.ones(mean.shape))
    pd.testing.assert_frame_equal(filled[frame.columns][1:], frame[1:].astype({"objects": float}))
    pd.testing.assert_frame_equal(filled[frame.columns[:5]], frame[frame.columns[:5]])
    assert filled.loc[0, names[4:]].tolist() == [
        *(301, 255, True, np.float32(300.6), "1000000000010", 300.6)
    ]
    assert filled.attrs == frame.attrs


def test_wide_tables_are_filled_at_once() -> None:
    """pandas warns of frames whose columns came one by one, and warnings are errors here."""
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((6, 150)))
    frame.iloc[2, 1:] = np.nan
    user = read(frame, outputs=list(range(1, 150)), time=0, task=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = user.fill(*np.ones((2, *user.table.Y.shape)))
    assert filled.shape == (6, 150 + 3 * 149) and (filled.iloc[2, 1:150] == 1.0).all()


NAMES = [
    [0, 1, 2],
    [("at", "t"), ("at", "wind"), ("sky", "rain")],
    list(pd.date_range("2024-01-01", periods=3)),
    [0, "wind", ("sky", 2)],
]


@pytest.mark.parametrize("names", NAMES, ids=["numbers", "tuples", "timestamps", "mixed"])
def test_columns_have_names_of_any_kind(names: list[Any]) -> None:
    frame = far_and_near(["t", "wind", "rain"])
    frame.columns = pd.Index(names, tupleize_cols=False)
    time, *outputs = names
    user = read(frame, outputs=outputs, time=time, task=None)
    assert user.outputs == tuple(outputs)
    filled = user.fill(*np.ones((2, *user.table.Y.shape)))
    assert list(filled.columns[:3]) == names and filled.shape == (40, 9)
    assert (filled[beside_names(outputs[0])[0]].notna() == frame[outputs[0]].isna()).all()
    with pytest.raises(TableError, match="nowhere"):
        read(frame, outputs=[*outputs, "nowhere", 5], time=time, task=None)


def test_levels_of_names_stay_levels() -> None:
    frame = far_and_near(["t", "wind", "rain"])
    frame.columns = pd.MultiIndex.from_tuples(NAMES[1], names=["where", "what"])
    user = read(frame, outputs=NAMES[1][1:], time=("at", "t"), task=None)
    filled = user.fill(*np.ones((2, *user.table.Y.shape)))
    assert filled.columns.names == ["where", "what"]
    assert list(filled["sky"].columns) == ["rain", "rain_sd", "rain_lower", "rain_upper"]


def test_complex_numbers_are_refused() -> None:
    """Their imaginary parts would be lost."""
    frame = far_and_near(["t", "wind"]).assign(z=np.arange(40) * 1j)
    for changes in ({"outputs": ["wind", "z"]}, {"outputs": ["wind"], "inputs": ["z"]}):
        with pytest.raises(TableError, match="Column 'z' holds complex numbers"):
            read(frame, **({"time": "t", "task": None} | changes))


@pytest.mark.parametrize("seen", [1, 7, 8])
def test_of_a_constant_that_was_hardly_seen_nothing_is_sure(seen: int) -> None:
    frame = far_and_near(["t", "rain"]).assign(c=np.where(np.arange(40) < seen, 1e12 + 10, np.nan))
    user = read(frame, outputs=["rain", "c"], time="t", task=None)
    filled = user.fill(*np.ones((2, *user.table.Y.shape)))
    assert (filled["c"] == 1e12 + 10).all()
    ends = filled.loc[seen:, ["c_sd", "c_lower", "c_upper"]]
    if seen == 8:
        np.testing.assert_array_equal(ends, np.tile([0.0, 1e12 + 10, 1e12 + 10], (32, 1)))
    else:
        assert ends.isna().all().all()
    (note,) = [note for note in user.notes if "'c'" in note]
    assert "is 1000000000010 wherever" in note and ("too rare" in note) == (seen < 8)
    later = read(frame, outputs=["rain", "c"], time="t", task=None, fitted=user.columns)
    assert later.columns.doubtful == user.columns.doubtful


def test_repeated_rows_are_said_of_inputs_of_any_name() -> None:
    frame = far_and_near(["t", "wind"])
    frame.columns = pd.Index([0, "wind"], dtype=object)
    with pytest.raises(TableError, match="2 rows have the same 0 as another: row 40 and row 41"):
        read(pd.concat([frame, frame[-1:]]), outputs=["wind"], time=0, task=None)


def test_arrays_of_unequal_lengths_are_refused() -> None:
    for X, Y in (((4, 1), (5, 1)), ((2, 5, 1), (3, 5, 1)), ((5, 1), (2, 4, 1))):
        with pytest.raises(ValueError, match="X has shape .* and Y .*; expected X"):
            from_arrays(np.zeros(X), np.zeros(Y))


def test_moments_of_another_shape_are_refused() -> None:
    user = read(stations()[1])
    with pytest.raises(ValueError, match=r"Moments have the shapes .*; expected \(2, 40, 2\)"):
        user.fill(*np.ones((2, 2, 40, 1)))


def test_times_of_other_tables_are_read_as_those_of_the_fit() -> None:
    """Three numbers yymmdd may be dates by chance; as plain numbers they would be 240,000 days."""
    days = pd.date_range("2024-01-01", periods=90, freq="D")
    dates = pd.DataFrame({"t": days.strftime("%y%m%d").astype(int), "a": np.sin(np.arange(90.0))})
    roles: dict[str, Any] = {"outputs": ["a"], "time": "t", "inputs": [], "task": None}
    fitted = read(dates, **roles).columns
    assert fitted.origin == np.datetime64("2024-01-01")
    np.testing.assert_allclose(read(dates[50:], fitted=fitted, **roles).X[:3, 0], [50, 51, 52])
    with pytest.raises(TableError, match="are dates in the fit, and numbers in.*2024-01-31"):
        read(dates[:3], fitted=fitted, **roles)
    numbers = read(dates[:3], **roles).columns
    assert numbers.origin is None
    np.testing.assert_array_equal(read(dates, fitted=numbers, **roles).X[:, 0], dates["t"])
    with pytest.raises(TableError, match="are numbers in the fit, and dates in"):
        read(dates.assign(t=days), fitted=numbers, **roles)


def test_series_at_the_same_times_have_a_note() -> None:
    """Where each of them has columns of its own; not where they are far from each other."""
    _, holes = stations()
    words = "2 series of 'station' have the same times, and are filled independently of each other"
    assert words in read(holes).notes[-1]
    days = pd.to_datetime(holes["day"]) + pd.to_timedelta(100 * (holes["station"] == "south"), "D")
    assert not read(holes.assign(day=days)).notes


def test_the_time_of_a_pivoted_table_is_its_index() -> None:
    """Which has columns of several levels; they come back as such."""
    _, holes = stations()
    wide = holes.pivot(index="day", columns="station", values=["a", "b"])
    user = frames.read_frame(wide, list(wide.columns), "day")
    assert user.has_dates and user.num_rows == 40 and user.num_holes == holes.isna().sum().sum()
    filled = user.fill(np.zeros(user.table.Y.shape), np.ones(user.table.Y.shape))
    assert filled.columns.names == wide.columns.names and ("a", "north_sd") in filled.columns
    long = filled[wide.columns].stack("station", future_stack=True).reset_index()
    assert len(long) == 80 and not long.isna().any().any()


def test_the_order_of_series_is_that_of_their_names() -> None:
    """So that a fit, whose gaps are drawn, does not depend on the order of the table."""
    frame = pd.DataFrame({"t": np.tile(np.arange(5.0), 3), "a": np.arange(15.0)})
    frame["s"] = np.repeat(["b", "c", "a"], 5)
    one = frames.read_frame(frame, ["a"], "t", task="s")
    other = frames.read_frame(frame.iloc[[*range(10, 15), *range(10)]], ["a"], "t", task="s")
    assert one.tasks == other.tasks == ("a", "b", "c")
    np.testing.assert_array_equal(one.table.Y, other.table.Y)
    numbered = frames.read_frame(frame.assign(s=np.repeat([10, 2, 1], 5)), ["a"], "t", task="s")
    assert numbered.tasks == ("1", "2", "10")
    assert numbered.table.Y[0, 0] == 10.0
