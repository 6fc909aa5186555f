"""Columns of a DataFrame as numbers and times, and all that keeps them from being such."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ...core.arguments import varies
from .problems import Problems
from .table_format import TableFormat

__all__ = ["missing_cells", "numbers", "sentinels", "times", "unnamed", "with_index"]

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
_DAY_AND_NAME = r"^(\d{1,2})[-. ]+([A-Za-z]{3,9})[-., ]+(\d{4}|\d{2})(?:,?[ T]+(.*))?$"
_NAME_AND_DAY = r"^([A-Za-z]{3,9})[-. ]+(\d{1,2})[-, ]+(\d{4})(?:,?[ T]+(.*))?$"
_PLAIN_DATE = r"\d{4}-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)?)?"
_NAME_AND_YEAR = r"^([A-Za-z]{3,9})[-. ]+(\d{4})()()$"
_FIRST_MONTHS = {"1": "01", "2": "04", "3": "07", "4": "10"}
_QUARTER = r"^(\d{4})[- ]?[Qq]([1-4])$"
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_CLOCK = r"^(\d{1,2})(:\d{2})(:\d{2}(?:[.,]\d+)?)?(?:\s*([aApP])\.?[mM]\.?)?\s*(\S*)$"
_OFFSET = r"(?:[T ]\d{2}:?\d{2}(?::?\d{2})?(?:[.,]\d+)?)\s*(Z|z|[+-]\d{2}(?::?\d{2})?)$"

# Digits of dates that are whole numbers, from yyyymm to yyyymmddHHMMSS, and of yyyyddd, whose days
# count from the year's first; and their years.
_DIGITS = (6, 7, 8, 10, 12, 14)
_YEARS = {8: (1000, 2999)}
_MODERN = (1900, 2099)  # of the others, which a counter could be
_FEW_DATES = 5  # values; of fewer that look like yymmdd, which is short, chance could be the cause
_MANY_CLOCKS = 20  # the same of hhmm, of which six in ten numbers are some
_STAMPS = (1e8, 4.1e9)  # seconds since 1970, from 1973 to 2099

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


def unnamed(column: pd.Series, table_format: TableFormat) -> np.ndarray:
    """Which rows have no task: Booleans. A series may be called NA (Namibia) or None."""
    text = column.astype(str).str.strip()
    words = {"", *table_format.missing_values}
    return (column.isna() | text.isin(words)).to_numpy()


def with_index(raw: pd.DataFrame, names: Iterable[Any]) -> pd.DataFrame:
    """The table, with those levels of its index as columns that are named and no column is."""
    found = raw
    for level, name in enumerate(raw.index.names):
        name = "index" if name is None and raw.index.nlevels == 1 else name
        if name is not None and name in names and name not in raw.columns:
            found = found.copy(deep=False)
            found[name] = raw.index.get_level_values(level)
    return found


def times(
    column: pd.Series,
    name: str,
    table_format: TableFormat,
    problems: Problems,
    origin: np.datetime64 | None = None,
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """A column of numbers or dates as numbers; what plots show; and notes.

    Whole numbers such as 20240131, all of which are dates, are taken as such: as numbers a month's
    end would be 70 days.

    :param origin: from which days count; the first date if None.
    :return: numbers as they are, or days since the origin; the numbers, or timestamps in UTC
        (datetime64); sentences for a user.
    """
    notes: tuple[str, ...] = ()
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    dated = pd.api.types.is_datetime64_any_dtype(column)
    if not dated:
        missing, values, _ = _parse(column, table_format)
        if missing.all() or not np.isnan(values[~missing]).all():
            dates_of_digits = _digits(values[~missing])
            if dates_of_digits is None:
                found = numbers(column, name, table_format, problems, missing_allowed=False)
                return found, found, _perhaps_times(values[~missing], name)
            stamps = np.full(len(column), np.datetime64("NaT"), "datetime64[s]")
            stamps[~missing] = dates_of_digits
            column, dated = pd.Series(stamps, column.index), True
            first = int(values[~missing][0])
            notes = (
                f"Times of column {name!r}, such as {first}, are read as dates "
                f"({dates_of_digits[0]}). If they are plain numbers, subtract one of them first.",
            )
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
    stamps = _stamps(column)
    bad = np.flatnonzero(np.isnat(stamps) & ~missing)
    problems.add_rows(
        f"Time {name!r} holds what is neither a number nor a date:",
        bad,
        _date_advice(text.iloc[bad], table_format.dayfirst),
        cells=text.iloc[bad].to_list(),
        num_shown=_FEW if len(bad) > 0.5 * len(text) else _SHOWN,
    )
    if origin is None:
        known = stamps[~np.isnat(stamps)]
        origin = known.min() if len(known) else np.datetime64("NaT", "D")
    whole, part = _days(stamps)
    first, rest = _days(np.asarray(origin))
    days = (whole - first) / np.timedelta64(1, "D") + (part - rest)
    if offsets - {"Z", "z", "+00:00"}:
        shown = ", ".join(sorted(offsets))
        notes += (f"Times of column {name!r} were given in {shown}, and are taken in UTC.",)
    return days, stamps, notes


def _stamps(column: pd.Series) -> np.ndarray:
    """Dates, or text that says dates, as datetime64 in UTC; NaT where it is none.

    In nanoseconds where they reach, from 1678 to 2261, and in coarser units beyond.
    """
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
    found = dates.dt.tz_localize(None).to_numpy()
    if pd.api.types.is_object_dtype(column) and dates.isna().any():
        text = [cell if isinstance(cell, str) else "NaT" for cell in column]
        if all(cell == "NaT" or re.fullmatch(_PLAIN_DATE, cell) for cell in text):
            with contextlib.suppress(ValueError):  # years that nanoseconds do not reach
                found = np.array(text, dtype="datetime64[us]")
    years = found[~np.isnat(found)].astype("datetime64[Y]").astype(int) + 1970
    if len(years) == 0 or 1677 < years.min() and years.max() < 2262:
        return found.astype("datetime64[ns]")
    return found


def _days(stamps: Any) -> tuple[Any, Any]:
    """The day of each, and the share of it that has gone: differences lose no digits."""
    day = stamps.astype("datetime64[D]")
    return day, (stamps - day) / np.timedelta64(1, "D")


def _digits(values: np.ndarray) -> np.ndarray | None:
    """Numbers such as 20240131 as dates (datetime64[s]); None unless all of them are such."""
    if not values.size:
        return None
    if not ((values > 1e2) & (values < 1e15) & (values == np.round(values))).all():
        return None
    whole = values.astype(np.int64)
    count = len(str(whole.min()))
    if count not in _DIGITS or len(str(whole.max())) != count:
        return _short_dates(whole)
    if count == 7:
        return _days_of_years(whole // 1000, whole % 1000)
    padded = whole * 10 ** (14 - count) + (10**6 if count == 6 else 0)
    year, month, day, hour, minute, second = (
        padded // 10**power % (10**4 if power == 10 else 100) for power in (10, 8, 6, 4, 2, 0)
    )
    low, high = _YEARS.get(count, _MODERN)
    right = (year >= low) & (year <= high) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour < 24) & (minute < 60) & (second < 60)
    if count == 6 and not right.all():
        return _short_dates(whole)
    if not right.all() or count == 6 and len(np.unique(year)) == 1:
        return None  # months of one year are as far apart as their numbers
    months = (12 * (year - 1970) + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    if (days.astype("datetime64[M]") != months).any():
        return None
    return days.astype("datetime64[s]") + (3600 * hour + 60 * minute + second)


def _short_dates(whole: np.ndarray) -> np.ndarray | None:
    """Numbers yymmdd as dates from 1969 to 2068; None for others, and for those of one month.

    Those of 2000 to 2009 have lost their zeros. Numbers that are ddmmyy as well are what has them
    nearer together.
    """
    if whole.max() < 10101 or whole.max() > 991231 or len(np.unique(whole)) < _FEW_DATES:
        return None
    found = _real_dates(whole // 10**4, whole // 100 % 100, whole % 100)
    if found is None or len(np.unique(found.astype("datetime64[M]"))) == 1:
        return None
    other = _day_first(whole)
    return found if other is None or np.ptp(found) <= np.ptp(other) else None


def _day_first(whole: np.ndarray) -> np.ndarray | None:
    """Numbers ddmmyyyy or ddmmyy as dates; None for others, and for the same day of all years."""
    base = 10**4 if whole.max() > 10**6 else 100
    is_few = len(np.unique(whole)) < _FEW_DATES or len(np.unique(whole // base)) == 1
    if is_few or whole.max() >= 10**8:
        return None
    return _real_dates(whole % base, whole // base % 100, whole // base // 100)


def _real_dates(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray | None:
    """Days as datetime64[s], years of two digits from 1969 to 2068; None unless all exist."""
    year = year + np.where(year < 69, 2000, np.where(year < 100, 1900, 0))
    months = (12 * (year - 1970) + month - 1).astype("datetime64[M]")
    dates = months.astype("datetime64[D]") + (day - 1)
    right = (month >= 1) & (month <= 12) & (day >= 1) & (dates.astype("datetime64[M]") == months)
    right &= (year >= _MODERN[0]) & (year <= _MODERN[1])
    return dates.astype("datetime64[s]") if right.all() else None


def _perhaps_times(values: np.ndarray, name: str) -> tuple[str, ...]:
    """A note on numbers that could be dates with the day first, seconds since 1970 or times of a
    day; they stay numbers.
    """
    if not values.size or not np.isfinite(values).all():
        return ()
    first = values[0]
    for unit, word in ((1.0, "seconds"), (1e3, "milliseconds")):
        if values.min() >= _STAMPS[0] * unit and values.max() <= _STAMPS[1] * unit:
            return (
                f"Times of column {name!r}, such as {first:.0f}, are taken as plain numbers. If "
                f"they are {word} since 1970, make dates of them first: "
                f'pandas.to_datetime(column, unit="{"s" if unit == 1.0 else "ms"}").',
            )
    if values.min() < 0 or values.max() > 1e9 or (values != np.round(values)).any():
        return ()
    if (dates := _day_first(values.astype(np.int64))) is not None:
        return (
            f"Times of column {name!r}, such as {first:.0f}, are taken as plain numbers. If they "
            f"are dates with the day first, write them as {str(dates[0])[:10]}.",
        )
    minute = values % 100
    if (
        values.max() <= 2359
        and (minute < 60).all()
        and len(np.unique(values)) >= _MANY_CLOCKS
        and len(np.unique(values // 100)) > 1
        and len(np.unique(minute)) > 2  # others are numbers such as 0, 50, 100
    ):
        return (
            f"Times of column {name!r}, such as {first:.0f}, are taken as plain numbers, in which "
            "59 minutes past an hour and the next hour are 41 apart. If they are hours and minutes "
            "(or months and days), write them with their date, such as 2024-01-31T09:30.",
        )
    return ()


def _days_of_years(year: np.ndarray, day: np.ndarray) -> np.ndarray | None:
    """Days that count from 1 in each year as dates; None for others, and for those of one year."""
    first = (year - 1970).astype("datetime64[Y]")
    dates = first.astype("datetime64[D]") + (day - 1)
    right = (year >= _MODERN[0]) & (year <= _MODERN[1]) & (dates.astype("datetime64[Y]") == first)
    if not right.all() or len(np.unique(year)) == 1:
        return None
    return dates.astype("datetime64[s]")


def sentinels(values: np.ndarray) -> dict[float, int]:
    """Values that may stand for missing ones, and how often each occurs.

    What devices and archives write for no value (-999, 9999, 1e20, ...), where it lies further from
    all other values than those do from one another.
    """
    known = values[np.isfinite(values)]
    candidates = np.any([_equal(known, value) for value in _SENTINELS], axis=0)
    others = known[~candidates]
    if len(others) == 0:
        return {}
    found = {}
    for value, count in zip(*np.unique(known[candidates], return_counts=True), strict=True):
        if np.abs(others - value).min() > np.ptp(others):
            found[float(value)] = int(count)
    return found


def _equal(values: np.ndarray, number: float) -> np.ndarray:
    """Which values are a number, or what float32 makes of it."""
    return (values == number) | (values == float(np.float32(number)))


def _parse(
    column: pd.Series, table_format: TableFormat
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which cells are missing, all as numbers (NaN where they are none), and as text."""
    missing = missing_cells(column, table_format)
    text = column.astype(str).str.strip()
    said = text[~missing].str.lower()
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        if column.dtype == np.float32 and not varies(column.to_numpy()):
            values[~np.isnan(values)] = np.nanmax(values, initial=-np.inf)  # of its digits
    elif len(said) and said.isin(("true", "false")).all():
        values = (text.str.lower() == "true").to_numpy(dtype=float)
    else:
        plain = text.str.replace("\N{MINUS SIGN}", "-").where(~missing, None)
        if table_format.decimal == ",":
            # A point would be of thousands, and 1.234 not what it looks like.
            plain = plain.where(~plain.str.contains(".", regex=False, na=False), "?")
            plain = plain.str.replace(",", ".")
        values = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=float)
    for word in table_format.missing_values:
        try:
            missing = missing | _equal(values, float(word.replace(",", ".")))
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
    """Dates such as 31.01.2024 6:00 PM as 2024-01-31T18:00; what is no date as it is.

    So are 31-Jan-2024, January 31, 2024, and 2024Q1, which is its first day.
    """
    parts = text.str.extract(_YEAR_FIRST)
    year, month, day, clock = (parts[i] for i in range(4))
    if dayfirst is not None:
        other = text.str.extract(_DAY_AND_MONTH)
        year = _either(year, _whole_year(other[2]))
        day, month = _either(day, other[1 - dayfirst]), _either(month, other[int(dayfirst)])
        clock = _either(clock, other[3])
    for pattern, places in (
        (_DAY_AND_NAME, (2, 1, 0)),
        (_NAME_AND_DAY, (2, 0, 1)),
        (_NAME_AND_YEAR, (1, 0, 2)),
    ):
        named = text.str.extract(pattern)
        number = named[places[1]].map(_month_number, na_action="ignore")
        named.loc[number.isna()] = np.nan
        year, month = _either(year, _whole_year(named[places[0]])), _either(month, number)
        day, clock = _either(day, named[places[2]]), _either(clock, named[3])
    quarter = text.str.extract(_QUARTER)
    year, month = _either(year, quarter[0]), _either(month, quarter[1].map(_FIRST_MONTHS))
    day = _either(day, quarter[1].where(quarter[1].isna(), "1"))
    iso = year + "-" + month.str.zfill(2) + "-" + day.replace("", "1").str.zfill(2)
    clock = clock.fillna("")
    hour = clock.str.extract(_CLOCK)
    named = hour[0].notna()
    half = hour[3].str.lower()
    number = pd.to_numeric(hour[0])
    number = number.where(half.isna(), number % 12 + 12 * (half == "p"))
    padded = number.where(named, 0).astype(int).astype(str).str.zfill(2)
    clock = clock.where(~named, padded + hour[1] + hour[2].fillna("") + hour[4].fillna(""))
    return text.where(iso.isna(), iso.where(clock == "", iso + "T" + clock))


def _either(first: pd.Series, second: pd.Series) -> pd.Series:
    """Text of the first, and of the second where that has none."""
    return pd.Series(np.where(first.notna(), first, second), first.index, dtype=object)


def _whole_year(year: pd.Series) -> pd.Series:
    """Years of four digits; 69 to 99 are of the last century, as in Python."""
    century = pd.Series(np.where(pd.to_numeric(year) >= 69, "19", "20"), year.index)
    return year.where(year.str.len() != 2, century + year)


def _month_number(name: str) -> str | None:
    """Of an English name, or at least three letters of it."""
    found = [i for i, month in enumerate(_MONTHS, 1) if month.startswith(name.lower())]
    return str(found[0]) if found else None


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
