"""A pandas DataFrame as tasks, inputs and outputs, and the DataFrame with its holes filled.

This is the one module of the package that imports pandas; it is imported where a DataFrame or a
file is given.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..data import MultiOutputTable, pad_tasks
from .columns import output_kinds
from .user_table import FittedColumns, UserTable, input_scaling

__all__ = ["read_file", "read_frame", "write_file"]


def read_frame(
    raw: pd.DataFrame,
    outputs: Sequence[str],
    time: str | None = None,
    inputs: Sequence[str] = (),
    task: str | None = None,
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
) -> UserTable:
    """What a model sees of a DataFrame.

    :param raw: numbers, or text that says numbers; a cell that is empty or NaN is missing.
    :param outputs: columns to fill.
    :param time: column of numbers or dates (ISO 8601); the first input. Dates count in days from
        the first one of this table.
    :param inputs: further numeric inputs, such as coordinates.
    :param task: column that says to which independent series a row belongs; one series if None.
    :param kinds: of outputs, by name, see :func:`gpflow_bae.impute.columns.output_kinds`.
    :param fitted: what an earlier fit knows of the columns.
    :raises ValueError: for a column that is not there, text in a numeric column, infinities,
        missing inputs, two rows of a task with the same inputs, or no inputs at all.
    """
    named = [c for c in [task, time, *inputs, *outputs] if c is not None]
    _check_columns(raw, named)
    if not outputs:
        raise ValueError("outputs is empty: name the columns to fill.")
    if time is None and not inputs:
        raise ValueError("Name a column as time or inputs: what tells the rows apart?")

    Y = np.column_stack([_numbers(raw[c], c, missing_allowed=True) for c in outputs])
    columns = [_numbers(raw[c], c, missing_allowed=False) for c in inputs]
    days, times = (columns[0], columns[0]) if time is None else _times(raw[time], time)
    X = np.column_stack(columns if time is None else [days, *columns])
    names = pd.Series([""] * len(raw)) if task is None else raw[task].astype(str)
    _check_duplicates(X, names, time, inputs)

    found = output_kinds(outputs, Y, kinds, fitted)
    kept = [list(outputs).index(kind.name) for kind in found.kinds]
    centre, scale = input_scaling(X) if fitted is None else (fitted.centre, fitted.scale)
    groups = [(name, np.flatnonzero(names == name)) for name in names.unique()]
    stacked, lengths = pad_tasks([((X - centre) / scale)[i] for _, i in groups], is_input=True)
    outputs_of, _ = pad_tasks([Y[i][:, kept] for _, i in groups], is_input=False)
    rows = np.full(outputs_of.shape[:2], -1)
    for padded, (_, index) in zip(rows, groups, strict=True):
        padded[: len(index)] = index
    table = MultiOutputTable(
        stacked,
        outputs_of,
        output_names=tuple(kind.name for kind in found.kinds),
        input_names=(*([] if time is None else [time]), *inputs),
        lengths=lengths,
    )
    return UserTable(
        raw,
        table,
        rows,
        tuple(n for n, _ in groups),
        times,
        centre,
        scale,
        tuple(outputs),
        np.isnan(Y),
        *found,
    )


def read_file(path: str | pathlib.Path, separator: str = ",") -> pd.DataFrame:
    """A Parquet file (``.parquet``, ``.pq``), or a CSV file with every cell as its text."""
    path = pathlib.Path(path)
    if path.suffix in (".parquet", ".pq"):
        return pd.read_parquet(path)
    return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)


def write_file(frame: pd.DataFrame, path: str | pathlib.Path) -> None:
    """A Parquet or a CSV file, by its ending."""
    path = pathlib.Path(path)
    if path.suffix in (".parquet", ".pq"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


def _check_columns(raw: pd.DataFrame, named: Sequence[str]) -> None:
    absent = [c for c in named if c not in raw.columns]
    if absent:
        found = list(raw.columns)
        hint = ""
        for other in (";", "\t", "|"):
            if len(found) == 1 and other in str(found[0]):
                hint = f" It looks as if columns were separated by {other!r}: pass --separator."
        raise ValueError(f"There is no column {absent} in the table; it has {found}.{hint}")
    for what, columns in (("named", named), ("in the table", raw.columns)):
        twice = sorted({c for c in named if list(columns).count(c) > 1})
        if twice:
            raise ValueError(f"Columns {twice} are {what} twice; each has one role.")
    if raw.empty:
        raise ValueError("The table has a header and no rows.")


def _numbers(column: pd.Series, name: str, missing_allowed: bool) -> np.ndarray:
    text = column.astype(str).str.strip()
    words = text.str.lower().isin(["", "nan", "na", "none", "null", "<na>"])
    missing = (column.isna() | words).to_numpy()
    values = pd.to_numeric(text.where(~missing, None), errors="coerce").to_numpy(dtype=float)
    bad = np.flatnonzero(np.isnan(values) & ~missing)
    if len(bad):
        raise ValueError(
            f"Column {name!r} holds {text.iloc[bad[0]]!r} in row {bad[0] + 1}, which is no number. "
            "Leave cells without a value empty."
        )
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(f"Column {name!r} is infinite in row {row + 1}; leave the cell empty.")
    if missing.any() and not missing_allowed:
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"Input {name!r} is missing in row {row + 1}; inputs must be complete: fill it in, or "
            "leave the row out."
        )
    return values


def _times(column: pd.Series, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are, or days since the first date; and the times as plots show them."""
    if not pd.api.types.is_datetime64_any_dtype(column):
        numeric = pd.to_numeric(column, errors="coerce")
        if numeric.notna().all():
            return numeric.to_numpy(dtype=float), numeric.to_numpy()
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601")
    if dates.isna().any():
        row = int(np.flatnonzero(dates.isna())[0])
        raise ValueError(
            f"Time {name!r} is {column.iloc[row]!r} in row {row + 1}; expected numbers throughout, "
            "or dates such as 2024-01-31 or 2024-01-31T12:00."
        )
    return ((dates - dates.min()) / pd.Timedelta(days=1)).to_numpy(dtype=float), dates.to_numpy()


def _check_duplicates(
    X: np.ndarray, names: pd.Series, time: str | None, inputs: Sequence[str]
) -> None:
    keys = pd.DataFrame(X)
    keys["task"] = names.to_numpy()
    again = keys.duplicated().to_numpy()
    if again.any():
        second = int(np.flatnonzero(again)[0])
        first = int(np.flatnonzero((keys == keys.iloc[second]).all(axis=1))[0])
        what = ", ".join(c for c in [time, *inputs] if c is not None)
        raise ValueError(
            f"Rows {first + 1} and {second + 1} have the same task and the same {what}: which of "
            "them is true? Merge them, or name the column that tells them apart."
        )
