"""Read tables from CSV, Parquet and Excel files, and write them.

Like the other modules that import pandas, it is imported where a DataFrame or a file is given.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import pathlib
import zipfile
import zlib
from typing import IO

import pandas as pd

from ...core.files import write_atomically
from .problems import LINE, Problems, TableError
from .table_format import TableFormat

__all__ = ["check_output", "is_parquet", "read_file", "write_file"]

_SPREADSHEETS = (".xls", ".ods")
# Endings of files that are no text; a CSV file of such a name would mislead other programs.
_OTHERS = (
    *(".xls", ".ods", ".feather", ".arrow", ".orc", ".h5", ".hdf5", ".nc", ".json", ".pkl", ".npz"),
    *(".npy", ".mat", ".rds", ".sav", ".dta", ".zip", ".bz2", ".xz", ".zst", ".png", ".pdf"),
)


def is_parquet(path: str | pathlib.Path) -> bool:
    """Whether the ending of a file is one of Parquet."""
    return pathlib.Path(path).suffix.lower() in (".parquet", ".pq")


def check_output(path: str | pathlib.Path) -> None:
    """Check that :func:`write_file` can write a file of this name.

    :raises ValueError: for an ending of other files than CSV, gzipped CSV, Parquet and Excel.
    :raises ImportError: for Excel without openpyxl.
    """
    ending = pathlib.Path(path).suffix.lower()
    if ending in _OTHERS:
        raise ValueError(f"{path}: {ending} cannot be written; name a .csv, .csv.gz or .parquet.")
    if ending == ".xlsx":
        _check_openpyxl(path)


def read_file(
    path: str | pathlib.Path,
    table_format: TableFormat | None = None,
    guessed: list[str] | None = None,
) -> pd.DataFrame:
    """Read a Parquet file (``.parquet``, ``.pq``), the first sheet of an Excel file (``.xlsx``), or
    a CSV file with every cell as text.

    A CSV file may be compressed by gzip. Levels of the index of a Parquet file are columns; one
    without a name is called ``index``.

    The index of a table from a CSV or Excel file is the line of each row, where the header is line
    1; empty lines are left out.

    :param guessed: problems of a wrong encoding or separator are added to this list, in sentences,
        and a guess takes its place, so that they can be reported together with the problems of the
        table; such a table is good for error messages only. They are raised if None.
    :raises OSError: for a file that is not there or cannot be read.
    :raises TableError: for a file in another encoding or with another separator, without a header,
        or whose lines have other numbers of cells than the header.
    """
    path = pathlib.Path(path)
    if is_parquet(path):
        frame = pd.read_parquet(path)
        return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    if path.suffix.lower() in _SPREADSHEETS:
        raise TableError([f"{path} is a spreadsheet. Save it as .xlsx or CSV, and pass that."])
    table_format = TableFormat() if table_format is None else table_format
    if path.suffix.lower() == ".xlsx":
        return _read_excel(path, table_format.decimal)
    problems: list[str] = [] if guessed is None else guessed
    text = _text(path, table_format.encoding, problems)
    separator = table_format.separator
    lines, cells = _cells(path, text, separator)
    if lines and len(cells[0]) == 1:
        for other in (";", "\t", "|", ","):
            if other in cells[0][0]:
                name = "tab" if other == "\t" else f"{other!r}"
                problems.append(
                    f"The header of {path} is one column, {cells[0][0]!r}. It looks as if columns "
                    f"were separated by {name}: pass --separator={name}."
                )
                lines, cells = _cells(path, text, other)
                separator = other
                break
    if not lines:
        raise TableError([*problems, f"{path} is empty: it has neither a header nor rows."])
    header, rows, numbers = cells[0], cells[1:], lines[1:]
    ragged = Problems(lambda row: f"line {numbers[row]}")
    wrong = [i for i, row in enumerate(rows) if len(row) != len(header)]
    if wrong:
        counts = sorted({len(rows[i]) for i in wrong})
        advice = "Quote cells that hold the separator."
        if separator == "," and all(len(rows[i]) > len(header) for i in wrong):
            advice = (
                "Commas inside of numbers must be quoted; where they are decimal marks, save the "
                "file with ';' between its columns, and pass --separator=';' --decimal=','."
            )
        ragged.add_rows(
            f"The header has {len(header)} columns, but there are "
            f"{' or '.join(map(str, counts))} cells in",
            wrong,
            advice,
        )
        raise TableError([*problems, *ragged.found])
    index = pd.Index(numbers, name=LINE)
    if guessed is None and problems:
        raise TableError(problems)
    return pd.DataFrame(rows, columns=header, index=index, dtype=object)


def _read_excel(path: pathlib.Path, decimal: str) -> pd.DataFrame:
    """The first sheet of an Excel file, whose cells keep their types.

    Numbers in a column that also has text are written with the decimal mark of the text.
    """
    _check_openpyxl(path)
    try:
        sheet = pd.read_excel(path, header=None, dtype=object, keep_default_na=False)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise TableError([f"{path} is damaged, or no Excel file: {error}."]) from None
    sheet.index = pd.Index(range(1, len(sheet) + 1), name=LINE)
    cells = sheet.where(sheet.notna() & (sheet != ""), None)
    cells = cells[cells.notna().any(axis=1)]
    if cells.empty:
        raise TableError([f"{path} is empty: its first sheet has neither a header nor rows."])
    header = cells.iloc[0]
    used = (header.notna() | cells.iloc[1:].notna().any()).to_numpy()
    unnamed = [int(c) + 1 for c in header.index[header.isna() & used]]
    if unnamed:
        line = cells.index[0]
        raise TableError(
            [
                f"Columns {unnamed} of {path} have cells, and no name in line {line}, which is "
                "taken for the header because it is the first with cells: delete what is above the "
                "header, or name these columns."
            ]
        )
    found = cells.iloc[1:].loc[:, used]
    found.columns = pd.Index([str(name) for name in header[used]])
    found = found.infer_objects()
    if decimal != ".":
        words = found.select_dtypes("object").columns
        found[words] = found[words].map(
            lambda cell: str(cell).replace(".", decimal) if type(cell) in (float, int) else cell
        )
    return found


def _check_openpyxl(path: str | pathlib.Path) -> None:
    if importlib.util.find_spec("openpyxl") is None:
        raise ImportError(
            f"{path}: Excel files are read and written with openpyxl, which is not installed: "
            "pip install 'gpflow-bae[excel]', or name a .csv."
        )


def write_file(
    frame: pd.DataFrame, path: str | pathlib.Path, table_format: TableFormat | None = None
) -> None:
    """Write a Parquet, Excel, CSV or gzipped CSV file, by its ending, as a whole or not at all.

    :raises ValueError, ImportError: as :func:`check_output`.
    """
    path = pathlib.Path(path)
    check_output(path)
    table_format = TableFormat() if table_format is None else table_format

    def write(file: IO[bytes]) -> None:
        if is_parquet(path):
            frame.to_parquet(file, index=False)
        elif path.suffix.lower() == ".xlsx":
            zoned = frame.select_dtypes("datetimetz").columns  # which Excel does not have
            plain = frame.astype(dict.fromkeys(zoned, str))
            plain.to_excel(file, index=False, engine="openpyxl")
        else:
            # Equal tables make equal files: neither a name nor the time is in a compressed one.
            compression = {"method": "gzip", "filename": "", "mtime": 0}
            frame.to_csv(
                file,
                index=False,
                sep=table_format.separator,
                decimal=table_format.decimal,
                encoding=table_format.encoding,
                compression=compression if path.suffix.lower() == ".gz" else None,
            )

    write_atomically(path, write)


def _text(path: pathlib.Path, encoding: str, problems: list[str]) -> str:
    """The text of a file; in Latin-1, which any bytes are, if not in the given encoding."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise TableError([f"{path} is damaged, or no gzip file: {error}."]) from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff") and not encoding.lower().startswith("utf-16"):
        problems.append(f"{path} is written in UTF-16: pass --encoding=utf-16.")
        return content.decode("utf-16", errors="replace")
    if content[:2] == b"PK" or b"\0" in content[:1000] and not encoding.lower().startswith("utf"):
        raise TableError([f"{path} is no text: a spreadsheet or an archive. Save it as CSV."])
    try:
        # The byte order mark that Excel writes is no part of the header.
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        problems.append(_encoding_problem(path, encoding, content))
        return content.decode("latin-1")


def _cells(path: pathlib.Path, text: str, separator: str) -> tuple[list[int], list[list[str]]]:
    """Numbers and cells of all lines that are not empty."""
    lines, cells, last = [], [], 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        for row in reader:
            if any(row):
                lines.append(last + 1)
                cells.append(row)
            last = reader.line_num
    except csv.Error as error:
        raise TableError([f"{path} is no CSV file at line {last + 1}: {error}."]) from None
    if cells and "\n" in cells[-1][-1] and _is_open(text, separator):
        raise TableError(
            [
                f"{path} has a quotation mark at line {lines[-1]} that is not closed: all lines "
                f"from there to line {last} would be one cell. Close it, or write it twice."
            ]
        )
    return lines, cells


def _is_open(text: str, separator: str) -> bool:
    """Whether a CSV file ends inside of quotation marks: a further line is then no line."""
    (*_, last) = csv.reader(io.StringIO(f"{text}\nend", newline=""), delimiter=separator)
    return last != ["end"]


def _encoding_problem(path: pathlib.Path, encoding: str, content: bytes) -> str:
    """The first line that is not in the encoding, and a likely encoding, as a sentence."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as found:
            other = "latin-1" if encoding.lower().startswith("utf") else "utf-8"
            word = line[max(0, found.start - 10) : found.start + 10].decode("latin-1").strip()
            reading = f" makes {word!r} of it" if other == "latin-1" else ""
            return (
                f"{path} is not written in {encoding}: see line {number}. --encoding={other}"
                f"{reading}; files of Excel on Windows are often in cp1252."
            )
    return f"{path} is not written in {encoding}: pass another --encoding."
