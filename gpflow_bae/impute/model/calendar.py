"""Periodic features of dates: hours of the day, weekdays and seasons."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes

__all__ = ["PERIODS", "calendar_features", "visible_periods"]

#: Days of each period, by name, and the harmonics that describe it.
PERIODS = {"hour": (1.0, 3), "weekday": (7.0, 3), "season": (365.2425, 2)}

_MONDAY = np.datetime64("1970-01-05", "s")
_PERIODS_NEEDED, _SAMPLES_NEEDED = 2.0, 4.0


def visible_periods(times: np.ndarray | None, interval: float) -> tuple[str, ...]:
    """Names of the periods of which a table spans at least two, with four rows in each.

    :param times: datetime64 of the rows, of any shape; None where the time is no date.
    :param interval: between rows, in days.
    """
    if times is None or not np.isfinite(interval) or interval <= 0.0:
        return ()
    span = (times.max() - times.min()) / np.timedelta64(1, "D")
    return tuple(
        name
        for name, (days, _) in PERIODS.items()
        if span >= _PERIODS_NEEDED * days and interval <= days / _SAMPLES_NEEDED
    )


@check_shapes("times: [batch...]", "return: [batch..., F]")
def calendar_features(
    times: np.ndarray, periods: tuple[str, ...], harmonics: int | None = None
) -> np.ndarray:
    """Sines and cosines of the phases of the periods, the features of periodic kernels.

    :param times: datetime64, in UTC.
    :param harmonics: number for each period; those of :data:`PERIODS` if None.
    """
    days = (times.astype("datetime64[s]") - _MONDAY) / np.timedelta64(1, "D")
    columns = []
    for name in periods:
        length, usual = PERIODS[name]
        for k in range(1, (usual if harmonics is None else harmonics) + 1):
            phase = 2.0 * np.pi * k * days / length
            columns += [np.sin(phase), np.cos(phase)]
    return np.stack(columns, axis=-1) if columns else np.zeros((*times.shape, 0))
