"""Read columns of a DataFrame as numbers and names, and report cells that are none."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...core.scales import varies
from .kinds.limits import fill_values
from .problems import Problems, setting
from .table_format import TableFormat, option

__all__ = [
    "FEW_SHOWN",
    "NUM_SHOWN",
    "Cells",
    "fill_value_notes",
    "names_of",
    "with_holes",
    "with_index",
]

NUM_SHOWN = 12  # cells of a problem that a message shows
FEW_SHOWN = 3  # the same where most of the column is wrong
_WORDS = ("", "nan", "-nan", "na", "n/a", "#n/a", "#na", "none", "null", "<na>", "nat")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.[\d.]*(,\d+)?([eE][+-]?\d+)?")
_LIMIT = re.compile(r"[<>≤≥]=?\s*[\d.,]+")
_UNIT = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?\s*[^\d\s.,]+")


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """A column of a DataFrame, and its cells as text.

    * name: of the column.
    * column: the column as it is.
    * text: its cells without surrounding spaces.
    * missing [rows]: which of them mean a missing cell, Booleans.
    * table_format: how text writes numbers and missing cells.
    """

    name: Any
    column: pd.Series
    text: pd.Series
    missing: np.ndarray
    table_format: TableFormat

    @classmethod
    def read(cls, column: pd.Series, table_format: TableFormat, name: Any = None) -> Cells:
        """Read a column.

        :param name: of the column; that of the series if None.
        """
        text = column.astype(str).str.strip()
        words = {*_WORDS, *(word.lower() for word in table_format.missing_values)}
        missing = (column.isna() | text.str.lower().isin(words)).to_numpy()
        return cls(column.name if name is None else name, column, text, missing, table_format)

    def parse_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells as float64, NaN where they are missing or no number; and which are missing.

        Numbers that the format names as missing values are so, however they are written.
        """
        column, text, missing = self.column, self.text, self.missing
        said = text[~missing].str.lower()
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            values = column.to_numpy(dtype=float, na_value=np.nan)
            if column.dtype == np.float32 and not varies(column.to_numpy()):
                # They differ by rounding of single precision, which double precision would show.
                values[~np.isnan(values)] = np.nanmax(values, initial=-np.inf)
        elif len(said) and said.isin(("true", "false")).all():
            values = (text.str.lower() == "true").to_numpy(dtype=float)
        else:
            plain = text.str.replace("\N{MINUS SIGN}", "-").where(~missing, None)
            if self.table_format.decimal == ",":
                # A point would separate thousands, and 1.234 be read as a thousandth of its value.
                words = column.map(lambda cell: isinstance(cell, str)).to_numpy(dtype=bool)
                points = words & plain.str.contains(".", regex=False, na=False).to_numpy(bool)
                plain = plain.where(~points, "?")
                plain = plain.str.replace(",", ".")
            values = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=float)
        for word in self.table_format.missing_values:
            with contextlib.suppress(ValueError):
                number = float(word.replace(",", "."))
                missing = missing | np.isin(values, [number, float(np.float32(number))])
        return np.where(missing, np.nan, values), missing

    def check_numbers(
        self, values: np.ndarray, missing: np.ndarray, problems: Problems, *, is_input: bool
    ) -> bool:
        """Whether cells are finite numbers, and of an input complete; problems are added if not.

        :param values, missing: as :meth:`parse_numbers` returns them.
        """
        bad = np.flatnonzero(np.isnan(values) & ~missing)
        infinite = np.flatnonzero(np.isinf(values))
        if len(bad) + len(infinite) + is_input * np.count_nonzero(missing) == 0:
            return True
        cells = self.text.to_numpy(dtype=object)[bad]
        many = len(bad) >= 0.5 * np.count_nonzero(~missing)
        advice = _advice(cells, self.table_format, many) if len(bad) else ""
        if len(bad) and pd.api.types.is_datetime64_any_dtype(self.column):
            time = setting(f"--time={self.name}", f"time={self.name!r}")
            problems.add(
                f"Column {self.name!r} holds dates", f"Pass {time}, or leave the column out."
            )
        elif len(bad) and many and not advice:
            _add_words(self.name, cells, problems)
        else:
            problems.add_rows(
                f"Column {self.name!r} holds what is no number:",
                bad,
                advice,
                cells=cells,
                num_shown=FEW_SHOWN if many else NUM_SHOWN,
            )
        problems.add_rows(
            f"Column {self.name!r} is infinite in", infinite, "Leave cells without a value empty."
        )
        if is_input:
            problems.add_rows(
                f"Input {self.name!r} is missing in",
                np.flatnonzero(missing),
                "Inputs must be complete: fill it in, or leave the rows out.",
            )
        return False

    def read_numbers(self, problems: Problems, *, is_input: bool) -> dict[Any, np.ndarray]:
        """Cells as float64 by the column's name, NaN where they are missing or wrong.

        :param is_input: whether a missing cell is a problem. An output with a problem is left out.
        """
        values, missing = self.parse_numbers()
        right = self.check_numbers(values, missing, problems, is_input=is_input)
        return {self.name: values} if right or is_input else {}

    def read_tasks(self, problems: Problems) -> np.ndarray:
        """The name of each row's task. A task may be called NA (Namibia) or None."""
        unnamed = self.column.isna() | self.text.isin({"", *self.table_format.missing_values})
        problems.add_rows(
            f"Task {self.name!r} is missing in",
            np.flatnonzero(unnamed),
            "To which series do these rows belong?",
        )
        return names_of(self.column).to_numpy()


def names_of(column: pd.Series) -> pd.Series:
    """What is in the cells of a column, as words; missing ones, which pandas 3 keeps, are nan."""
    return column.astype(str).fillna("nan")


def with_holes(raw: pd.DataFrame, table_format: TableFormat) -> list[Any]:
    """Names of the columns that have missing cells."""
    columns = (raw.iloc[:, i] for i in range(raw.shape[1]))
    return [c.name for c in columns if Cells.read(c, table_format).missing.any()]


def with_index(raw: pd.DataFrame, names: Iterable[Any]) -> pd.DataFrame:
    """The table, with those levels of its index as columns that only ``names`` has."""
    found = raw
    for level, name in enumerate(raw.index.names):
        name = "index" if name is None and raw.index.nlevels == 1 else name
        if name is not None and name in names and name not in raw.columns:
            found = found.copy(deep=False)
            if isinstance(found.columns, pd.MultiIndex):  # which would make a tuple of the name
                found.columns = pd.Index(list(found.columns), tupleize_cols=False)
            found[name] = raw.index.get_level_values(level)
    return found


def fill_value_notes(
    columns: Mapping[Any, np.ndarray], place: Callable[[int], str]
) -> tuple[str, ...]:
    """Notes on values that may stand for missing ones.

    :param place: a function of a row's number that names its place.
    """
    notes = []
    for name, values in columns.items():
        for value in fill_values(values):
            rows = np.flatnonzero(values == value)
            first = place(int(rows[0]))
            often = f"in {first}" if len(rows) == 1 else f"{len(rows)} times, first in {first}"
            notes.append(
                f"Column {name!r} holds {value:g} {often}, far from all its other values. If that "
                f"stands for a missing value, pass {option('missing_values', [f'{value:g}'])}."
            )
    return tuple(notes)


def _add_words(name: str, words: np.ndarray, problems: Problems) -> None:
    """Add the problem that a column is text, which advice on single cells would not help."""
    values, counts = np.unique(words.astype(str), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:6]
    shown = ", ".join(f"{str(values[i])!r} ({counts[i]})" for i in most)
    more = f" and {len(values) - len(most)} others" if len(values) > len(most) else ""
    python = f"kinds={{{name!r}: 'category'}}"
    problems.add(
        f"Column {name!r} is text, with the values (and how often each occurs) {shown}{more}",
        f"If these are categories, pass {setting(f'--category={name}', python)}; else leave the "
        "column out.",
    )


def _advice(cells: np.ndarray, table_format: TableFormat, many: bool) -> str:
    """Advice on cells that are no numbers; none for a column of mere words."""
    commas = np.array([bool(_DECIMAL_COMMA.fullmatch(c) or _THOUSANDS.fullmatch(c)) for c in cells])
    if table_format.decimal == "." and commas.mean() > 0.5:
        if any("." in cell for cell in cells[commas]):
            return "Leave out the commas that separate thousands."
        if all(_THOUSANDS.fullmatch(cell) for cell in cells[commas]):
            return (
                "If these commas separate thousands, remove them; if they are decimal marks, pass "
                f"{option('decimal', ',')}."
            )
        return f"If these commas are decimal marks, pass {option('decimal', ',')}."
    if table_format.decimal == "," and _share(_DECIMAL_POINT, cells) > 0.5:
        return "The decimal mark is ',': remove points that separate thousands."
    if _share(_LIMIT, cells) > 0.5:
        return (
            "Values below or above a limit are no numbers: leave the cells empty, or put what is "
            "usual in your field, such as half of the limit."
        )
    if _share(_UNIT, cells) > 0.5:
        return "Leave out units and signs behind the number."
    words = sorted(set(cells))
    if many:
        return ""
    if len(words) <= 3:
        return (
            "Correct the cells, or leave them empty; if that is what they say, pass "
            f"{option('missing_values', words)}, with such words of other columns beside them."
        )
    return "Correct the cells, or leave them empty."


def _share(pattern: re.Pattern[str], cells: np.ndarray) -> float:
    return float(np.mean([bool(pattern.fullmatch(cell)) for cell in cells]))
