"""Rows at times that have none, and clocks that are changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute import TableError, TableFormat
from gpflow_bae.impute.reading.frames import read_frame
from gpflow_bae.impute.reading.grid import insert_rows
from gpflow_bae.impute.reading.problems import Problems
from gpflow_bae.impute.reading.times.zones import clock_of, to_utc


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.0, 0.5, 2.0], [0.0, 0.5, 1.0, 1.5, 2.0]),
        ([2000, 2001, 2004], [2000, 2001, 2002, 2003, 2004]),
        (["2024-01-30", "2024-01-31", "2024-02-02"], ["2024-02-01"]),
        (["31.01.2024 22:00", "31.01.2024 23:00", "01.02.2024 01:00"], ["01.02.2024 00:00"]),
        (["2024-01-01", "2024-02-01", "2024-03-01", "2024-05-01"], ["2024-04-01"]),
        (pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04"]), [pd.Timestamp("2024-01-03")]),
        (
            pd.to_datetime(
                ["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 04:00"]
            ).tz_localize("Europe/Berlin"),
            [pd.Timestamp("2024-03-31 03:00", tz="Europe/Berlin")],  # there is no 02:00
        ),
    ],
    ids=["numbers", "years", "days", "german", "months", "dates", "zone"],
)
def test_times_are_those_of_the_grid(times: Any, expected: list[Any]) -> None:
    table = pd.DataFrame({"t": times, "y": np.arange(len(times)), "note": "x"})
    found = insert_rows(table, "t", table_format=TableFormat(dayfirst=True))
    new = found["y"].isna()
    if len(expected) > 3:
        assert found["t"].tolist() == expected
    else:
        assert found["t"][new].tolist() == expected
    assert found["t"].dtype == table["t"].dtype or str(found["t"].dtype) == "Int64"
    assert found["y"][~new].tolist() == table["y"].tolist() and found["note"][new].isna().all()


def test_each_series_has_its_own_span_and_inputs() -> None:
    table = pd.DataFrame(
        {
            "s": ["a", "b", "a", "b", "a", "b"],
            "t": [0, 10, 1, 11, 4, 12],
            "lat": [1.5, 2.5] * 3,
            "y": range(6),
        }
    )
    found = insert_rows(table, "t", "s", ["lat"])
    assert found["s"].tolist() == [*"aaaaabbb"]
    assert found["t"].tolist() == [0, 1, 2, 3, 4, 10, 11, 12]
    assert (found["lat"] == found["s"].map({"a": 1.5, "b": 2.5})).all()
    assert read_frame(found, ["y"], "t", ["lat"], "s").num_holes == 2
    pd.testing.assert_frame_equal(
        insert_rows(table[table["s"] == "b"], "t"), table[table["s"] == "b"]
    )
    with pytest.raises(TableError, match="Input 'lat' changes within series 'a'"):
        insert_rows(table.assign(lat=range(6)), "t", "s", ["lat"])
    with pytest.raises(TableError, match="would need 99998 more rows"):
        insert_rows(pd.DataFrame({"t": [0, 1, 100_000], "y": 1.0}), "t")


def test_clocks_that_are_changed() -> None:
    """An hour twice in autumn, in either of two series; none in spring."""
    utc = np.arange("2024-10-26T22:00", "2024-10-27T03:00", 30, dtype="datetime64[m]")
    utc = np.concatenate([utc, utc]).astype("datetime64[ns]")
    clock = clock_of(utc, "Europe/Berlin")
    assert len(np.unique(clock)) == len(utc) // 2 - 2
    problems = Problems()
    np.testing.assert_array_equal(to_utc(clock, "Europe/Berlin", "t", problems), utc)
    assert not problems.found
    text = [str(c)[:16].replace("T", " ") for c in clock[: len(clock) // 2]]
    table = pd.DataFrame({"t": text, "a": np.arange(10.0)})
    with pytest.raises(TableError, match="4 rows have the same t"):
        read_frame(table, ["a"], "t")
    user = read_frame(table, ["a"], "t", table_format=TableFormat(time_zone="Europe/Berlin"))
    np.testing.assert_allclose(np.diff(user.X[:, 0]), 1 / 48)
    np.testing.assert_array_equal(user.times, clock[:10])
    skipped = pd.DataFrame({"t": ["2024-03-31 02:30", "2024-03-31 03:30"], "a": [1.0, 2.0]})
    with pytest.raises(TableError, match="clocks in Europe/Berlin skip.* row 1"):
        read_frame(skipped, ["a"], "t", table_format=TableFormat(time_zone="Europe/Berlin"))
    with pytest.raises(ValueError, match="time_zone is 'Berlin'"):
        TableFormat(time_zone="Berlin")
