"""A pandas DataFrame as tasks, inputs and outputs; all that is wrong with it in one message.

Like the other modules that import pandas, it is imported where a DataFrame or a file is given.
:func:`check_frame` needs no TensorFlow, so that a command can say what is wrong at once.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import cells
from .columns import BESIDE, FittedColumns, OutputKinds, beside_name, output_kinds, still_inputs
from .problems import Problems
from .table_files import LINE
from .table_format import TableFormat

if TYPE_CHECKING:
    from .user_table import UserTable

__all__ = ["CheckedFrame", "check_frame", "read_frame", "user_table"]


@dataclasses.dataclass(frozen=True, eq=False)
class CheckedFrame:
    """A DataFrame whose columns of a user's choice are all right.

    * raw: the DataFrame.
    * names: of the D inputs and the Q outputs.
    * X [N, D], Y [N, Q]: inputs, complete; outputs, NaN where missing.
    * times [N]: the first input as plots show it.
    * tasks [N]: name of each row's task.
    * found: kinds of the outputs, and notes on these.
    * notes: all that a user should know, in sentences.
    """

    raw: pd.DataFrame
    names: tuple[tuple[str, ...], tuple[str, ...]]
    X: np.ndarray
    Y: np.ndarray
    times: np.ndarray
    tasks: np.ndarray
    found: OutputKinds
    notes: tuple[str, ...]
    decimal: str = "."


def read_frame(
    raw: pd.DataFrame,
    outputs: Sequence[str],
    time: str | None = None,
    inputs: Sequence[str] = (),
    task: str | None = None,
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
    table_format: TableFormat | None = None,
) -> UserTable:
    """What a model sees of a DataFrame; arguments and errors as in :func:`check_frame`."""
    checked = check_frame(raw, outputs, time, inputs, task, kinds, fitted, table_format)
    return user_table(checked, fitted)


def check_frame(
    raw: pd.DataFrame,
    outputs: Sequence[str],
    time: str | None = None,
    inputs: Sequence[str] = (),
    task: str | None = None,
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
    table_format: TableFormat | None = None,
) -> CheckedFrame:
    """The columns of a DataFrame that a model needs, after all checks.

    :param raw: numbers, or text that says numbers; a cell that is empty or NaN is missing.
    :param outputs: columns to fill.
    :param time: column of numbers or dates (ISO 8601, or as ``table_format`` says); the first
        input. Dates count in days from the first one of the fit's table; with offsets from UTC they
        are taken in UTC. Time, inputs and task may be levels of the index, ``index`` if it has no
        name.
    :param inputs: further numeric inputs, such as coordinates.
    :param task: column that says to which independent series a row belongs; one series if None.
    :param kinds: of outputs, by name, see :func:`gpflow_bae.impute.reading.columns.output_kinds`.
    :param fitted: what an earlier fit knows of the columns.
    :param table_format: how text says numbers and dates.
    :raises TableError: for columns that are not there, text in a numeric column, infinities,
        missing inputs, rows of a task with the same inputs, outputs that are never observed, or no
        inputs at all: for all of them at once.
    """
    table_format = TableFormat() if table_format is None else table_format
    problems = Problems(_places(raw))
    named = [c for c in [task, time, *inputs, *outputs] if c is not None]
    if not outputs:
        holes = [c for c in raw.columns if cells.missing_cells(_first(raw, c), table_format).any()]
        problems.add(
            "outputs is empty: name the columns to fill",
            f"Columns with missing cells are {holes}." if holes else "No column has missing cells.",
        )
    if time is None and not inputs:
        problems.add("Name a column as time or inputs: what tells the rows apart?")
    source, raw = raw, cells.with_index(raw, named)
    usable = _check_columns(raw, named, problems)
    taken = _taken(raw, outputs)
    if taken:
        problems.add(
            f"Columns {taken} are in the table, and what is filled would be written over them",
            "Rename them to fill or keep them; leave them out if they come from a table that was "
            "filled before, whose filled cells count as observed.",
        )
    for name in [c for c in named if c in usable and c != task]:
        if pd.api.types.is_complex_dtype(raw[name].dtype):
            problems.add(
                f"Column {name!r} holds complex numbers",
                "Make columns of their real and imaginary parts.",
            )
            usable.remove(name)
    if raw.empty:
        problems.add("The table has a header and no rows")
        problems.raise_if_any()
    if len(raw) == 1 and fitted is None:
        problems.add("The table has one row: there is nothing to learn from")

    notes: list[str] = []
    X, times = {}, np.zeros(0)
    if time in usable:
        X[time], times, found_notes = cells.times(
            raw[time], time, table_format, problems, None if fitted is None else fitted.origin
        )
        notes += found_notes
    for name in inputs:
        if name in usable:
            X[name] = cells.numbers(raw[name], name, table_format, problems, missing_allowed=False)
    Y = {}
    for name in outputs:
        if name in usable:
            before = len(problems)
            read = cells.numbers(raw[name], name, table_format, problems, missing_allowed=True)
            if len(problems) == before:
                Y[name] = read
    names = np.full(len(raw), "")
    if task in usable:
        names = raw[task].astype(str).to_numpy()
        problems.add_rows(
            f"Task {task!r} is missing in",
            np.flatnonzero(cells.unnamed(raw[task], table_format)),
            "To which series do these rows belong?",
        )
    found = OutputKinds((), {}, ())
    if Y:
        if isinstance(kinds, Mapping):  # what is said of columns that could not be read is not lost
            kinds = {k: v for k, v in kinds.items() if k in Y or k not in outputs}
        found = output_kinds(tuple(Y), np.column_stack(list(Y.values())), kinds, fitted, problems)
        if fitted is None and found.kinds:
            _check_tasks(names, np.column_stack([Y[k.name] for k in found.kinds]), task, problems)
    seen = np.zeros((len(raw), 0))
    if len(X) == len(inputs) + (time is not None) and X:
        seen = np.column_stack(list(X.values()))
        if not problems.found:
            seen, of_inputs = still_inputs(tuple(X), seen, fitted)
            notes += of_inputs
        _check_duplicates(seen, names, list(X), task, problems)
    problems.raise_if_any()
    notes += _sentinel_notes({n: v for n, v in X.items() if len(times) == 0 or n != time} | Y, raw)
    return CheckedFrame(
        source,
        (tuple(X), tuple(Y)),
        seen,
        np.column_stack(list(Y.values())),
        times if time is not None else X[inputs[0]],
        names,
        found,
        (*notes, *found.notes),
        table_format.decimal,
    )


def user_table(checked: CheckedFrame, fitted: FittedColumns | None = None) -> UserTable:
    """Tasks, scaled inputs and outputs of a DataFrame that has been checked."""
    # Here, because TensorFlow comes with them.
    from ...data import MultiOutputTable, pad_tasks
    from .user_table import UserTable, input_scaling

    X, Y, found = checked.X, checked.Y, checked.found
    input_names, output_names = checked.names
    centre, scale = input_scaling(X) if fitted is None else (fitted.centre, fitted.scale)
    kept = [output_names.index(kind.name) for kind in found.kinds]
    groups = [(name, np.flatnonzero(checked.tasks == name)) for name in pd.unique(checked.tasks)]
    stacked, lengths = pad_tasks([((X - centre) / scale)[i] for _, i in groups], is_input=True)
    outputs_of, _ = pad_tasks([Y[i][:, kept] for _, i in groups], is_input=False)
    rows = np.full(outputs_of.shape[:2], -1)
    for padded, (_, index) in zip(rows, groups, strict=True):
        padded[: len(index)] = index
    table = MultiOutputTable(
        stacked,
        outputs_of,
        output_names=tuple(kind.name for kind in found.kinds),
        input_names=input_names,
        lengths=lengths,
    )
    return UserTable(
        checked.raw,
        table,
        rows,
        tuple(name for name, _ in groups),
        checked.times,
        centre,
        scale,
        output_names,
        np.isnan(Y),
        found.kinds,
        found.constants,
        checked.notes,
        checked.decimal,
        found.doubtful,
    )


def _places(raw: pd.DataFrame) -> Any:
    """How the row of a number is called: the line of its file, or its place in the DataFrame."""
    if raw.index.name == LINE:
        return lambda row: f"line {raw.index[row]}"
    return lambda row: f"row {row + 1}"


def _taken(raw: pd.DataFrame, outputs: Sequence[Any]) -> list[Any]:
    """Columns of the table that have the names of what comes beside filled outputs."""
    found = set(raw.columns)
    beside = [beside_name(name, suffix) for name in outputs for suffix in BESIDE]
    return [name for name in beside if name in found]


def _first(raw: pd.DataFrame, name: Any) -> pd.Series:
    """A column; the first of its name, where there are several."""
    column = raw[name]
    return column.iloc[:, 0] if isinstance(column, pd.DataFrame) else column


def _check_columns(raw: pd.DataFrame, named: Sequence[str], problems: Problems) -> set[str]:
    """The columns that are there, and there once."""
    found = list(raw.columns)
    there = collections.Counter(found)
    absent = [c for c in dict.fromkeys(named) if c not in there]
    if absent:
        hints = []
        for name in absent:
            near = difflib.get_close_matches(str(name), map(str, found), 1, 0.7)
            if near:
                hints.append(f"Did you mean {near[0]!r} for {name!r}?")
        problems.add(f"There is no column {absent} in the table; it has {found}", " ".join(hints))
    twice: set[str] = set()
    for what, count in (("named", collections.Counter(named)), ("in the table", there)):
        again = sorted({c for c in named if count[c] > 1}, key=str)
        twice |= set(again)
        if again:
            problems.add(f"Columns {again} are {what} twice; each has one role")
    return set(named) - set(absent) - twice


def _check_tasks(names: np.ndarray, Y: np.ndarray, task: str | None, problems: Problems) -> None:
    """A series without any observation says nothing that could be fitted."""
    seen = pd.Series((~np.isnan(Y)).any(axis=1)).groupby(names, sort=False).any()
    empty = list(seen.index[~seen])
    if empty and task is not None:
        shown = ", ".join(map(repr, empty[:6])) + (" and others" if len(empty) > 6 else "")
        problems.add(
            f"{len(empty)} series of {task!r} have no observed output that varies: {shown}",
            "Leave their rows out of the fit; --posterior fills them afterwards.",
        )


def _check_duplicates(
    X: np.ndarray, names: np.ndarray, inputs: list[str], task: str | None, problems: Problems
) -> None:
    keys = pd.DataFrame(X)
    keys["task"] = names
    complete = ~keys.isna().any(axis=1)
    again = np.flatnonzero(keys.duplicated() & complete)
    if len(again) == 0:
        return
    groups = keys.groupby(list(keys.columns), sort=False).indices.values()
    repeated = [rows for rows in groups if len(rows) > 1]
    shown = [" and ".join(problems.place(row) for row in rows[:3]) for rows in repeated[:6]]
    more = f"; and {len(repeated) - len(shown)} more such groups" if len(repeated) > 6 else ""
    same = (
        f"the same {', '.join(inputs)}"
        if task is None
        else f"the same task and the same {', '.join(inputs)}"
    )
    problems.add(
        f"{len(again) + len(repeated)} rows have {same} as another: {'; '.join(shown)}{more}",
        "Which of them is true? Merge them (average what both observed), or name the column that "
        "tells them apart as one of --inputs, or as --task.",
    )


def _sentinel_notes(columns: Mapping[str, np.ndarray], raw: pd.DataFrame) -> list[str]:
    place = _places(raw)
    notes = []
    for name, values in columns.items():
        for value, count in cells.sentinels(values).items():
            first = place(int(np.flatnonzero(values == value)[0]))
            often = f"in {first}" if count == 1 else f"{count} times, first in {first}"
            notes.append(
                f"Column {name!r} holds {value:g} {often}, far from all its other values. If that "
                f"stands for a missing value, pass --missing_values={value:g}."
            )
    return notes
