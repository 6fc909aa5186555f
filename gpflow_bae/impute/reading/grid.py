"""Rows for the times at which a series has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import Cells, names_of
from .problems import LINE, Problems
from .table_format import TableFormat
from .times.read import read_times
from .times.zones import clock_of, zone_of

__all__ = ["insert_rows"]

_MOST = 10  # rows that may be inserted for each row that is there
_OFF = 1e-6  # share of a step by which times may be off
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y")
_CLOCKS = ("", "T%H:%M:%S", " %H:%M:%S", "T%H:%M", " %H:%M", "T%H", " %H")


def insert_rows(
    table: pd.DataFrame,
    time: Any,
    task: Any = None,
    inputs: Sequence[Any] = (),
    table_format: TableFormat | None = None,
) -> pd.DataFrame:
    """Insert an empty row where a series has none at a time of its grid.

    The step of the grid is the most frequent distance of successive times within series. Between
    two rows a whole number of steps apart the rows between them are inserted. Steps of whole months
    are those of the calendar.

    :param time: column of numbers or dates, as of the Imputer.
    :param task: column that names the series.
    :param inputs: further inputs; an inserted row has the value that its whole series has.
    :param table_format: how text writes dates.
    :return: the rows in the order of their series and times; the table itself if none is missing.
    :raises TableError: for times that cannot be read, inputs that change within a series, dates
        whose notation is not known, and grids with more than ten times as many rows.
    """
    table_format = TableFormat() if table_format is None else table_format
    problems = Problems(table)
    for name in (time, *([] if task is None else [task]), *inputs):
        if name not in table.columns:
            problems.add(f"There is no column {name!r} to insert rows by")
    problems.raise_if_any()
    numbers, stamps, *_ = read_times(Cells.read(table[time], table_format), problems)
    problems.raise_if_any()
    dated = np.issubdtype(stamps.dtype, np.datetime64)
    # Months differ in length, and are counted.
    monthly = dated and len(stamps) > 1 and (stamps == stamps.astype("datetime64[M]")).all()
    places = stamps.astype("datetime64[M]").astype(float) if monthly else numbers
    names = np.full(len(table), "") if task is None else names_of(table[task]).to_numpy()
    order = np.lexsort([places, pd.factorize(names)[0]])
    steps = np.diff(places[order])
    within = names[order][1:] == names[order][:-1]
    positive = steps[within & (steps > 0.0)]
    if not len(positive):
        return table
    values, counts = np.unique(np.round(positive / positive.min(), 6), return_counts=True)
    step = values[np.argmax(counts)] * positive.min()
    number = np.round(steps / step)
    regular = within & (number > 1) & (np.abs(steps / step - number) < _OFF * number + 1e-4)
    extra = np.where(regular, number - 1, 0).astype(int)
    if extra.sum() == 0:
        return table
    if extra.sum() > _MOST * len(table):
        problems.add(
            f"A grid with steps of {step:g} would need {extra.sum()} more rows than the table's "
            f"{len(table)}",
            "Its gaps are too long for its steps: split the table, or leave the grid out.",
        )
    before = np.repeat(order[:-1], extra)
    offset = np.concatenate([np.arange(1, n + 1) for n in extra if n])
    if monthly:
        at = (places[before] + offset).astype(int).astype("datetime64[M]").astype("datetime64[ns]")
    elif dated:
        at = stamps[before] + np.round(8.64e7 * step * offset).astype("timedelta64[ms]")
    else:
        at = places[before] + step * offset
    times = _written(table[time], at, dated, table_format, problems, time)
    for name in inputs:
        changing = table.groupby(names)[name].nunique(dropna=False).gt(1)
        if changing.any():
            problems.add(
                f"Input {name!r} changes within series {changing.index[changing][0]!r}, so that "
                "inserted rows have no value of it",
                "Insert the rows with their inputs yourself.",
            )
    problems.raise_if_any()
    roomy = table.astype({name: _with_room(table[name].dtype) for name in table.columns})
    place = np.concatenate([np.arange(len(order)), np.repeat(np.arange(len(extra)), extra) + 0.5])
    arranged = np.argsort(place, kind="stable")
    # Labels that are none of the table's make empty rows.
    inserted = roomy.reset_index(drop=True).reindex(-1 - np.arange(len(before)))
    for name in (*([] if task is None else [task]), *inputs):
        inserted[name] = roomy[name].array[before]
    cells = pd.Series(list(times), inserted.index, dtype=object)
    inserted[time] = cells.astype(roomy[time].dtype)
    merged = pd.concat([roomy.iloc[order], inserted]).iloc[arranged]
    if table.index.name == LINE:
        lines = np.concatenate([table.index.to_numpy()[order], np.zeros(len(before), int)])
        return merged.set_axis(pd.Index(lines[arranged], name=LINE))
    return merged.reset_index(drop=True)


def _with_room(dtype: Any) -> Any:
    """The type of a column that may also have missing cells."""
    if getattr(dtype, "kind", "O") in "iub" and isinstance(dtype, np.dtype):
        return "boolean" if dtype.kind == "b" else dtype.name.replace("i", "I").replace("u", "U")
    return dtype


def _written(
    column: pd.Series,
    at: np.ndarray,
    dated: bool,
    table_format: TableFormat,
    problems: Problems,
    name: Any,
) -> Any:
    """Times as the column writes them."""
    text = column.dropna().astype(str).str.strip()
    if pd.api.types.is_datetime64_any_dtype(column):
        zone = column.dt.tz
        index = pd.DatetimeIndex(at)
        return index if zone is None else index.tz_localize("UTC").tz_convert(zone)
    if not dated:
        if pd.api.types.is_integer_dtype(column):
            return np.round(at).astype(np.int64)
        if pd.api.types.is_numeric_dtype(column):
            return at
        return [f"{value:.12g}".replace(".", table_format.decimal) for value in at]
    clock = pd.DatetimeIndex(clock_of(at, zone_of(column, table_format.time_zone)))
    for pattern in (f"{date}{rest}" for date in _DATES for rest in _CLOCKS):
        found = pd.to_datetime(text, format=pattern, errors="coerce")
        if found.notna().all() and (found.dt.strftime(pattern) == text).all():
            return clock.strftime(pattern)
    problems.add(
        f"Time {name!r} is written as {text.iloc[0]!r}, in which inserted times cannot be written",
        "Write all times as 2024-01-31 or 2024-01-31T12:00.",
    )
    return clock.strftime("%Y-%m-%d")
