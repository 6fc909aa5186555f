"""Series side by side, and back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute import TableError
from gpflow_bae.impute.reading.side_by_side import names_beside, narrow, widen


def test_what_is_put_side_by_side_comes_back() -> None:
    """Rows in any order, of series of different lengths, with cells of any type."""
    table = pd.DataFrame(
        {
            "day": [3, 1, 2, 1, 3],
            "place": ["b", "a", "a", "b", "a"],
            "y": ["1.50", "2", "", "4", "5"],
            "z": [1.0, np.nan, 3.0, 4.0, np.nan],
            "note": list("vwxyz"),
        }
    )
    names = names_beside(table, ["y", "z"], "place")
    assert names == {"y": ["y (b)", "y (a)"], "z": ["z (b)", "z (a)"]}
    wide = widen(table, ["y", "z"], "day", "place")
    assert wide["day"].tolist() == [3, 1, 2]
    assert wide["y (b)"].tolist()[:2] == ["1.50", "4"] and pd.isna(wide["y (b)"][2])
    np.testing.assert_array_equal(wide["z (a)"], [np.nan, np.nan, 3.0])
    pd.testing.assert_frame_equal(narrow(wide, table, names, "day", "place"), table)
    filled = wide.fillna(7.0).assign(**{"z (a)_sd": [0.5, 0.25, np.nan], "z (b)_sd": np.nan})
    found = narrow(filled, table, names, "day", "place")
    assert found["z"].tolist() == [1.0, 7.0, 3.0, 4.0, 7.0]
    np.testing.assert_array_equal(found["z_sd"], [np.nan, 0.25, np.nan, np.nan, 0.5])


def test_rows_of_no_series_are_refused() -> None:
    table = pd.DataFrame({"day": [1, 1, 2], "place": ["a", None, "a"], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(TableError, match="Task 'place' is missing in row 2"):
        widen(table, ["y"], "day", "place")


def test_a_series_has_a_time_once() -> None:
    table = pd.DataFrame({"day": [1, 1], "place": ["a", "a"], "y": [1.0, 2.0]})
    with pytest.raises(TableError, match="have the same 'day' again in row 2"):
        widen(table, ["y"], "day", "place")
    with pytest.raises(TableError, match=r"no column \['x'\] is there"):
        widen(table, ["x"], "day", "place")
