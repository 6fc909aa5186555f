"""Files as laboratories have them: encodings, separators, decimal marks, dates, missing cells."""

from __future__ import annotations

import gzip
import importlib.util
import pathlib
import re
import shlex

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.impute.reading import frames, table_files
from gpflow_bae.impute.reading.problems import TableError, messages_of_command, setting
from gpflow_bae.impute.reading.table_format import TableFormat, option
from gpflow_bae.impute.reading.user_table import UserTable

GERMAN = TableFormat(";", "latin-1", ",", True, ("-999", "k.A."))
GERMAN_LINES = [
    "Größe;Datum;Wert",
    "1,5;31.01.2024 6:00;-0,25",
    "",
    "−999;01.02.24;1e-3",
    "k.A.;2024-02-02T12:00;7",
]


def write(path: pathlib.Path, lines: list[str], encoding: str = "utf-8") -> pathlib.Path:
    path.write_bytes("\r\n".join([*lines, ""]).encode(encoding))
    return path


def read(path: pathlib.Path, table_format: TableFormat, **roles: object) -> UserTable:
    raw = table_files.read_file(path, table_format)
    return frames.read_frame(raw, table_format=table_format, **roles)  # type: ignore[arg-type]


def test_a_german_file_is_read_and_written_as_it_came(tmp_path: pathlib.Path) -> None:
    lines = [line.replace("\N{MINUS SIGN}", "-") for line in GERMAN_LINES]
    path = write(tmp_path / "t.csv", lines, "latin-1")
    user = read(path, GERMAN, outputs=["Wert"], time="Datum")
    np.testing.assert_array_equal(user.table.Y[0, :, 0], [-0.25, 1e-3, 7.0])
    expected = np.array(["2024-01-31T06", "2024-02-01", "2024-02-02T12"], "datetime64[ns]")
    np.testing.assert_array_equal(user.times, expected)
    # A day and a half between the last two, which the scaled input has in its own unit.
    days = np.diff(user.table.X[0, :, 0]) * user.time_scale
    np.testing.assert_allclose(days, [0.75, 1.5], rtol=1e-12)
    assert user.interval == pytest.approx(1.125)

    user = read(path, GERMAN, outputs=["Größe", "Wert"], time="Datum")
    assert user.columns.constants == {"Größe": 1.5} and user.num_holes == 2
    cells = np.full(user.table.Y.shape, 2.5)
    table_files.write_file(user.fill(cells, cells), tmp_path / "f.csv", GERMAN)
    again = (tmp_path / "f.csv").read_bytes().decode("latin-1").splitlines()
    assert again[0].startswith("Größe;Datum;Wert;Größe_sd")
    assert again[1].startswith("1,5;31.01.2024 6:00;-0,25;;")
    assert again[2].startswith("1,5;01.02.24;1e-3;;;;;;")


def test_every_hint_on_a_file_comes_in_one_message(tmp_path: pathlib.Path) -> None:
    """Lines are those of the file, the header's and empty ones counted."""
    lines = [line.replace("\N{MINUS SIGN}", "-") for line in GERMAN_LINES]
    path = write(tmp_path / "t.csv", lines, "latin-1")
    problems: list[str] = []
    raw = table_files.read_file(path, guessed=problems)
    assert len(problems) == 2
    assert "not written in utf-8: see line 1. --encoding=latin-1 makes 'Größe;" in problems[0]
    assert problems[1].endswith("separated by ';': pass --separator=';'.")
    with pytest.raises(TableError) as caught:
        frames.read_frame(raw, ["Größe", "Wert"], "Datum")
    found = str(caught.value)
    assert "'31.01.2024 6:00' in line 2, '01.02.24' in line 4. If the day comes first" in found
    assert "'Wert' holds what is no number: '-0,25' in line 2. If these commas are dec" in found
    assert "'Größe' is text, with the values (and how often each occurs) '1,5' (1)," in found
    with pytest.raises(TableError, match="separated by ';'"):
        table_files.read_file(path, TableFormat(encoding="latin-1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: it has neither a header nor rows"),
        (b"\n\n", "is empty"),
        (b"a,b\n1,2\n3,4,5\n\n6\n", r"header has 2 columns, .* 1 or 3 cells in line 3, line 5"),
        (b"a,b\n1,2,5\n3,4,5\n", r"passed?|pass --separator=';' --decimal=','"),
        (b"\xff\xfea\0,\0b\0\n\0", "UTF-16: pass --encoding=utf-16"),
        (b"PK\x03\x04rest", "is no text: a spreadsheet or an archive"),
        (b'a,b\n1,"2\n', "quotation mark at line 2 that is not closed"),
    ],
)
def test_files_that_are_no_table(content: bytes, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(TableError, match=message):
        table_files.read_file(tmp_path / "t.csv")


def test_spreadsheets_and_files_that_are_not_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TableError, match=r"t\.ods is a spreadsheet. Save it as \.xlsx or CSV"):
        table_files.read_file(tmp_path / "t.ods")
    with pytest.raises(FileNotFoundError):
        table_files.read_file(tmp_path / "t.csv")


def test_quoted_cells_and_the_mark_of_excel(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.csv").write_bytes('\ufeffa,b\n"1,5","two\nlines"\n3,x\n'.encode())
    frame = table_files.read_file(tmp_path / "t.csv")
    assert frame.columns.tolist() == ["a", "b"] and frame["a"].tolist() == ["1,5", "3"]
    assert frame.index.tolist() == [2, 4] and frame.index.name == "line"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"separator": "::"}, "expected one character, or 'tab'"),
        ({"decimal": "'"}, r"expected '\.' or ','"),
        ({"encoding": "latin-99"}, "which Python does not know"),
    ],
)
def test_formats_that_are_none(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableFormat(**arguments)
    assert TableFormat("tab").separator == "\t" and TableFormat(
        missing_values=-9
    ).missing_values == ("-9",)


def test_decimal_commas_and_what_separates_columns(tmp_path: pathlib.Path) -> None:
    """Semicolons, unless commas are said; cells that are numbers already have no mark."""
    assert TableFormat(decimal=",").separator == ";" and TableFormat().separator == ","
    both = TableFormat(",", decimal=",")
    (tmp_path / "t.csv").write_text('t,a\n1,"1,5"\n2,\n3,"2,5"\n')
    user = frames.read_frame(
        table_files.read_file(tmp_path / "t.csv", both), ["a"], "t", table_format=both
    )
    np.testing.assert_array_equal(user.Y[:, 0], [1.5, np.nan, 2.5])
    filled = user.fill(np.full((1, 3, 1), 2.25), np.full((1, 3, 1), 0.01))
    table_files.write_file(filled, tmp_path / "f.csv", both)
    again = table_files.read_file(tmp_path / "f.csv", both)
    assert again["a"].tolist() == ["1,5", "2,25", "2,5"] and again["a_sd"].tolist()[1] == "0,1"
    mixed = pd.DataFrame({"t": range(3), "a": [0.25, "1,5", None]}, dtype=object)
    found = frames.read_frame(mixed, ["a"], "t", table_format=TableFormat(decimal=","))
    np.testing.assert_array_equal(found.Y[:, 0], [0.25, 1.5, np.nan])


DATES = {
    "iso": (["2024-01-31 06:00:00.0", "2024-02-01T18:00"], None),
    "slashes": (["2024/1/31 6:00", "2024/2/1 6:00 PM"], None),
    "day": (["31/1/2024 6:00", "1/2/2024 18:00"], True),
    "dots": (["31.01.24 06:00:00", "2024-02-01T18:00"], True),
    "month": (["1/31/2024 6:00 AM", "2/1/2024 6:00 p.m."], False),
    "midnight": (["1/31/2024 12:00 AM", "2/1/2024 12:00 PM"], False),
    "last century": (["31-1-99", "1-2-99 12:00"], True),
    "names": (["31-Jan-2024 6:00 AM", "February 1, 2024 18:00"], None),
    "short names": (["30 Sept. 23", "1-Oct-23 12:00"], None),
    "digits": ([2024013106, 2024020118], None),
    "digits and minutes": (["202401310600", "202402011800"], None),
    "before nanoseconds": (["1600-01-31T06:00", "1600-02-01T18:00"], None),
}


@pytest.mark.parametrize("name", sorted(DATES))
def test_days_and_months_are_read_as_said(name: str) -> None:
    written, dayfirst = DATES[name]
    raw = pd.DataFrame({"t": written, "a": [1.0, 2.0]})
    found = frames.read_frame(raw, ["a"], "t", table_format=TableFormat(dayfirst=dayfirst))
    np.testing.assert_allclose(found.X[:, 0], [0.0, 1.5])


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (["31.01.2024", "01.02.2024"], r"pass table_format=TableFormat\(dayfirst=True\)"),
        (["01/31/2024", "01/02/2024"], r"pass table_format=TableFormat\(dayfirst=False\)"),
        (
            ["01/02/2024", "02/02/2024"],
            r"pass table_format=TableFormat\(dayfirst=True\); if the month does, table_format=Ta",
        ),
        (["yesterday", "01/02/2024"], "dates such as 2024-01-31"),
    ],
)
def test_dates_that_are_not_understood(written: list[str], hint: str) -> None:
    raw = pd.DataFrame({"t": written, "a": [1.0, 2.0]})
    with pytest.raises(TableError, match=hint):
        frames.read_frame(raw, ["a"], "t")


def test_offsets_become_utc_with_a_note() -> None:
    """The clock goes forward: two rows an hour apart, which local time writes two hours apart."""
    raw = pd.DataFrame({"t": ["2024-03-31T01:30+01:00", "2024-03-31T03:30+0200"], "a": [1.0, 2.0]})
    found = frames.read_frame(raw, ["a"], "t")
    np.testing.assert_allclose(found.X[:, 0] * 24.0, [0.0, 1.0])
    assert found.times[0] == np.datetime64("2024-03-31T00:30")
    assert found.notes == (
        "Times of column 't' were given in +01:00, +02:00, and are taken in UTC.",
    )
    zoned = raw.assign(t=pd.to_datetime(raw["t"], utc=True).dt.tz_convert("Europe/Berlin"))
    again = frames.read_frame(zoned, ["a"], "t")
    np.testing.assert_array_equal(again.X, found.X)
    shown = np.array(["2024-03-31T01:30", "2024-03-31T03:30"], dtype="datetime64[ns]")
    np.testing.assert_array_equal(again.times, shown)  # as clocks show them
    assert again.notes == ("Hours and days of column 't' are those of clocks in Europe/Berlin.",)
    plain = raw.assign(t=["2024-03-31T00:30Z", "2024-03-31T01:30Z"])
    assert frames.read_frame(plain, ["a"], "t").notes == ()
    mixed = raw.assign(t=["2024-03-31T00:30Z", "2024-03-31T01:30"])
    with pytest.raises(TableError, match=re.escape("in some rows (Z), and none in row 2")):
        frames.read_frame(mixed, ["a"], "t")


@pytest.mark.parametrize(
    ("written", "table_format", "hint"),
    [
        (
            ["1,5", "2"],
            TableFormat(),
            r"pass table_format=TableFormat\(decimal=','\)",
        ),
        (["1,234.0", "2"], TableFormat(), "Leave out the commas"),
        (["1,234", "2"], TableFormat(), "separate thousands, remove them; if they are decimal"),
        (["1.234,5", "2"], TableFormat(";", decimal=","), "points that separate thousands"),
        (["<0.5", "2", "3"], TableFormat(), "half of the limit"),
        (["45 %", "2", "3"], TableFormat(), "Leave out units"),
        (
            ["k.A.", "2", "3"],
            TableFormat(),
            r"TableFormat\(missing_values=\['k.A.'\]\)",
        ),
        (
            ["low", "high", "3"],
            TableFormat(),
            "'a' is text, .*pass kinds=.'a': 'category'",
        ),
        (["inf", "2", "3"], TableFormat(), "infinite in row 1"),
    ],
)
def test_cells_that_are_no_numbers(
    written: list[str], table_format: TableFormat, hint: str
) -> None:
    raw = pd.DataFrame({"t": range(len(written)), "a": written})
    with pytest.raises(TableError, match=hint):
        frames.read_frame(raw, ["a"], "t", table_format=table_format)


def test_missing_values_are_words_or_numbers() -> None:
    raw = pd.DataFrame({"t": range(6), "a": ["-999.0", "1.5", "-", "n/a", " NULL ", "2"]})
    table_format = TableFormat(missing_values=("-999", "-"))
    found = frames.read_frame(raw, ["a"], "t", table_format=table_format)
    np.testing.assert_array_equal(found.Y[:, 0], [np.nan, 1.5, np.nan, np.nan, np.nan, 2.0])


@pytest.mark.parametrize("value", [-999.0, 9999.0, -9999.0, 1e20])
def test_values_that_may_mean_missing_are_noted(value: float) -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(0.0, 50.0, 40)
    a[[3, 7]] = value
    raw = pd.DataFrame({"t": range(40), "a": a, "b": rng.uniform(-20000, 20000, 40)})
    raw.loc[5, "b"] = -9999.0  # in the middle of its column: a value like others
    (note,) = frames.read_frame(raw, ["a", "b"], "t").notes
    assert f"Column 'a' holds {value:g} 2 times, first in row 4" in note
    assert f"missing_values=['{value:g}']" in note
    missing = TableFormat(missing_values=(f"{value:g}",))
    checked = frames.read_frame(raw, ["a"], "t", table_format=missing)
    assert checked.notes == () and np.isnan(checked.Y).sum() == 2


def times_of(column: object) -> UserTable:
    raw = pd.DataFrame({"t": column})
    return frames.read_frame(raw.assign(a=np.arange(len(raw)) ** 2.0), ["a"], "t")


@pytest.mark.parametrize("kind", [int, float, str, "Int64", object])
def test_whole_numbers_that_are_dates_are_dates(kind: type | str) -> None:
    """As numbers the month's end would be a step of 70, and a year's of 8870."""
    found = times_of(pd.Series([20231230, 20231231, 20240131, 20240201]).astype(kind))
    np.testing.assert_array_equal(found.X[:, 0], [0.0, 1.0, 32.0, 33.0])
    assert found.times[0] == np.datetime64("2023-12-30")
    assert "such as 20231230, are read as dates (2023-12-30" in found.notes[0]


def test_months_of_several_years_are_dates() -> None:
    found = times_of([202312, 202401, 202402])
    np.testing.assert_array_equal(found.X[:, 0], [0.0, 31.0, 62.0])


def test_days_of_several_years_are_dates() -> None:
    """As numbers the step of the new year would be 636 or 635."""
    found = times_of([2023364, 2023365, 2024001, 2024366, 2025001])
    np.testing.assert_array_equal(found.X[:, 0], [0.0, 1.0, 2.0, 367.0, 368.0])
    assert found.times[0] == np.datetime64("2023-12-30") and "2023364" in found.notes[0]


@pytest.mark.parametrize(
    "numbers",
    [
        [20240131, 20240232, 20240301],  # a day that there is not
        [202401, 202402, 202403],  # months of one year are as far apart as their numbers
        [2023364, 2023366, 2024001],  # a year without its day 366
        [2024001, 2024002, 2024100],
        [2001, 2002, 2004],
        [20240131.5, 20240201, 20240202],
        [10101, 10102, 10103, 10104, 10105, 10106],
        list(range(0, 2000, 50)),
        list(range(0, 1000, 7)),
        list(range(202401, 202454)),  # weeks of one year are as far apart as their numbers
        list(range(202310, 202490)),
        list(range(200020, 201020, 100)),
    ],
)
def test_other_numbers_are_numbers(numbers: list[float]) -> None:
    found = times_of(numbers)
    np.testing.assert_array_equal(found.X[:, 0], numbers)
    assert found.notes == ()


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("first", ["2023-12-28", "1999-12-28", "2004-02-27"])
def test_dates_with_years_of_two_digits_are_dates(first: str, kind: type) -> None:
    """As numbers the month's end would be a step of 70 or more, and that of 1999 one of -991130."""
    days = pd.date_range(first, periods=12)
    found = times_of(pd.Series(days.strftime("%y%m%d")).astype(int).astype(kind))
    np.testing.assert_array_equal(found.X[:, 0], np.arange(12.0))
    assert found.times[0] == np.datetime64(first) and "are read as dates" in found.notes[0]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("%d%m%Y", "with the day first, write them as 2024-01-20"),
        ("%d%m%y", "with the day first, write them as 2024-01-20"),
        ("%m%d", r"hours and minutes \(or months and days\)"),
    ],
)
def test_days_in_other_orders_stay_numbers_with_a_note(written: str, words: str) -> None:
    numbers = pd.date_range("2024-01-20", periods=40).strftime(written).astype(int)
    found = times_of(numbers)
    np.testing.assert_array_equal(found.X[:, 0], numbers)
    (note,) = found.notes
    assert re.search(words, note) and "plain numbers" in note


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([*range(202350, 202353), *range(202401, 202454)], "last week of a year .* least 48 apart"),
        ([20233, 20234, 20241, 20242, 20243], "last quarter of a year .* least 7 apart.*2024Q1"),
    ],
)
def test_weeks_and_quarters_stay_numbers_with_a_note(numbers, words: str, kind: type) -> None:
    """202352 and 202401 are one week apart, or two in a year of 53, and not 49."""
    found = times_of(pd.Series(numbers).astype(kind))
    np.testing.assert_array_equal(found.X[:, 0], numbers)
    (note,) = found.notes
    assert re.search(words, note) and "plain numbers" in note


def test_clocks_and_seconds_since_1970_stay_numbers_with_a_note() -> None:
    clocks = pd.date_range("2024-01-01", periods=40, freq="20min").strftime("%H%M").astype(int)
    stamps = 1706659200 + 600 * np.arange(40)
    for numbers, words in (
        (clocks, "59 minutes past an hour and the next hour are 41 apart"),
        (stamps, 'seconds since 1970, make dates of them first: .*unit="s"'),
        (stamps + 0.5, 'unit="s"'),
        (1000 * stamps, 'milliseconds since 1970.*unit="ms"'),
    ):
        found = times_of(numbers)
        np.testing.assert_array_equal(found.X[:, 0], numbers)
        (note,) = found.notes
        assert re.search(words, note), note


def test_times_that_are_all_missing_are_named() -> None:
    with pytest.raises(TableError, match="'t' is missing in row 1, row 2"):
        times_of([np.nan, np.nan])


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_dates_that_nanoseconds_do_not_reach(unit: str) -> None:
    """1670 is no 2254, which is where nanoseconds wrap to."""
    steps = 365 * np.arange(400)
    found = times_of(np.datetime64("1670-01-01", unit) + steps * np.timedelta64(1, "D"))
    np.testing.assert_array_equal(found.X[:, 0], steps)
    assert found.times[0] == np.datetime64("1670-01-01")


def test_periods_quarters_and_dates_in_the_index() -> None:
    quarters = [0.0, 91.0, 182.0]  # of a leap year
    np.testing.assert_array_equal(times_of(["2000Q1", "2000 Q2", "2000-q3"]).X[:, 0], quarters)
    periods = pd.period_range("2000Q1", periods=3, freq="Q")
    np.testing.assert_array_equal(times_of(periods).X[:, 0], quarters)
    raw = pd.DataFrame({"a": [1.0, 2.0, 4.0]}, index=periods.to_timestamp())
    for name, time in ((None, "index"), ("day", "day")):
        found = frames.read_frame(raw.rename_axis(name), ["a"], time)
        np.testing.assert_array_equal(found.X[:, 0], quarters)
        assert list(found.source.columns) == ["a"] and found.source.index.name == name


def test_the_index_of_a_parquet_file_is_a_column(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("pyarrow", reason="pandas reads Parquet with pyarrow")
    raw = pd.DataFrame({"a": [1.0, 2.0, 4.0]}, pd.date_range("2024", periods=3, name="day"))
    raw.to_parquet(tmp_path / "t.PARQUET")
    found = table_files.read_file(tmp_path / "t.PARQUET")
    np.testing.assert_array_equal(frames.read_frame(found, ["a"], "day").X[:, 0], [0.0, 1.0, 2.0])
    table_files.write_file(found, tmp_path / "f.parquet")
    assert list(table_files.read_file(tmp_path / "f.parquet").columns) == ["day", "a"]


@pytest.mark.parametrize("value", [-999.9, -99.9, 999.99, 1e20, 9.969209968386869e36])
def test_fill_values_in_single_precision_are_noted_and_can_be_named(value: float) -> None:
    a = np.arange(20, dtype=np.float32) / 7
    a[3] = value
    raw = pd.DataFrame({"t": range(20), "a": a})
    (note,) = frames.read_frame(raw, ["a"], "t").notes
    named = re.search(r"missing_values=\['(\S+)'\]", note)
    assert named is not None and float(named[1]) == pytest.approx(value, rel=1e-5)
    found = frames.read_frame(raw, ["a"], "t", table_format=TableFormat(missing_values=named[1]))
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(found.Y)), [3])


def test_true_and_false_are_a_column_of_categories_and_complex_numbers_are_none() -> None:
    for cells in (["True", "False", "", "TRUE"], [True, False, None, True]):
        raw = pd.DataFrame({"t": range(4), "a": cells})
        found = frames.read_frame(raw, ["a"], "t")
        np.testing.assert_array_equal(found.Y[:, 0], [1.0, 0.0, np.nan, 1.0])
        assert found.columns.kinds[0].kind == "binary"
    with pytest.raises(TableError, match="Column 'a' holds complex numbers"):
        frames.read_frame(raw.assign(a=1j * np.arange(4)), ["a"], "t")


def test_tasks_may_be_called_na() -> None:
    raw = pd.DataFrame({"t": range(4), "a": [1.0, 2.0, 4.0, 3.0], "s": ["NA", "None", "null", ""]})
    with pytest.raises(TableError, match=r"Task 's' is missing in row 4\. "):
        frames.read_frame(raw, ["a"], "t", task="s")
    found = frames.read_frame(raw[:3], ["a"], "t", task="s")
    assert list(found.tasks) == ["NA", "None", "null"]
    with pytest.raises(TableError, match="Task 's' is missing in row 1"):
        table_format = TableFormat(missing_values=("NA",))
        frames.read_frame(raw[:3], ["a"], "t", task="s", table_format=table_format)


def test_gzipped_files_are_read_and_written(tmp_path: pathlib.Path) -> None:
    raw = pd.DataFrame({"t": ["1", "2"], "a": ["0.50", "ä"]})
    for name in ("a.csv.gz", "b.csv.gz"):
        table_files.write_file(raw, tmp_path / name, TableFormat(encoding="latin-1"))
    content = (tmp_path / "a.csv.gz").read_bytes()
    assert content == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress(content) == "t,a\n1,0.50\n2,ä\n".encode("latin-1")
    again = table_files.read_file(tmp_path / "a.csv.gz", TableFormat(encoding="latin-1"))
    assert again.to_numpy().tolist() == raw.to_numpy().tolist()
    (tmp_path / "a.csv.gz").write_bytes(content[:20])
    with pytest.raises(TableError, match="damaged, or no gzip file"):
        table_files.read_file(tmp_path / "a.csv.gz")


def test_excel_is_written_where_openpyxl_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"\.ods cannot be written; name a \.csv"):
        table_files.check_output("filled.ods")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r"filled\.xlsx: Excel files are read and written with openpyxl"
    ):
        table_files.write_file(pd.DataFrame({"a": [1.0]}), tmp_path / "filled.xlsx")
    assert not (tmp_path / "filled.xlsx").exists()
    monkeypatch.undo()
    pytest.importorskip("openpyxl", reason="pandas writes Excel with openpyxl")
    raw = pd.DataFrame({"t": pd.date_range("2024", periods=2, tz="UTC"), "a": [0.5, 2.0]})
    table_files.write_file(raw, tmp_path / "filled.xlsx")
    again = pd.read_excel(tmp_path / "filled.xlsx")
    assert again["a"].tolist() == [0.5, 2.0] and again["t"][1].startswith("2024-01-02")


@pytest.mark.parametrize("before", ["", '9,"x"y,z\n'])
def test_a_quotation_mark_that_is_not_closed_is_named(before: str, tmp_path: pathlib.Path) -> None:
    """All rows after it would be one cell, of a column that perhaps nobody looks at."""
    path = tmp_path / "t.csv"
    whole = f't,a,remark\n{before}1,2,"two\nlines"\n3,4,"5"" pipe"\n'
    path.write_text(whole)
    assert len(table_files.read_file(path)) == 2 + bool(before)
    path.write_text(whole + '5,6,"open\n7,8,z\n9,1,z\n')
    line = 5 + bool(before)
    with pytest.raises(
        TableError, match=f"at line {line} that is not closed.* to line {line + 2} "
    ):
        table_files.read_file(path)


def test_spaces_around_names_in_the_header_are_named(tmp_path: pathlib.Path) -> None:
    raw = pd.DataFrame({"t": [0.0, 1.0, 2.0], " a": [1.0, 2.0, np.nan]})
    with pytest.raises(TableError, match="no column .'a'.* Remove the spaces around 'a' in the"):
        frames.read_frame(raw, ["a"], "t")


@pytest.mark.parametrize("value", [",", ";", "\t", ["k.A."], ["n. d.", "-", "it's"]])
def test_flags_of_messages_can_be_pasted_into_a_shell(value: str | list[str]) -> None:
    with messages_of_command():
        flag = option("missing_values", value)
        assert option("dayfirst", False) == "--nodayfirst"
        assert shlex.split(setting("--bounded=rel. hum:0:100", "")) == ["--bounded=rel. hum:0:100"]
    words = value if isinstance(value, str) else ",".join(value)
    assert shlex.split(flag) == [f"--missing_values={words}"]


def test_a_column_of_dates_is_not_called_text() -> None:
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0], "d": pd.date_range("2024-01-01", periods=3)})
    with pytest.raises(TableError, match=r"'d' holds dates\. Pass time='d', or leave the column"):
        frames.read_frame(table, ["a", "d"])
