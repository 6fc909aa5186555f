"""Series that share their times, side by side: a column for each output of each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import names_of
from .filling import beside_names
from .problems import Problems

__all__ = ["names_beside", "narrow", "widen"]

_ENDS = ("sd", "lower", "upper", "probability")


def names_beside(table: pd.DataFrame, outputs: Sequence[Any], task: Any) -> dict[Any, list[str]]:
    """Names of the columns that :func:`widen` makes of each output, in the order of the series."""
    series = names_of(table[task]).unique()
    return {output: [f"{output} ({name})" for name in series] for output in outputs}


def widen(
    table: pd.DataFrame,
    outputs: Sequence[Any],
    time: Any,
    task: Any,
    fitted: Sequence[str] | None = None,
) -> pd.DataFrame:
    """A row for each time, with a column for each output of each series.

    :param time, task: columns of the time of a row and of the series that it belongs to.
    :param fitted: columns that an earlier fit had, which are empty for series that are not there.
    :raises TableError: for columns that are not there, times that a series has twice, rows of no
        series, and series that an earlier fit did not have.
    """
    problems = Problems()
    absent = [c for c in (time, task, *outputs) if c not in table.columns]
    if absent or not outputs:
        problems.add(
            f"Series go side by side by their outputs, time and task; no column {absent} is there"
        )
        problems.raise_if_any()
    again = table.duplicated([time, task]).to_numpy()
    problems.add_rows(
        f"Series of {task!r} have the same {time!r} again in",
        np.flatnonzero(again),
        "Merge these rows (average what they observed).",
    )
    problems.add_rows(
        f"Task {task!r} is missing in",
        np.flatnonzero(table[task].isna()),
        "To which series do these rows belong?",
    )
    problems.raise_if_any()
    wide = table[[time]].drop_duplicates().reset_index(drop=True)
    names = names_beside(table, outputs, task)
    place = pd.Index(wide[time])
    columns: dict[Any, Any] = {time: wide[time]}
    for number, (_, rows) in enumerate(table.groupby(names_of(table[task]), sort=False)):
        for output in outputs:
            column = pd.Series(rows[output].array, index=place.get_indexer(rows[time]))
            columns[names[output][number]] = column.reindex(range(len(wide)))
    if fitted is not None:
        strange = [name for name in columns if name != time and name not in fitted]
        if strange:
            problems.add(
                f"The fit had {list(fitted)} side by side, and this table has {strange} as well",
                "Fit a table with all series.",
            )
            problems.raise_if_any()
        columns |= {name: np.full(len(wide), np.nan) for name in fitted if name not in columns}
    return pd.DataFrame(columns)


def narrow(
    filled: pd.DataFrame,
    table: pd.DataFrame,
    names: Mapping[Any, Sequence[str]],
    time: Any,
    task: Any,
) -> pd.DataFrame:
    """The rows of a table, with what was filled side by side and the columns beside it.

    :param filled: the filled table of :func:`widen`.
    :param names: as :func:`names_beside` had them.
    """
    row = pd.Index(filled[time]).get_indexer(table[time])
    series = pd.factorize(names_of(table[task]))[0]
    found = {name: table[name] for name in table.columns}
    for output, wide in names.items():
        for own, parts in [
            (output, list(wide)),
            *(
                (beside_names(output, (end,))[0], [beside_names(name, (end,))[0] for name in wide])
                for end in _ENDS
            ),
        ]:
            there = [part for part in parts if part in filled.columns]
            if there:
                cells = filled.reindex(columns=parts).to_numpy(dtype=object)[row, series]
                column = pd.Series(cells, index=table.index, dtype=object)
                found[own] = column if own == output else column.astype(float)
        if table[output].dtype != object:
            found[output] = found[output].infer_objects()
    return pd.DataFrame(found)
