"""Tables in files: CSV with every cell as its text, or Parquet.

Like the other modules that import pandas, it is imported where a DataFrame or a file is given.
"""

from __future__ import annotations

import csv
import pathlib
from typing import Any

import pandas as pd

from ..files import write_atomically
from .problems import Problems, TableError
from .table_format import TableFormat

__all__ = ["LINE", "is_parquet", "read_file", "write_file"]

LINE = "line"  # name of the index of what was read from a CSV file: its line of each row

_SPREADSHEETS = (".xlsx", ".xls", ".ods")


def is_parquet(path: str | pathlib.Path) -> bool:
    """Whether a file is one of Parquet, by its ending."""
    return pathlib.Path(path).suffix in (".parquet", ".pq")


def read_file(path: str | pathlib.Path, table_format: TableFormat | None = None) -> pd.DataFrame:
    """A Parquet file (``.parquet``, ``.pq``), or a CSV file with every cell as its text.

    The index of what comes from a CSV file is the line of each row, counted from 1, the header's;
    lines that are empty are left out.

    :raises OSError: for a file that is not there or cannot be read.
    :raises TableError: for a file in another encoding, without a header, or whose lines have other
        numbers of cells than the header.
    """
    path = pathlib.Path(path)
    if is_parquet(path):
        return pd.read_parquet(path)
    if path.suffix.lower() in _SPREADSHEETS:
        raise TableError(
            [f"{path} is a spreadsheet. Save it as CSV, or as Parquet, and pass that."]
        )
    table_format = TableFormat() if table_format is None else table_format
    lines, cells = _cells(path, table_format)
    if not lines:
        raise TableError([f"{path} is empty: it has neither a header nor rows."])
    header, rows, numbers = cells[0], cells[1:], lines[1:]
    problems = Problems(lambda row: f"line {numbers[row]}")
    wrong = [i for i, row in enumerate(rows) if len(row) != len(header)]
    if wrong:
        counts = sorted({len(rows[i]) for i in wrong})
        advice = "Quote cells that hold the separator."
        if table_format.separator == "," and all(len(rows[i]) > len(header) for i in wrong):
            advice = (
                "Commas inside of numbers must be quoted; where they are decimal marks, save the "
                "file with ';' between its columns, and pass --separator=';' --decimal=','."
            )
        problems.add_rows(
            f"The header has {len(header)} column(s), but there are "
            f"{' or '.join(map(str, counts))} cells in",
            wrong,
            advice,
        )
        problems.raise_if_any()
    frame = pd.DataFrame(rows, columns=header, index=pd.Index(numbers, name=LINE), dtype=object)
    return frame


def write_file(
    frame: pd.DataFrame, path: str | pathlib.Path, table_format: TableFormat | None = None
) -> None:
    """A Parquet or a CSV file, by its ending; there as a whole or not at all."""
    path = pathlib.Path(path)
    table_format = TableFormat() if table_format is None else table_format
    if is_parquet(path):
        write_atomically(path, lambda file: frame.to_parquet(file, index=False))
        return
    options: Any = {
        "index": False,
        "sep": table_format.separator,
        "decimal": table_format.decimal,
        "encoding": table_format.encoding,
    }
    write_atomically(path, lambda file: frame.to_csv(file, **options))


def _cells(path: pathlib.Path, table_format: TableFormat) -> tuple[list[int], list[list[str]]]:
    """Numbers and cells of all lines that are not empty."""
    with path.open("rb") as file:
        start = file.read(4)
    encoding = table_format.encoding
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") and not encoding.lower().startswith("utf-16"):
        raise TableError([f"{path} is written in UTF-16: pass --encoding=utf-16."])
    if start[:2] == b"PK":
        raise TableError([f"{path} is a spreadsheet or an archive, and no text. Save it as CSV."])
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        encoding = "utf-8-sig"  # which leaves out the mark that Excel puts before the header
    lines, cells = [], []
    try:
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=table_format.separator)
            last = 0
            for row in reader:
                if any(row):
                    lines.append(last + 1)
                    cells.append(row)
                last = reader.line_num
    except UnicodeDecodeError as error:
        raise TableError([_encoding_problem(path, table_format.encoding, error)]) from None
    except csv.Error as error:
        raise TableError([f"{path} is no CSV file at line {last + 1}: {error}."]) from None
    return lines, cells


def _encoding_problem(path: pathlib.Path, encoding: str, error: UnicodeDecodeError) -> str:
    """Where the encoding breaks, and which one is likely."""
    content = path.read_bytes()
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as found:
            other = "latin-1" if encoding.lower().startswith("utf") else "utf-8"
            guess = line[max(0, found.start - 10) : found.start + 10].decode("latin-1").strip()
            hint = f" (which would make it read {guess!r})" if other == "latin-1" else ""
            return (
                f"{path} is not written in {encoding}: byte {found.object[found.start]:#x} in line "
                f"{number}. Pass the encoding that it has: --encoding={other}{hint}, or cp1252 for "
                "files of Excel on Windows."
            )
    return f"{path} is not written in {encoding}: {error.reason}. Pass --encoding."
