"""Read a pandas DataFrame into a table of columns by role, and report all errors together.

Like the other modules that import pandas, it is imported where a DataFrame or a file is given. It
needs no TensorFlow, so that a command can report errors at once.
"""

from __future__ import annotations

import collections
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from . import cells
from .categories import are_categories, read_categories
from .cells import Cells
from .columns import FittedColumns, in_order, output_kinds, scale_inputs
from .filling import beside_names
from .indicators import Indicator
from .kinds.monotone import with_directions
from .problems import Problems, setting
from .table_format import TableFormat
from .times.read import are_dates, read_times
from .user_table import UserTable

__all__ = ["read_frame"]

_MOST_BESIDE = 60  # columns that a note advises to put side by side
_SAME_TIMES = 0.8  # share of the rows whose times most series have


def read_frame(
    raw: pd.DataFrame,
    outputs: Sequence[Any],
    time: Any = None,
    inputs: Sequence[Any] = (),
    task: Any = None,
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
    table_format: TableFormat | None = None,
) -> UserTable:
    """Read the columns of a DataFrame that a model needs, and check them together.

    :param raw: numbers, or numbers as text; a cell that is empty or NaN is missing.
    :param outputs: columns to fill.
    :param time: column of numbers or dates (ISO 8601, or as ``table_format`` says); the first
        input. Dates count in days from the first one of the fit's table; with offsets from UTC they
        are taken in UTC. Time, inputs and task may be levels of the index, ``index`` if it has no
        name.
    :param inputs: further inputs, such as coordinates. Without time and numeric inputs rows have no
        order. Words, and True and False, are seen beside the outputs, and may be missing.
    :param task: column that says to which independent series a row belongs; one series if None.
    :param kinds: of outputs, by name, see :func:`gpflow_bae.impute.reading.columns.output_kinds`.
    :param fitted: how the table of an earlier fit was read.
    :param table_format: the notation of numbers and dates as text.
    :raises TableError: for columns that are not there, text in a numeric column, infinities,
        missing inputs, rows of a task with the same inputs, outputs that are never observed, or a
        task without inputs: for all of them at once.
    """
    table_format = TableFormat() if table_format is None else table_format
    problems = Problems(raw)
    named = [c for c in [task, time, *inputs, *outputs] if c is not None]
    if not outputs:
        holes = cells.with_holes(raw, table_format)
        problems.add(
            "outputs is empty: name the columns to fill",
            f"Columns with missing cells are {holes}." if holes else "No column has missing cells.",
        )
    found = cells.with_index(raw, named)
    usable = _usable(found, named, outputs, task, problems)
    columns = {name: Cells.read(found[name], table_format, name) for name in usable}
    words = _categories(columns, {*inputs, *outputs}, kinds, fitted)
    _check_names_beside(found, outputs, words, problems)
    filled = dict.fromkeys([*outputs, *(name for name in inputs if name in words)])
    inputs = [c for c in inputs if c not in words]
    plain = time is None and not inputs
    if plain and task is not None:
        problems.add(
            f"Task {task!r} is named without time or inputs, and rows in no order are no series",
            "Name what orders the rows, or leave the task out.",
        )
    if raw.empty:
        problems.add("The table has a header and no rows")
        problems.raise_if_any()
    if len(raw) == 1 and fitted is None:
        problems.add("The table has one row: there is nothing to learn from")

    X: dict[Any, np.ndarray] = {}
    notes = _overlooked_times(raw) if plain and fitted is None else ()
    stamps, times, tasks = np.zeros(0), np.zeros(0), np.full(len(raw), "")
    if time in usable:
        X[time], stamps, times, notes = read_times(columns[time], problems, fitted)
    for name in (name for name in inputs if name in usable):
        X |= columns[name].read_numbers(problems, is_input=True)
    Y: dict[Any, np.ndarray] = {}
    unknown: dict[Any, np.ndarray] = {}
    for name in (name for name in filled if name in usable):
        if name in words:
            said = (kinds.get(name) if isinstance(kinds, Mapping) else kinds) == "category"
            of_column = columns[name], problems, name in outputs, words[name]
            own = read_categories(*of_column, said=said)
            Y |= own.columns
            unknown |= dict.fromkeys(own.columns, own.unknown)
            notes += own.notes
        else:
            Y |= columns[name].read_numbers(problems, is_input=False)
    if task in usable:
        tasks = columns[task].read_tasks(problems)

    if Y:
        if isinstance(kinds, Mapping):  # kinds of columns that could not be read are no error
            kinds = {k: v for k, v in kinds.items() if k in Y or k not in named}
        order = in_order(tasks, np.column_stack(list(X.values()))) if X else None
        of_outputs = output_kinds(
            tuple(Y), np.column_stack(list(Y.values())), kinds, fitted, problems, order
        )
        if fitted is None:
            _check_tasks(tasks, [Y[kind.name] for kind in of_outputs.kinds], task, problems)
    if len(X) == len(inputs) + (time is not None):
        seen = np.column_stack([np.zeros((len(raw), 0)), *X.values()])
        if time is None:
            stamps = times = seen[:, 0] if X else np.arange(float(len(raw)))
        if not problems.found:
            seen, as_read, of_inputs = scale_inputs(tuple(X), seen, stamps, of_outputs, fitted)
        if X:
            _check_duplicates(seen, tasks, list(X), task, problems)
        if fitted is None and time is not None and not inputs:
            notes += _beside_each_other(tasks, seen[:, 0], len(Y), task)
    problems.raise_if_any()
    cells_of = np.column_stack(list(Y.values()))
    if fitted is None:
        found_kinds = with_directions(as_read.kinds, tuple(Y), cells_of, tasks, seen, kinds)
        as_read = as_read._replace(kinds=found_kinds)
    numbers = {name: values for name, values in X.items() if name != time} | Y
    return UserTable(
        raw,
        tuple(X),
        tuple(Y),
        seen,
        cells_of,
        times,
        tasks,
        as_read,
        (*notes, *of_inputs, *cells.fill_value_notes(numbers, problems.place), *of_outputs.notes),
        table_format,
        unknown=np.column_stack([unknown.get(name, np.zeros(len(raw), bool)) for name in Y]),
    )


def _overlooked_times(raw: pd.DataFrame) -> tuple[str, ...]:
    """A note on a column or index of dates of a table whose rows are taken in no order."""
    levels = [raw.index.get_level_values(i) for i in range(raw.index.nlevels)]
    columns = [raw.iloc[:, i] for i in range(raw.shape[1])]
    for values in (*levels, *columns):
        if are_dates(values):
            name = "index" if values.name is None else values.name
            return (
                f"Rows are taken in no order, and {name!r} holds dates: if it is the time of a "
                "row, name it as time.",
            )
    return ()


def _beside_each_other(
    tasks: np.ndarray, times: np.ndarray, num_outputs: int, task: Any
) -> tuple[str, ...]:
    """A note on series with the same times, of which the model sees one at a time."""
    number = len(np.unique(tasks))
    if not 2 <= number <= _MOST_BESIDE / max(num_outputs, 1):
        return ()
    _, place, count = np.unique(times, return_inverse=True, return_counts=True)
    if np.mean(count[place] >= max(2.0, number / 2.0)) < _SAME_TIMES:
        return ()
    return (
        f"{number} series of {task!r} have the same times, and are filled independently of each "
        "other. If they go together, put them side by side: "
        f"{setting('--side_by_side', 'pandas.DataFrame.pivot')}.",
    )


def _usable(
    raw: pd.DataFrame, named: Sequence[Any], outputs: Sequence[Any], task: Any, problems: Problems
) -> set[Any]:
    """The named columns that are in the table, once, and can hold numbers; others are problems."""
    found = list(raw.columns)
    there = collections.Counter(found)
    absent = [c for c in dict.fromkeys(named) if c not in there]
    if absent:
        hints = []
        for name in absent:
            if str(name).strip() in [str(c).strip() for c in found]:
                hints.append(f"Remove the spaces around {str(name).strip()!r} in the header.")
                continue
            spelt = {str(c).casefold(): str(c) for c in reversed(found)}
            near = difflib.get_close_matches(str(name).casefold(), spelt, 1, 0.7)
            if near:
                hints.append(f"Did you mean {spelt[near[0]]!r} for {name!r}?")
        problems.add(f"There is no column {absent} in the table; it has {found}", " ".join(hints))
    usable = set(named) - set(absent)
    for what, count in (("named", collections.Counter(named)), ("in the table", there)):
        again = sorted({c for c in named if count[c] > 1}, key=str)
        usable -= set(again)
        if again:
            problems.add(f"Columns {again} are {what} twice; each has one role")
    for name in [c for c in named if c in usable and c != task]:
        if pd.api.types.is_complex_dtype(raw[name].dtype):
            problems.add(
                f"Column {name!r} holds complex numbers",
                "Make columns of their real and imaginary parts.",
            )
            usable.remove(name)
    return usable


def _categories(
    columns: Mapping[Any, Cells],
    names: set[Any],
    kinds: Mapping[str, Any] | str | None,
    fitted: FittedColumns | None,
) -> dict[Any, list[Indicator] | None]:
    """The columns of categories, with their columns of zeros and ones in an earlier fit.

    :param columns: columns of the table, of which only those of ``names`` are looked at.
    """
    names = names & set(columns)
    if fitted is not None:
        known = [*(kind.name for kind in fitted.kinds), *fitted.constants]
        of_fit: dict[Any, list[Indicator] | None] = {}
        for name in known:
            if isinstance(name, Indicator) and name.column in names:
                of_fit[name.column] = [*(of_fit.get(name.column) or []), name]
        return of_fit
    said = kinds if isinstance(kinds, Mapping) else dict.fromkeys(names, kinds)
    return {
        name: None
        for name in names
        if isinstance(said.get(name), str)
        and said[name] == "category"
        or (said.get(name) is None and are_categories(columns[name]))
    }


def _check_names_beside(
    raw: pd.DataFrame, outputs: Sequence[Any], words: Mapping[Any, Any], problems: Problems
) -> None:
    """Columns beside the outputs must not be in the table."""
    beside = (
        beside_names(output, ("probability",)) if output in words else beside_names(output)
        for output in outputs
    )
    taken = [name for names in beside for name in names if name in raw.columns]
    if taken:
        problems.add(
            f"Columns {taken} are in the table, and what is filled would be written over them",
            "Rename them to fill or keep them; leave them out if they come from a table that was "
            "filled before, whose filled cells count as observed.",
        )


def _check_tasks(
    tasks: np.ndarray, outputs: Sequence[np.ndarray], task: Any, problems: Problems
) -> None:
    """Every series needs an observation to be fitted to."""
    if task is None or not outputs:
        return
    seen = pd.Series(~np.isnan(outputs).all(axis=0)).groupby(tasks, sort=False).any()
    empty = list(seen.index[~seen])
    if empty:
        shown = ", ".join(map(repr, empty[:6])) + (" and others" if len(empty) > 6 else "")
        problems.add(
            f"{len(empty)} series of {task!r} have no observed output that varies: {shown}",
            "Leave their rows out of the fit, which can fill them afterwards.",
        )


def _check_duplicates(
    X: np.ndarray, tasks: np.ndarray, inputs: Sequence[Any], task: Any, problems: Problems
) -> None:
    """Rows of a task need different inputs."""
    keys = pd.DataFrame(X)
    keys["task"] = tasks
    complete = ~keys.isna().any(axis=1)
    again = np.flatnonzero(keys.duplicated() & complete)
    if len(again) == 0:
        return
    groups = keys.groupby(list(keys.columns), sort=False).indices.values()
    repeated = [rows for rows in groups if len(rows) > 1]
    shown = [" and ".join(problems.place(row) for row in rows[:3]) for rows in repeated[:6]]
    more = f"; and {len(repeated) - len(shown)} more such groups" if len(repeated) > 6 else ""
    same = f"the same {', '.join(map(str, inputs))}"
    same = same if task is None else f"the same task and {same}"
    problems.add(
        f"{len(again) + len(repeated)} rows have {same} as another: {'; '.join(shown)}{more}",
        "Which of them is true? Merge them (average what both observed), or name the column that "
        "tells them apart as one of the inputs, or as task.",
    )
