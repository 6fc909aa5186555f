"""Read the column of times, numbers or dates, as numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..cells import FEW_SHOWN, NUM_SHOWN, Cells
from ..columns import FittedColumns
from ..problems import Problems
from .digits import dates_of_digits, notes_on_numbers
from .written import PLAIN_DATE, advice_on_dates, iso_dates, offsets_of
from .zones import clock_of, to_utc, zone_of

__all__ = ["Times", "are_dates", "read_times"]


class Times(NamedTuple):
    """Times of the rows.

    * numbers: the numbers of the column, or days since the origin.
    * stamps: the numbers, or timestamps in UTC (datetime64).
    * clock: as ``stamps``, but as the clocks of the column's zone show them, for the calendar and
      for plots.
    * notes: notes for the user, in sentences.
    """

    numbers: np.ndarray
    stamps: np.ndarray
    clock: np.ndarray
    notes: tuple[str, ...] = ()


def read_times(cells: Cells, problems: Problems, fitted: FittedColumns | None = None) -> Times:
    """Read a column of numbers or dates as numbers.

    Whole numbers such as 20240131 are read as dates if all of them are dates: as numbers, the step
    from the end of a month would be 70.

    :param fitted: how the table of an earlier fit was read: its times were dates if it has an
        ``origin``, from which days count, and numbers otherwise; these must be the same. Without it
        days count from the first date.
    """
    origin = None if fitted is None else fitted.origin
    numbers_expected = fitted is not None and origin is None
    notes: tuple[str, ...] = ()
    if isinstance(cells.column.dtype, pd.PeriodDtype):
        cells = Cells.read(cells.column.dt.to_timestamp(), cells.table_format, cells.name)
    name, column, missing = cells.name, cells.column, cells.missing
    if not pd.api.types.is_datetime64_any_dtype(column):
        values, missing = cells.parse_numbers()
        known = values[~missing]
        if len(known) == 0 or not np.isnan(known).all():
            dates = None if numbers_expected else dates_of_digits(known)
            if dates is None:
                if origin is not None:
                    problems.add_rows(
                        f"Times of column {name!r} are dates in the fit, and numbers in",
                        np.flatnonzero(~missing),
                        "Write them as dates, such as 2024-01-31.",
                        num_shown=FEW_SHOWN,
                    )
                cells.check_numbers(values, missing, problems, is_input=True)
                return Times(values, values, values, notes_on_numbers(known, name))
            stamps = np.full(len(column), np.datetime64("NaT", "s"))
            stamps[~missing] = dates
            column = pd.Series(stamps, column.index)
            notes = (
                f"Times of column {name!r}, such as {int(known[0])}, are read as dates "
                f"({dates[0]}). If they are plain numbers, subtract one of them first.",
            )
    problems.add_rows(
        f"Time {name!r} is missing in",
        np.flatnonzero(missing),
        "Every row needs its time: fill it in, or leave the rows out.",
    )
    if numbers_expected:
        problems.add_rows(
            f"Times of column {name!r} are numbers in the fit, and dates in",
            np.flatnonzero(~missing),
            "Write them as numbers of the same unit.",
            num_shown=FEW_SHOWN,
        )
    cells = dataclasses.replace(cells, column=column, missing=missing)
    zone = zone_of(column, cells.table_format.time_zone)
    stamps, offsets = _timestamps(cells, zone, problems)
    if zone is not None:
        notes += (f"Hours and days of column {name!r} are those of clocks in {zone}.",)
    elif offsets - {"Z", "z", "+00:00"}:
        shown = ", ".join(sorted(offsets))
        notes += (f"Times of column {name!r} were given in {shown}, and are taken in UTC.",)
    return Times(_days_since(origin, stamps), stamps, clock_of(stamps, zone), notes)


def _timestamps(cells: Cells, zone: str | None, problems: Problems) -> tuple[np.ndarray, set[str]]:
    """Timestamps in UTC of dates or of dates as text, and the offsets from UTC they were given in.

    :param zone: the zone of times without an offset; None for UTC.
    """
    name, column, text, missing = cells.name, cells.column, cells.text, cells.missing
    dayfirst = cells.table_format.dayfirst
    offsets: set[str] = set()
    if not pd.api.types.is_datetime64_any_dtype(column):
        text_iso = iso_dates(text, dayfirst)
        offsets = offsets_of(text_iso, missing, name, problems)
        column, is_naive = text_iso.where(~missing), True
    else:
        is_naive = column.dt.tz is None
        if not is_naive and str(column.dt.tz) != "UTC":
            offsets = {str(column.dt.tz)}
    stamps = _stamps(column)
    if is_naive and not offsets and zone is not None:
        stamps = to_utc(stamps, zone, name, problems)
        missing = missing | np.isnat(stamps)
    bad = np.flatnonzero(np.isnat(stamps) & ~missing)
    problems.add_rows(
        f"Time {name!r} holds what is neither a number nor a date:",
        bad,
        advice_on_dates(text.iloc[bad], dayfirst),
        cells=text.iloc[bad].to_list(),
        num_shown=FEW_SHOWN if len(bad) > 0.5 * len(text) else NUM_SHOWN,
    )
    return stamps, offsets


def are_dates(values: Any) -> bool:
    """Whether a column or a level of an index holds dates, as such or as text in ISO 8601."""
    if pd.api.types.is_datetime64_any_dtype(values) or isinstance(values.dtype, pd.PeriodDtype):
        return True
    text = [cell for cell in values.dropna() if isinstance(cell, str) and cell.strip()]
    return bool(text) and all(re.fullmatch(PLAIN_DATE, cell.strip()) for cell in text)


def _stamps(column: pd.Series) -> np.ndarray:
    """Dates, or text in ISO 8601, as datetime64 in UTC; NaT where a cell is no date.

    Units are nanoseconds for years from 1678 to 2261, which they reach, and coarser for others.
    """
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
    found = dates.dt.tz_localize(None).to_numpy()
    if pd.api.types.is_object_dtype(column) and dates.isna().any():
        text = [cell if isinstance(cell, str) else "NaT" for cell in column]
        if all(cell == "NaT" or re.fullmatch(PLAIN_DATE, cell) for cell in text):
            with contextlib.suppress(ValueError):  # years that nanoseconds do not reach
                found = np.array(text, dtype="datetime64[us]")
    years = found[~np.isnat(found)].astype("datetime64[Y]").astype(int) + 1970
    if len(years) == 0 or 1677 < years.min() and years.max() < 2262:
        return found.astype("datetime64[ns]")
    return found


def _days_since(origin: np.datetime64 | None, stamps: np.ndarray) -> np.ndarray:
    """Days from the origin, or from the first timestamp; whole days are subtracted without loss."""
    known = stamps[~np.isnat(stamps)]
    if origin is None:
        origin = known.min() if len(known) else np.datetime64("NaT", "D")
    (day, part), (first, rest) = (_whole_days(value) for value in (stamps, np.asarray(origin)))
    return (day - first) / np.timedelta64(1, "D") + (part - rest)


def _whole_days(stamps: Any) -> tuple[Any, Any]:
    """The day of each timestamp, and the elapsed share of that day."""
    day = stamps.astype("datetime64[D]")
    return day, (stamps - day) / np.timedelta64(1, "D")
