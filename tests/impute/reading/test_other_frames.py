"""Tables of polars and PyArrow, and Excel's sheets: what comes back is what was given, filled."""

from __future__ import annotations

import datetime
import pathlib
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute import Imputer, TableError, TableFormat
from gpflow_bae.impute.reading import other_frames, table_files
from gpflow_bae.impute.reading.frames import read_frame

pl = pytest.importorskip("polars")


def visits() -> Any:
    """Whole numbers, floats, categories and dates, each with a hole but the last."""
    days = [datetime.date(2024, 1, 1 + i) for i in range(24)]
    return pl.DataFrame(
        {
            "day": days,
            "count": [None, *range(100, 123)],
            "level": [0.5, None, *(float(i % 7) for i in range(22))],
            "open": [True, True, None, *[False] * 21],
            "place": pl.Series([*["north", "south"] * 11, "north", None], dtype=pl.Categorical),
            "note": ["as it is"] * 24,
        }
    )


def test_polars_comes_back_as_it_was() -> None:
    """Types, order and all other cells; filled whole numbers are whole."""
    table = visits()
    imputer = Imputer(["count", "level", "open", "place"], time="day", progress=False)
    user = imputer.read(table)
    assert user.has_dates and user.num_holes == 4
    filled = user.fill(np.full(user.table.Y.shape, 0.7), np.ones(user.table.Y.shape))
    assert isinstance(filled, pl.DataFrame)
    assert filled.schema["count"] == pl.Int64 and filled.schema["open"] == pl.Boolean
    for name in ("day", "note"):
        assert filled[name].equals(table[name]) and filled[name].dtype == table[name].dtype
    assert filled["count"].to_list() == [1, *range(100, 123)]
    assert filled["level"][1] == 0.7 and filled["open"][2] is True
    assert filled["place"].cast(str).to_list()[:-1] == table["place"].cast(str).to_list()[:-1]
    assert filled["place"][-1] in ("north", "south")
    assert filled.columns == [
        *table.columns,
        *(f"{name}_{end}" for name in ("count", "level") for end in ("sd", "lower", "upper")),
        *("open_probability", "place_probability"),
    ]
    assert filled["count_sd"].null_count() == 23


def test_pyarrow_comes_back_as_pyarrow() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": [1.0, None, 3.0, 4.0], "b": [1, 2, 3, None], "c": ["x"] * 4})
    user = Imputer(["a", "b"], progress=False).read(table)
    filled = user.fill(np.full(user.table.Y.shape, 2.4), np.ones(user.table.Y.shape))
    assert isinstance(filled, pa.Table)
    assert filled["a"].to_pylist() == [1.0, 2.4, 3.0, 4.0]
    assert filled["b"].to_pylist() == [1, 2, 3, 2] and filled.schema.field("b").type == pa.int64()


def test_what_is_not_in_memory_or_has_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"LazyFrame; expected a table in memory"):
        Imputer(["level"]).read(visits().lazy())
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow-bae\[frames\]'"):
        Imputer(["level"]).read(visits())
    assert not other_frames.is_other_frame([[1.0], [2.0]])


def test_sheets_are_read_with_their_types_and_lines(tmp_path: pathlib.Path) -> None:
    """Also beside empty lines above and within, and numbers that a German sheet has as text."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        [],
        ["Tag", "Wert", "Text"],
        [datetime.datetime(2024, 1, 1), 1.5, "3,5"],
        [],
        [datetime.datetime(2024, 1, 2), None, "n.d."],
        [datetime.datetime(2024, 1, 3), 3, 4.25],
        [datetime.datetime(2024, 1, 4), 2, None],
    ):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    written = TableFormat(";", decimal=",", missing_values=("n.d.",))
    raw = table_files.read_file(tmp_path / "t.xlsx", written)
    assert list(raw.index) == [3, 5, 6, 7] and list(raw.columns) == ["Tag", "Wert", "Text"]
    user = read_frame(raw, ["Wert", "Text"], "Tag", table_format=written)
    np.testing.assert_array_equal(user.X[:, 0], [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(user.Y[:, 0], [1.5, np.nan, 3.0, 2.0])
    np.testing.assert_array_equal(user.Y[:, 1], [3.5, np.nan, 4.25, np.nan])
    filled = user.fill(np.full((1, 4, 2), 2.5), np.ones((1, 4, 2)))
    table_files.write_file(filled, tmp_path / "filled.xlsx")
    again = pd.read_excel(tmp_path / "filled.xlsx")
    assert again["Wert"].tolist() == [1.5, 2.5, 3.0, 2.0]
    assert again["Tag"].tolist() == raw["Tag"].tolist()
    book.active.cell(row=6, column=5, value="unnamed")
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(TableError, match=r"Columns \[5\] of .* have cells, and no name in line 2"):
        table_files.read_file(tmp_path / "t.xlsx")
    (tmp_path / "t.xlsx").write_bytes(b"no sheet")
    with pytest.raises(TableError, match="damaged, or no Excel file"):
        table_files.read_file(tmp_path / "t.xlsx")
