"""Columns of a DataFrame as numbers and times, and all that keeps them from being such."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from .problems import Problems
from .table_format import TableFormat

__all__ = ["missing_cells", "numbers", "sentinels", "times"]

_SHOWN = 12  # of the cells of a problem
_FEW = 3  # where the whole column is written so

_WORDS = ("", "nan", "-nan", "na", "n/a", "#n/a", "#na", "none", "null", "<na>", "nat")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.[\d.]*(,\d+)?([eE][+-]?\d+)?")
_LIMIT = re.compile(r"[<>≤≥]=?\s*[\d.,]+")
_UNIT = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?\s*[^\d\s.,]+")
_DAY_AND_MONTH = r"^(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(?:,?[ T]+(.*))?$"
_YEAR_FIRST = r"^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:,?[ T]+(.*))?$"
_CLOCK = r"^(\d{1,2})(:\d{2})(:\d{2}(?:[.,]\d+)?)?(?:\s*([aApP])\.?[mM]\.?)?\s*(\S*)$"
_OFFSET = r"(?:[T ]\d{2}:?\d{2}(?::?\d{2})?(?:[.,]\d+)?)\s*(Z|z|[+-]\d{2}(?::?\d{2})?)$"

# What measuring devices and archives write where they have no value.
_SENTINELS = np.array(
    [-9, -99, -999, -9999, -99999, -99.9, -999.9, -9999.9, -999.99, -9999.99, -32768, -2147483648]
    + [99, 999, 9999, 99999, 999999, 99.9, 999.9, 9999.9, 999.99, 9999.99, 32767, 65535, 2147483647]
    + [1e20, -1e20, 1e30, -1e30, 9.969209968386869e36, -1e34, 1e36, -7777, -8888, -777, -888]
)


def numbers(
    column: pd.Series,
    name: str,
    table_format: TableFormat,
    problems: Problems,
    *,
    missing_allowed: bool,
) -> np.ndarray:
    """A column as float64, NaN where missing, and where a problem was added.

    :param missing_allowed: whether a missing cell is no problem.
    """
    missing, values, text = _parse(column, table_format)
    bad = np.flatnonzero(np.isnan(values) & ~missing)
    many = len(bad) >= 0.5 * np.count_nonzero(~missing)
    advice = _advice(text[bad], table_format, many) if len(bad) else ""
    if len(bad) and many and not advice:
        _add_words(name, text[bad], problems)
    else:
        problems.add_rows(
            f"Column {name!r} holds what is no number:",
            bad,
            advice,
            cells=text[bad],
            num_shown=_FEW if many else _SHOWN,
        )
    infinite = np.flatnonzero(np.isinf(values))
    problems.add_rows(
        f"Column {name!r} is infinite in", infinite, "Leave cells without a value empty."
    )
    if not missing_allowed:
        problems.add_rows(
            f"Input {name!r} is missing in",
            np.flatnonzero(missing),
            "Inputs must be complete: fill it in, or leave the rows out.",
        )
    return values


def missing_cells(column: pd.Series, table_format: TableFormat) -> np.ndarray:
    """Which cells of a column are missing: Booleans."""
    text = column.astype(str).str.strip().str.lower()
    words = {*_WORDS, *(word.lower() for word in table_format.missing_values)}
    return (column.isna() | text.isin(words)).to_numpy()


def times(
    column: pd.Series, name: str, table_format: TableFormat, problems: Problems
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """A column of numbers or dates as numbers; what plots show; and notes.

    :return: numbers as they are, or days since the first date; the numbers, or timestamps in UTC
        (datetime64); sentences for a user.
    """
    dated = pd.api.types.is_datetime64_any_dtype(column)
    if not dated:
        missing, values, _ = _parse(column, table_format)
        if missing.all() or not np.isnan(values[~missing]).all():
            found = numbers(column, name, table_format, problems, missing_allowed=False)
            return found, found, ()
    missing = missing_cells(column, table_format)
    problems.add_rows(
        f"Time {name!r} is missing in",
        np.flatnonzero(missing),
        "Every row needs its time: fill it in, or leave the rows out.",
    )
    text = column.astype(str).str.strip()
    offsets: set[str] = set()
    if dated:
        zone = getattr(column.dt, "tz", None)
        offsets = set() if zone is None or str(zone) == "UTC" else {str(zone)}
    else:
        iso = _year_first(text, table_format.dayfirst)
        offsets = _offsets(iso, missing, name, problems)
        column = iso.where(~missing)
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
    bad = np.flatnonzero(dates.isna().to_numpy() & ~missing)
    problems.add_rows(
        f"Time {name!r} holds what is neither a number nor a date:",
        bad,
        _date_advice(text.iloc[bad], table_format.dayfirst),
        cells=text.iloc[bad].to_list(),
        num_shown=_FEW if len(bad) > 0.5 * len(text) else _SHOWN,
    )
    stamps = dates.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")
    days = (stamps - stamps[~np.isnat(stamps)].min(initial=np.datetime64("2200-01-01", "ns"))) / (
        np.timedelta64(1, "D")
    )
    notes: tuple[str, ...] = ()
    if offsets - {"Z", "z", "+00:00"}:
        shown = ", ".join(sorted(offsets))
        notes = (f"Times of column {name!r} were given in {shown}, and are taken in UTC.",)
    return days, stamps, notes


def sentinels(values: np.ndarray) -> dict[float, int]:
    """Values that may stand for missing ones, and how often each occurs.

    What devices and archives write for no value (-999, 9999, 1e20, ...), where it lies further from
    all other values than those do from one another.
    """
    known = values[np.isfinite(values)]
    candidates = np.isin(known, _SENTINELS)
    others = known[~candidates]
    if len(others) == 0:
        return {}
    found = {}
    for value, count in zip(*np.unique(known[candidates], return_counts=True), strict=True):
        if np.abs(others - value).min() > np.ptp(others):
            found[float(value)] = int(count)
    return found


def _parse(
    column: pd.Series, table_format: TableFormat
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which cells are missing, all as numbers (NaN where they are none), and as text."""
    missing = missing_cells(column, table_format)
    text = column.astype(str).str.strip()
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=float, na_value=np.nan)
    else:
        plain = text.str.replace("\N{MINUS SIGN}", "-").where(~missing, None)
        if table_format.decimal == ",":
            # A point would be of thousands, and 1.234 not what it looks like.
            plain = plain.where(~plain.str.contains(".", regex=False, na=False), "?")
            plain = plain.str.replace(",", ".")
        values = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=float)
    for word in table_format.missing_values:
        try:
            missing = missing | (values == float(word.replace(",", ".")))
        except ValueError:
            continue
    return missing, np.where(missing, np.nan, values), text.to_numpy(dtype=object)


def _add_words(name: str, words: np.ndarray, problems: Problems) -> None:
    """A column of text, which no advice on single cells helps."""
    values, counts = np.unique(words.astype(str), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:6]
    shown = ", ".join(f"{values[i]!r} ({counts[i]})" for i in most)
    more = f" and {len(values) - len(most)} others" if len(values) > len(most) else ""
    problems.add(
        f"Column {name!r} is text, with the values (and how often each occurs) {shown}{more}",
        "Only numbers can be filled: leave the column out, or make a column of zeros and ones of "
        "each value first (pandas.get_dummies).",
    )


def _advice(cells: np.ndarray, table_format: TableFormat, many: bool) -> str:
    """What to do about cells that are no numbers; nothing to say of a column of mere words."""
    commas = np.array([bool(_DECIMAL_COMMA.fullmatch(c) or _THOUSANDS.fullmatch(c)) for c in cells])
    if table_format.decimal == "." and commas.mean() > 0.5:
        if any("." in cell for cell in cells[commas]):
            return "Leave out the commas that separate thousands."
        if all(_THOUSANDS.fullmatch(cell) for cell in cells[commas]):
            return (
                "If these commas separate thousands, remove them; if they are decimal marks, pass "
                "--decimal=','."
            )
        return "If these commas are decimal marks, pass --decimal=','."
    if table_format.decimal == "," and _share(_DECIMAL_POINT, cells) > 0.5:
        return "The decimal mark is ',': remove points that separate thousands, or --decimal=','."
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
            f"--missing_values='{','.join(words)}'."
        )
    return "Correct the cells, or leave them empty."


def _share(pattern: re.Pattern[str], cells: np.ndarray) -> float:
    return float(np.mean([bool(pattern.fullmatch(cell)) for cell in cells]))


def _offsets(text: pd.Series, missing: np.ndarray, name: str, problems: Problems) -> set[str]:
    """Offsets from UTC of dates; one without, among others that have one, is a problem."""
    offset = text.str.extract(_OFFSET)[0]
    without = (offset.isna().to_numpy() & ~missing).nonzero()[0]
    if offset.notna().any():
        problems.add_rows(
            f"Time {name!r} has an offset from UTC in some rows ({offset.dropna().iloc[0]}), and "
            "none in",
            without,
            "Give all times one, or none.",
        )
    return {
        str(o) if ":" in o or o in "Zz" else f"{o[:3]}:{o[3:] or '00'}" for o in offset.dropna()
    }


def _year_first(text: pd.Series, dayfirst: bool | None) -> pd.Series:
    """Dates such as 31.01.2024 6:00 PM as 2024-01-31T18:00; what is no date as it is."""
    parts = text.str.extract(_YEAR_FIRST)
    year, month, day, clock = (parts[i] for i in range(4))
    if dayfirst is not None:
        other = text.str.extract(_DAY_AND_MONTH)
        short = other[2].str.len() == 2  # 69 to 99 are of the last century, as in Python
        century = pd.Series(np.where(pd.to_numeric(other[2]) >= 69, "19", "20"), text.index)
        year = year.fillna(other[2].where(~short, century + other[2]))
        day, month = day.fillna(other[1 - dayfirst]), month.fillna(other[int(dayfirst)])
        clock = clock.fillna(other[3])
    iso = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)
    clock = clock.fillna("")
    hour = clock.str.extract(_CLOCK)
    named = hour[0].notna()
    half = hour[3].str.lower()
    number = pd.to_numeric(hour[0])
    number = number.where(half.isna(), number % 12 + 12 * (half == "p"))
    padded = number.where(named, 0).astype(int).astype(str).str.zfill(2)
    clock = clock.where(~named, padded + hour[1] + hour[2].fillna("") + hour[4].fillna(""))
    return text.where(iso.isna(), iso.where(clock == "", iso + "T" + clock))


def _date_advice(cells: pd.Series, dayfirst: bool | None) -> str:
    """What to do about dates that are none."""
    parts = cells.str.extract(_DAY_AND_MONTH).dropna(subset=[0])
    if dayfirst is None and len(parts) and len(parts) == len(cells):
        first, second = pd.to_numeric(parts[0]), pd.to_numeric(parts[1])
        if (first > 12).any() and not (second > 12).any():
            return "If the day comes first, pass --dayfirst."
        if (second > 12).any() and not (first > 12).any():
            return "If the month comes first, pass --nodayfirst."
        return "Pass --dayfirst if the day comes first, --nodayfirst if the month does."
    return "Expected numbers throughout, or dates such as 2024-01-31 or 2024-01-31T12:00."
