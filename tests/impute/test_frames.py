"""A user's DataFrame: what is read, what is refused, what is written back, what is left alone."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute import frames, table_files
from gpflow_bae.impute.table_format import TableFormat
from gpflow_bae.impute.user_table import INTERVAL, from_arrays
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
    days = user.table.X[0, :, 0] * user.scale[0] + user.centre[0]
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
    else:
        frame.loc[3, "a"] = change
    return frame


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cold", r"Column 'a' holds what is no number: 'cold' in row 4"),
        ("inf", r"Column 'a' is infinite in row 4"),
        ("twice", r"the same task and the same day as another: row 3 and row 4"),
        ("date", r"neither a number nor a date: 'yesterday' in row 4. Expected numbers"),
    ],
)
def test_bad_cells(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(broken(change, stations()[1]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": ["a", "c"]}, r"no column \['c'\] in the table"),
        ({"outputs": ["a"], "time": None}, "what tells the rows apart"),
        ({"outputs": []}, "outputs is empty"),
        ({"inputs": ["a"]}, r"Columns \['a'\] are named twice"),
        ({"outputs": ["b"], "inputs": ["a"]}, "Input 'a' is missing in row"),
    ],
)
def test_bad_columns(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(stations()[1], **changes)


def test_bad_tables(tmp_path: pathlib.Path) -> None:
    _, holes = stations()
    holes.to_csv(tmp_path / "t.csv", index=False, sep=";")
    with pytest.raises(ValueError, match="separated by ';': pass --separator"):
        read(table_files.read_file(tmp_path / "t.csv"))
    assert read(table_files.read_file(tmp_path / "t.csv", TableFormat(";"))).num_rows == 80
    with pytest.raises(ValueError, match=r"\['a'\] are in the table twice"):
        read(pd.concat([holes, holes[["a"]]], axis=1))
    with pytest.raises(ValueError, match="a header and no rows"):
        read(holes[:0])
    with pytest.raises(ValueError, match=r"X has shape \(3,\) and Y \(3, 1\)"):
        from_arrays(np.arange(3.0), np.ones((3, 1)))
