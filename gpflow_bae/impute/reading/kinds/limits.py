"""Limits of columns that many observed values are at, and values that can hardly be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..problems import setting

__all__ = ["doubtful_values", "fill_values", "limits_of", "notes_on"]

_LEAST_VALUES = 20  # with fewer, the shape of a distribution is not known
_MANY = 0.1  # share of the values that makes an end of the range a limit
_FAR = 5.0  # ranges of all other values by which an impossible one is away from them
_WRITTEN = np.array(
    [-9, -99, -999, -9999, -99999, -99.9, -999.9, -9999.9, -999.99, -9999.99, -32768, -2147483648]
    + [99, 999, 9999, 99999, 999999, 99.9, 999.9, 9999.9, 999.99, 9999.99, 32767, 65535, 2147483647]
    + [1e20, -1e20, 1e30, -1e30, 9.969209968386869e36, -1e34, 1e36, -7777, -8888, -777, -888]
)
# Values that devices and archives write for missing ones, and what float32 makes of them.
_FILL_VALUES = np.concatenate([_WRITTEN, _WRITTEN.astype(np.float32)])
_PER_CENT = re.compile(r"%|per ?cent|prozent|\bpct", re.IGNORECASE)
_FEW = 0.05  # share of the values of a percentage beyond 0 and 100 that may be mistakes


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """The ends of the range that at least a tenth of the observed values are at; else infinite.

    Beyond such an end nothing is recorded: a visibility of 10 is one of at least 10, rain of 0 is
    none. Filled values stay inside.
    """
    if len(values) < _LEAST_VALUES or len(np.unique(values)) < 3:
        return -np.inf, np.inf
    low, high = float(values.min()), float(values.max())
    return (
        low if np.mean(values == low) >= _MANY else -np.inf,
        high if np.mean(values == high) >= _MANY else np.inf,
    )


def fill_values(values: np.ndarray) -> list[float]:
    """Values that may stand for missing ones, as -999, 9999 or 1e20 do.

    They lie further from all other values than those do from one another.
    """
    unlikely = np.isin(values, _FILL_VALUES)
    others = values[np.isfinite(values) & ~unlikely]
    if len(others) == 0:
        return []
    reach = np.ptp(others)
    return [float(v) for v in np.unique(values[unlikely]) if np.abs(others - v).min() > reach]


def _impossible(values: np.ndarray) -> list[tuple[float, float, float]]:
    """A single value that is far from all others, and their range: at either end."""
    ordered = np.sort(values)
    if len(values) < _LEAST_VALUES or len(np.unique(values)) < 3:
        return []
    return [
        (float(value), float(others[0]), float(others[-1]))
        for value, nearest, others in (
            (ordered[-1], ordered[-2], ordered[:-1]),
            (ordered[0], ordered[1], ordered[1:]),
        )
        # Values that stand for missing ones have a note of their own.
        if value not in _FILL_VALUES and abs(value - nearest) > _FAR * np.ptp(others)
    ]


def doubtful_values(values: np.ndarray) -> list[float]:
    """Values of a column, NaN where missing, that can hardly be right: far from all others."""
    known = values[np.isfinite(values)]
    return [*fill_values(known), *(value for value, _, _ in _impossible(known))]


def notes_on(
    name: Any, column: np.ndarray, said: bool, place: Callable[[int], str]
) -> tuple[str, ...]:
    """Notes on a column that is often at an end of its range, and on one impossible value.

    :param column: its cells [rows]; NaN where missing.
    :param said: whether the user has named the kind of the column, which needs no hint then.
    :param place: a function of a row's number that names its place.
    """
    values = column[np.isfinite(column)]
    if len(values) < _LEAST_VALUES or len(np.unique(values)) < 3:
        return ()
    where = lambda value: place(int(np.flatnonzero(column == value)[0]))  # noqa: E731
    notes = []
    for end, word in zip(limits_of(values), ("least", "greatest"), strict=True):
        if np.isfinite(end) and not said:
            notes.append(
                f"Column {name!r} is {end:g}, its {word} value, in {np.mean(values == end):.0%} of "
                "its observed cells: filled values and intervals go no further, and are means "
                "of what is at that end and what is not."
            )
    bounded = setting(f"--bounded={name}:0:100", f"kinds={{{name!r}: (0, 100)}}")
    if not said and values.min() >= 0.0 and values.max() == 100.0 and values.min() < 90.0:
        notes.append(
            f"Column {name!r} ends at 100. If it is a percentage, {bounded} keeps filled values "
            "between 0 and 100."
        )
    far = _impossible(values)
    for value, low, high in far:
        notes.append(
            f"Column {name!r} holds {value:g} in {where(value)}, and all its other values are "
            f"between {low:g} and {high:g}. If it cannot be right, correct or empty the cell: the "
            "fit takes it as observed."
        )
    named = {value for value, _, _ in far} | set(fill_values(values))
    beyond = values[(values < 0.0) | (values > 100.0)]
    beyond = beyond[~np.isin(beyond, list(named))]
    if not said and _PER_CENT.search(str(name)) and 0 < len(beyond) <= _FEW * len(values):
        first = beyond[0]
        others = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        notes.append(
            f"Column {name!r} is a percentage by its name, and holds {first:g} in {where(first)}"
            f"{others}. If that cannot be right, correct or empty the cells, and "
            f"{bounded} keeps filled values between 0 and 100."
        )
    return tuple(notes)
