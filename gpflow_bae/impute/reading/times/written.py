"""Dates as people write them, such as 31.01.2024 6:00 PM, as text in ISO 8601."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..problems import Problems
from ..table_format import option

__all__ = ["PLAIN_DATE", "advice_on_dates", "iso_dates", "offsets_of"]

PLAIN_DATE = r"\d{4}-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)?)?"
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


def iso_dates(text: pd.Series, dayfirst: bool | None) -> pd.Series:
    """Dates such as 31.01.2024 6:00 PM as 2024-01-31T18:00; other text stays.

    31-Jan-2024 and January 31, 2024 are dates too, and 2024Q1, which is the first day of it.

    :param dayfirst: whether the day comes before the month where both are numbers; if None such
        text stays.
    """
    patterns: tuple[str, ...] = _DATES
    if dayfirst is not None:
        patterns = (*_DATES, _DAY_FIRST if dayfirst else _MONTH_FIRST)
    return text.map(lambda cell: _iso_date(cell, patterns), na_action="ignore")


def _iso_date(text: str, patterns: Sequence[str]) -> str:
    """Write a date in ISO 8601 if it matches one of the patterns, which have named groups."""
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


def offsets_of(text: pd.Series, missing: np.ndarray, name: str, problems: Problems) -> set[str]:
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


def advice_on_dates(cells: pd.Series, dayfirst: bool | None) -> str:
    """Advice on cells that are no dates."""
    parts = cells.str.extract(f"^{_DAY_AND_MONTH}$").dropna(subset=[0])
    if dayfirst is None and len(parts) and len(parts) == len(cells):
        first, second = pd.to_numeric(parts[0]), pd.to_numeric(parts[1])
        if (first > 12).any() and not (second > 12).any():
            return f"If the day comes first, pass {option('dayfirst', True)}."
        if (second > 12).any() and not (first > 12).any():
            return f"If the month comes first, pass {option('dayfirst', False)}."
        return (
            f"If the day comes first, pass {option('dayfirst', True)}; if the month does, "
            f"{option('dayfirst', False)}."
        )
    return "Expected numbers throughout, or dates such as 2024-01-31 or 2024-01-31T12:00."
