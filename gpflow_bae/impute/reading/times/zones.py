"""Local time with its changes: from a place's clock to UTC, and back."""

from __future__ import annotations

import zoneinfo
from typing import Any

import numpy as np
import pandas as pd

from ..problems import Problems

__all__ = ["clock_of", "to_utc", "zone_of"]


def zone_of(column: pd.Series, given: str | None) -> str | None:
    """The time zone of a column of dates with one, or the given one; None for UTC and offsets."""
    tz: Any = getattr(getattr(column, "dt", None), "tz", None)
    name = getattr(tz, "key", getattr(tz, "zone", None)) if tz is not None else given
    return None if name in (None, "UTC", "Etc/UTC") else str(name)


def clock_of(stamps: np.ndarray, zone: str | None) -> np.ndarray:
    """What clocks in a zone show at timestamps in UTC (datetime64)."""
    if zone is None:
        return stamps
    utc = pd.DatetimeIndex(stamps).tz_localize("UTC")
    return utc.tz_convert(zoneinfo.ZoneInfo(zone)).tz_localize(None).to_numpy()


def to_utc(clock: np.ndarray, zone: str, name: Any, problems: Problems) -> np.ndarray:
    """Timestamps in UTC of what clocks in a zone show (datetime64), NaT where missing.

    In autumn an hour comes twice: in the order of the rows it begins again where a time is not
    later than the one before it. Times that clocks skip in spring are problems.
    """
    shown = pd.DatetimeIndex(clock)
    place = zoneinfo.ZoneInfo(zone)
    first = shown.tz_localize(place, ambiguous=np.ones(len(shown), bool), nonexistent="NaT")
    problems.add_rows(
        f"Time {name!r} holds what clocks in {zone} skip, when they go forward, in",
        np.flatnonzero(first.isna() & shown.notna()),
        "Correct the cells; times that do not follow the clock need no time_zone.",
    )
    twice = shown.tz_localize(place, ambiguous="NaT", nonexistent="shift_forward").isna()
    twice &= shown.notna()
    summer = np.ones(len(shown), bool)
    values = shown.to_numpy()
    for row in np.flatnonzero(twice):
        if row and twice[row - 1]:
            summer[row] = summer[row - 1] and values[row] > values[row - 1]
    found = shown.tz_localize(place, ambiguous=summer, nonexistent="NaT")
    return found.tz_convert("UTC").tz_localize(None).to_numpy()
