"""Read columns of a DataFrame as numbers, times and names, and report cells that are none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...core.arguments import varies
from .limits import FILL_VALUES
from .local_time import clock_of, to_utc, zone_of
from .problems import Problems
from .table_format import TableFormat

__all__ = [
    "are_dates",
    "as_text",
    "fill_value_notes",
    "read_numbers",
    "read_tasks",
    "read_times",
    "with_holes",
    "with_index",
]

_SHOWN = 12  # cells of a problem that a message shows
_FEW = 3  # the same where most of the column is wrong

_WORDS = ("", "nan", "-nan", "na", "n/a", "#n/a", "#na", "none", "null", "<na>", "nat")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.[\d.]*(,\d+)?([eE][+-]?\d+)?")
_LIMIT = re.compile(r"[<>≤≥]=?\s*[\d.,]+")
_UNIT = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?\s*[^\d\s.,]+")
_PLAIN_DATE = r"\d{4}-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)?)?"
_DAY_AND_MONTH = r"(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(?:,?[ T]+.*)?"
_YEAR = r"(?P<year>\d{4}|\d{2})"
_NAME = r"(?P<name>[A-Za-z]{3,9})"
_REST = r"(?:,?[ T]+(?P<clock>.*))?"
_DATES = (
    r"(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})" + _REST,
    r"(?P<day>\d{1,2})[-. ]+" + _NAME + "[-., ]+" + _YEAR + _REST,
    _NAME + r"[-. ]+(?P<day>\d{1,2})[-, ]+(?P<year>\d{4})" + _REST,
    _NAME + r"[-. ]+(?P<year>\d{4})",
    r"(?P<year>\d{4})[- ]?[Qq](?P<quarter>[1-4])",
)
_DAY_FIRST = r"(?P<day>\d{1,2})[./-](?P<month>\d{1,2})[./-]" + _YEAR + _REST
_MONTH_FIRST = r"(?P<month>\d{1,2})[./-](?P<day>\d{1,2})[./-]" + _YEAR + _REST
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_CLOCK = r"(\d{1,2})(:\d{2})(:\d{2}(?:[.,]\d+)?)?(?:\s*([aApP])\.?[mM]\.?)?\s*(\S*)"
_OFFSET = r"(?:[T ]\d{2}:?\d{2}(?::?\d{2})?(?:[.,]\d+)?)\s*(Z|z|[+-]\d{2}(?::?\d{2})?)$"

# Numbers of digits of dates that are whole numbers, from yyyymm to yyyymmddHHMMSS, and yyyyddd with
# the day of the year; and the years that they may have.
_DIGITS = (6, 7, 8, 10, 12, 14)
_YEARS = {8: (1000, 2999)}
_MODERN = (1900, 2099)  # years of the others, which could also be counters
_FEW_DATES = 5  # distinct values; fewer that look like yymmdd may do so by chance
_MANY_CLOCKS = 20  # the same of hhmm, which six in ten numbers look like
_STAMPS = (1e8, 4.1e9)  # seconds since 1970, from 1973 to 2099


def read_numbers(
    raw: pd.DataFrame,
    names: Iterable[Any],
    table_format: TableFormat,
    problems: Problems,
    *,
    are_inputs: bool,
) -> dict[Any, np.ndarray]:
    """Columns as float64, by name, NaN where cells are missing or wrong.

    :param are_inputs: whether a missing cell is a problem. Of outputs, columns with a problem are
        left out.
    """
    found = {}
    for name in names:
        text, missing = as_text(raw[name], table_format)
        values, missing = _parse(raw[name], text, missing, table_format)
        right = _check_numbers(name, values, missing, text, table_format, problems, are_inputs)
        if right or are_inputs:
            found[name] = values
    return found


def _check_numbers(
    name: Any,
    values: np.ndarray,
    missing: np.ndarray,
    text: pd.Series,
    table_format: TableFormat,
    problems: Problems,
    is_input: bool,
) -> bool:
    """Whether cells are finite numbers, and of an input complete; problems are added if not."""
    bad, infinite = np.flatnonzero(np.isnan(values) & ~missing), np.flatnonzero(np.isinf(values))
    if len(bad) + len(infinite) + is_input * np.count_nonzero(missing) == 0:
        return True
    cells = text.to_numpy(dtype=object)[bad]
    many = len(bad) >= 0.5 * np.count_nonzero(~missing)
    advice = _advice(cells, table_format, many) if len(bad) else ""
    if len(bad) and many and not advice:
        _add_words(name, cells, problems)
    else:
        problems.add_rows(
            f"Column {name!r} holds what is no number:",
            bad,
            advice,
            cells=cells,
            num_shown=_FEW if many else _SHOWN,
        )
    problems.add_rows(
        f"Column {name!r} is infinite in", infinite, "Leave cells without a value empty."
    )
    if is_input:
        problems.add_rows(
            f"Input {name!r} is missing in",
            np.flatnonzero(missing),
            "Inputs must be complete: fill it in, or leave the rows out.",
        )
    return False


def as_text(column: pd.Series, table_format: TableFormat) -> tuple[pd.Series, np.ndarray]:
    """The cells as text without surrounding spaces, and which of them are missing (Booleans)."""
    text = column.astype(str).str.strip()
    words = {*_WORDS, *(word.lower() for word in table_format.missing_values)}
    return text, (column.isna() | text.str.lower().isin(words)).to_numpy()


def with_holes(raw: pd.DataFrame, table_format: TableFormat) -> list[Any]:
    """Names of the columns that have missing cells."""
    columns = (raw.iloc[:, i] for i in range(raw.shape[1]))
    return [column.name for column in columns if as_text(column, table_format)[1].any()]


def read_tasks(
    column: pd.Series, name: Any, table_format: TableFormat, problems: Problems
) -> np.ndarray:
    """The name of each row's task. A task may be called NA (Namibia) or None."""
    text = column.astype(str).str.strip()
    unnamed = column.isna() | text.isin({"", *table_format.missing_values})
    problems.add_rows(
        f"Task {name!r} is missing in",
        np.flatnonzero(unnamed),
        "To which series do these rows belong?",
    )
    return column.astype(str).to_numpy()


def are_dates(values: Any) -> bool:
    """Whether a column or a level of an index holds dates, as such or as text in ISO 8601."""
    if pd.api.types.is_datetime64_any_dtype(values) or isinstance(values.dtype, pd.PeriodDtype):
        return True
    text = [cell for cell in values.dropna() if isinstance(cell, str) and cell.strip()]
    return bool(text) and all(re.fullmatch(_PLAIN_DATE, cell.strip()) for cell in text)


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


def read_times(
    column: pd.Series,
    name: Any,
    table_format: TableFormat,
    problems: Problems,
    origin: np.datetime64 | None = None,
    is_fitted: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Read a column of numbers or dates as numbers.

    Whole numbers such as 20240131 are read as dates if all of them are dates: as numbers, the step
    from the end of a month would be 70.

    :param origin: days count from this date; from the first one if None.
    :param is_fitted: whether the times of an earlier fit were read: as dates if there is an
        ``origin``, which these must be too, else as numbers.
    :return: the numbers, or days since the origin; the numbers, or timestamps in UTC (datetime64);
        the same as the clocks of the column's zone show them, for the calendar and for plots; and
        notes for the user, in sentences.
    """
    notes: tuple[str, ...] = ()
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    text, missing = as_text(column, table_format)
    dated = pd.api.types.is_datetime64_any_dtype(column)
    if not dated:
        values, missing = _parse(column, text, missing, table_format)
        known = values[~missing]
        if len(known) == 0 or not np.isnan(known).all():
            dates_of_digits = None if is_fitted and origin is None else _digits(known)
            if dates_of_digits is None:
                if is_fitted and origin is not None:
                    problems.add_rows(
                        f"Times of column {name!r} are dates in the fit, and numbers in",
                        np.flatnonzero(~missing),
                        "Write them as dates, such as 2024-01-31.",
                        num_shown=_FEW,
                    )
                _check_numbers(name, values, missing, text, table_format, problems, True)
                return values, values, values, _perhaps_times(known, name)
            stamps = np.full(len(column), np.datetime64("NaT"), "datetime64[s]")
            stamps[~missing] = dates_of_digits
            column, dated = pd.Series(stamps, column.index), True
            notes = (
                f"Times of column {name!r}, such as {int(known[0])}, are read as dates "
                f"({dates_of_digits[0]}). If they are plain numbers, subtract one of them first.",
            )
    problems.add_rows(
        f"Time {name!r} is missing in",
        np.flatnonzero(missing),
        "Every row needs its time: fill it in, or leave the rows out.",
    )
    offsets: set[str] = set()
    zone = zone_of(column, table_format.time_zone)
    naive = not dated or column.dt.tz is None
    if dated:
        offsets = set() if naive or str(column.dt.tz) == "UTC" else {str(column.dt.tz)}
    else:
        patterns: tuple[str, ...] = _DATES
        if table_format.dayfirst is not None:
            patterns = (*_DATES, _DAY_FIRST if table_format.dayfirst else _MONTH_FIRST)
        iso = text.map(lambda cell: _iso_date(cell, patterns), na_action="ignore")
        offsets = _offsets(iso, missing, name, problems)
        column = iso.where(~missing)
    stamps = _stamps(column)
    if naive and not offsets and zone is not None:
        stamps = to_utc(stamps, zone, name, problems)
        missing = missing | np.isnat(stamps)
    bad = np.flatnonzero(np.isnat(stamps) & ~missing)
    problems.add_rows(
        f"Time {name!r} holds what is neither a number nor a date:",
        bad,
        _date_advice(text.iloc[bad], table_format.dayfirst),
        cells=text.iloc[bad].to_list(),
        num_shown=_FEW if len(bad) > 0.5 * len(text) else _SHOWN,
    )
    if is_fitted and origin is None:
        problems.add_rows(
            f"Times of column {name!r} are numbers in the fit, and dates in",
            np.flatnonzero(~missing),
            "Write them as numbers of the same unit.",
            num_shown=_FEW,
        )
    if origin is None:
        known_stamps = stamps[~np.isnat(stamps)]
        origin = known_stamps.min() if len(known_stamps) else np.datetime64("NaT", "D")
    whole, part = _days(stamps)
    first, rest = _days(np.asarray(origin))
    days = (whole - first) / np.timedelta64(1, "D") + (part - rest)
    if zone is not None:
        notes += (f"Hours and days of column {name!r} are those of clocks in {zone}.",)
    elif offsets - {"Z", "z", "+00:00"}:
        shown = ", ".join(sorted(offsets))
        notes += (f"Times of column {name!r} were given in {shown}, and are taken in UTC.",)
    return days, stamps, clock_of(stamps, zone), notes


def _stamps(column: pd.Series) -> np.ndarray:
    """Dates, or text in ISO 8601, as datetime64 in UTC; NaT where a cell is no date.

    Units are nanoseconds for years from 1678 to 2261, which they reach, and coarser for others.
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
    """The day of each timestamp, and the elapsed share of that day, to subtract without loss."""
    day = stamps.astype("datetime64[D]")
    return day, (stamps - day) / np.timedelta64(1, "D")


def _digits(values: np.ndarray) -> np.ndarray | None:
    """Numbers such as 20240131 as dates (datetime64[s]); None unless all of them are dates."""
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
    """A note on numbers that could be dates with the day first, weeks or quarters of years, seconds
    since 1970 or times of a day; they stay numbers.
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
    for word, base, most, written in (
        ("week", 100, 53, "the Monday of each week, such as 2024-01-29"),
        ("quarter", 10, 4, "2024Q1"),
    ):
        year, part = values // base, values % base
        if (
            _MODERN[0] <= year.min() < year.max() <= _MODERN[1]
            and 1 <= part.min()
            and part.max() <= most
            and len(np.unique(part)) > 2  # others are numbers such as 200010, 200110
            and len(np.unique(values)) >= _FEW_DATES
        ):
            return (
                f"Times of column {name!r}, such as {first:.0f}, are taken as plain numbers, in "
                f"which the last {word} of a year and the first of the next are at least "
                f"{base - most + 1} apart. If they are years and {word}s, write {written}.",
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
    """Dates of years and days of the year from 1; None if some are none, or all of one year."""
    first = (year - 1970).astype("datetime64[Y]")
    dates = first.astype("datetime64[D]") + (day - 1)
    right = (year >= _MODERN[0]) & (year <= _MODERN[1]) & (dates.astype("datetime64[Y]") == first)
    if not right.all() or len(np.unique(year)) == 1:
        return None
    return dates.astype("datetime64[s]")


def fill_value_notes(
    columns: Mapping[Any, np.ndarray], place: Callable[[int], str]
) -> tuple[str, ...]:
    """Notes on values that may stand for missing ones.

    These are values that devices and archives write where they have none (-999, 9999, 1e20, ...),
    or what float32 makes of them, where they lie further from all other values of the column than
    those do from one another.

    :param place: a function of a row's number that names its place.
    """
    notes = []
    for name, values in columns.items():
        unlikely = np.isin(values, FILL_VALUES)
        others = values[np.isfinite(values) & ~unlikely]
        if len(others) == 0:
            continue
        for value in np.unique(values[unlikely]):
            if np.abs(others - value).min() <= np.ptp(others):
                continue
            rows = np.flatnonzero(values == value)
            first = place(int(rows[0]))
            often = f"in {first}" if len(rows) == 1 else f"{len(rows)} times, first in {first}"
            notes.append(
                f"Column {name!r} holds {value:g} {often}, far from all its other values. If that "
                f"stands for a missing value, pass --missing_values={value:g}."
            )
    return tuple(notes)


def _parse(
    column: pd.Series, text: pd.Series, missing: np.ndarray, table_format: TableFormat
) -> tuple[np.ndarray, np.ndarray]:
    """Cells as numbers, NaN where they are missing or none; and which are missing.

    Numbers that the format names as missing values are so, however they are written.
    """
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
        if table_format.decimal == ",":
            # A point would separate thousands, and 1.234 be read as a thousandth of what it means.
            plain = plain.where(~plain.str.contains(".", regex=False, na=False), "?")
            plain = plain.str.replace(",", ".")
        values = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=float)
    for word in table_format.missing_values:
        with contextlib.suppress(ValueError):
            number = float(word.replace(",", "."))
            missing = missing | np.isin(values, [number, float(np.float32(number))])
    return np.where(missing, np.nan, values), missing


def _add_words(name: str, words: np.ndarray, problems: Problems) -> None:
    """Add the problem that a column is text, which advice on single cells would not help."""
    values, counts = np.unique(words.astype(str), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:6]
    shown = ", ".join(f"{values[i]!r} ({counts[i]})" for i in most)
    more = f" and {len(values) - len(most)} others" if len(values) > len(most) else ""
    problems.add(
        f"Column {name!r} is text, with the values (and how often each occurs) {shown}{more}",
        "If these are categories, say so with --category; else leave the column out.",
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
    """The offsets from UTC of dates; dates with and without an offset together are a problem."""
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


def _iso_date(text: str, patterns: Sequence[str]) -> str:
    """Write a date such as 31.01.2024 6:00 PM as 2024-01-31T18:00; other text stays.

    31-Jan-2024 and January 31, 2024 are dates too, and 2024Q1, which is the first day of it.

    :param patterns: regular expressions of dates with named groups.
    """
    for pattern in patterns:
        match = re.fullmatch(pattern, text)
        found: dict[str, str | None] = match.groupdict() if match else {}
        month = found.get("month")
        if name := found.get("name"):  # in English, or at least three letters of it
            numbers = [i for i, long in enumerate(_MONTHS, 1) if long.startswith(name.lower())]
            month = str(numbers[0]) if numbers else None
        if quarter := found.get("quarter"):
            month = str(3 * int(quarter) - 2)
        if month is not None:
            break
    else:
        return text
    year = found["year"] or ""
    if len(year) == 2:  # 69 to 99 are of the last century, as in Python
        year = ("19" if int(year) >= 69 else "20") + year
    date = f"{year}-{month:0>2}-{found.get('day') or '1':0>2}"
    clock = found.get("clock") or ""
    if parts := re.fullmatch(_CLOCK, clock):
        hour, minute, second, half, offset = parts.groups(default="")
        number = int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
        clock = f"{number:02d}{minute}{second}{offset}"
    return f"{date}T{clock}" if clock else date


def _date_advice(cells: pd.Series, dayfirst: bool | None) -> str:
    """Advice on cells that are no dates."""
    parts = cells.str.extract(f"^{_DAY_AND_MONTH}$").dropna(subset=[0])
    if dayfirst is None and len(parts) and len(parts) == len(cells):
        first, second = pd.to_numeric(parts[0]), pd.to_numeric(parts[1])
        if (first > 12).any() and not (second > 12).any():
            return "If the day comes first, pass --dayfirst."
        if (second > 12).any() and not (first > 12).any():
            return "If the month comes first, pass --nodayfirst."
        return "Pass --dayfirst if the day comes first, --nodayfirst if the month does."
    return "Expected numbers throughout, or dates such as 2024-01-31 or 2024-01-31T12:00."
