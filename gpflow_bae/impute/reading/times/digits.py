"""Whole numbers that are dates, such as 20240131, and numbers that could be."""

from __future__ import annotations

import numpy as np

__all__ = ["dates_of_digits", "notes_on_numbers"]

# Numbers of digits of dates that are whole numbers, from yyyymm to yyyymmddHHMMSS, and yyyyddd with
# the day of the year; and the years that they may have.
_DIGITS = (6, 7, 8, 10, 12, 14)
_YEARS = {8: (1000, 2999)}
_MODERN = (1900, 2099)  # years of the others, which could also be counters
_FEW_DATES = 5  # distinct values; fewer that look like yymmdd may do so by chance
_MANY_CLOCKS = 20  # the same of hhmm, which six in ten numbers look like
_STAMPS = (1e8, 4.1e9)  # seconds since 1970, from 1973 to 2099


def dates_of_digits(values: np.ndarray) -> np.ndarray | None:
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
    days = _real_dates(year, month, day, _YEARS.get(count, _MODERN))
    if count == 6 and days is None:
        return _short_dates(whole)
    if days is None or not ((hour < 24) & (minute < 60) & (second < 60)).all():
        return None
    if count == 6 and len(np.unique(year)) == 1:
        return None  # months of one year are as far apart as their numbers
    return days + (3600 * hour + 60 * minute + second).astype("timedelta64[s]")


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


def _real_dates(
    year: np.ndarray, month: np.ndarray, day: np.ndarray, years: tuple[int, int] = _MODERN
) -> np.ndarray | None:
    """Days as datetime64[s], years of two digits from 1969 to 2068; None unless all exist.

    :param years: the first and the last year that there may be.
    """
    year = year + np.where(year < 69, 2000, np.where(year < 100, 1900, 0))
    months = (12 * (year - 1970) + month - 1).astype("datetime64[M]")
    dates = months.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]")
    right = (month >= 1) & (month <= 12) & (day >= 1) & (dates.astype("datetime64[M]") == months)
    right &= (year >= years[0]) & (year <= years[1])
    return dates.astype("datetime64[s]") if right.all() else None


def _days_of_years(year: np.ndarray, day: np.ndarray) -> np.ndarray | None:
    """Dates of years and days of the year from 1; None if some are none, or all of one year."""
    first = (year - 1970).astype("datetime64[Y]")
    dates = first.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]")
    right = (year >= _MODERN[0]) & (year <= _MODERN[1]) & (dates.astype("datetime64[Y]") == first)
    if not right.all() or len(np.unique(year)) == 1:
        return None
    return dates.astype("datetime64[s]")


def notes_on_numbers(values: np.ndarray, name: str) -> tuple[str, ...]:
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
