"""A user's table: read it as tasks, inputs and outputs, and put the filled cells back."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpflow_bae.data import MultiOutputTable, pad_tasks

__all__ = ["UserTable", "read_table", "write_table"]

INTERVAL = 1.6448536269514722  # half width of a 90 % normal interval, in standard deviations


@dataclasses.dataclass(frozen=True)
class UserTable:
    """A table as it was read, and as a model sees it.

    raw: every cell as it stands in the file; nothing but the holes is ever changed.
    table: tasks, scaled inputs, outputs.
    rows [T, N]: the row of ``raw`` that each row of ``table`` is, -1 for padding.
    tasks: names of the tasks, in their order.
    times: of the rows of ``raw``, for plots; row numbers where no time was named.
    """

    raw: pd.DataFrame
    table: MultiOutputTable
    rows: np.ndarray
    tasks: tuple[str, ...]
    times: pd.Series
    input_centre: np.ndarray
    input_scale: np.ndarray


def read_table(
    path: str | pathlib.Path,
    outputs: Sequence[str],
    time: str | None = None,
    inputs: Sequence[str] = (),
    task: str | None = None,
    separator: str = ",",
    scaling: tuple[np.ndarray, np.ndarray] | None = None,
) -> UserTable:
    """Read a CSV or Parquet file.

    :param outputs: columns to fill.
    :param time: column of numbers or dates (ISO 8601); the first input.
    :param inputs: further numeric inputs, such as coordinates.
    :param task: column that says to which independent series a row belongs; one series if None.
    :param scaling: centre and scale of the inputs from an earlier fit; those of this table if None.
    :raises ValueError: for a column that is not there, text in a numeric column, infinities,
        missing inputs, two rows of a task with the same inputs, or no inputs at all.
    """
    path = pathlib.Path(path)
    if path.suffix in (".parquet", ".pq"):
        raw = pd.read_parquet(path)
    else:
        raw = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
    named = [c for c in [task, time, *inputs, *outputs] if c is not None]
    _check_columns(raw, named, separator)
    if not outputs:
        raise ValueError("outputs is empty: name the columns to fill, such as --outputs=a,b.")
    if time is None and not inputs:
        raise ValueError("A table needs --time or --inputs: what tells its rows apart?")

    Y = np.column_stack([_numbers(raw[c], c, missing_allowed=True) for c in outputs])
    columns = [] if time is None else [_times(raw[time], time)]
    columns += [_numbers(raw[c], c, missing_allowed=False) for c in inputs]
    X = np.column_stack(columns)
    names = pd.Series([""] * len(raw)) if task is None else raw[task].astype(str)
    _check_duplicates(X, names, time, inputs)

    if scaling is None:
        spread = X.std(0)
        scaling = X.mean(0), np.where(spread > 0, spread, 1.0)
    centre, scale = scaling
    groups = [(name, np.flatnonzero(names == name)) for name in names.unique()]
    stacked, lengths = pad_tasks([((X - centre) / scale)[i] for _, i in groups], is_input=True)
    outputs_of, _ = pad_tasks([Y[i] for _, i in groups], is_input=False)
    rows = np.full(outputs_of.shape[:2], -1)
    for padded, (_, index) in zip(rows, groups, strict=True):
        padded[: len(index)] = index
    table = MultiOutputTable(stacked, outputs_of, output_names=tuple(outputs), lengths=lengths)
    times = pd.Series(X[:, 0]) if time is None else _plot_times(raw[time])
    return UserTable(raw, table, rows, tuple(n for n, _ in groups), times, centre, scale)


def write_table(
    user: UserTable, mean: np.ndarray, variance: np.ndarray, path: str | pathlib.Path
) -> pd.DataFrame:
    """The table with its holes filled, and beside each output its uncertainty.

    ``<output>_sd``, ``<output>_lower`` and ``<output>_upper`` (90 % interval) are there for filled
    cells and empty elsewhere. Observed cells stay as they stand in the file.

    :param mean: [T, N, P], in the units of the outputs.
    :param variance: [T, N, P].
    """
    filled = user.raw.copy()
    text = [isinstance(v, str) for v in filled.iloc[0]]
    real = user.rows >= 0
    index = user.rows[real]
    for p, name in enumerate(user.table.output_names):
        hole = np.isnan(user.table.Y[..., p][real])
        value, sd = mean[..., p][real], np.sqrt(variance[..., p][real])
        column = filled[name].to_numpy(dtype=object, copy=True)
        as_text = text[list(filled.columns).index(name)]
        for row, v in zip(index[hole], value[hole], strict=True):
            column[row] = f"{v:.10g}" if as_text else v
        filled[name] = column if as_text else column.astype(float)
        for suffix, bound in (
            ("sd", sd),
            ("lower", value - INTERVAL * sd),
            ("upper", value + INTERVAL * sd),
        ):
            beside = np.full(len(filled), np.nan)
            beside[index[hole]] = bound[hole]
            filled[f"{name}_{suffix}"] = beside
    path = pathlib.Path(path)
    if path.suffix in (".parquet", ".pq"):
        filled.to_parquet(path, index=False)
    else:
        filled.to_csv(path, index=False)
    return filled


def _check_columns(raw: pd.DataFrame, named: Sequence[str], separator: str) -> None:
    absent = [c for c in named if c not in raw.columns]
    if not absent:
        if len(set(named)) < len(named):
            twice = sorted({c for c in named if list(named).count(c) > 1})
            raise ValueError(f"Columns {twice} are named twice; each has one role.")
        if raw.empty:
            raise ValueError("The table has a header and no rows.")
        return
    found = list(raw.columns)
    hint = ""
    for other in (";", "\t", "|"):
        if len(found) == 1 and other in found[0] and other != separator:
            hint = f" It looks as if columns were separated by {other!r}: pass --separator."
    raise ValueError(f"There is no column {absent} in the table; it has {found}.{hint}")


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


def _times(column: pd.Series, name: str) -> np.ndarray:
    """Numbers as they are; dates as days since the first."""
    numeric = _as_numbers(column)
    if numeric is not None:
        return numeric.to_numpy(dtype=float)
    dates = pd.to_datetime(column, errors="coerce", format="ISO8601")
    if dates.isna().any():
        row = int(np.flatnonzero(dates.isna())[0])
        raise ValueError(
            f"Time {name!r} is {column.iloc[row]!r} in row {row + 1}; expected numbers throughout, "
            "or dates such as 2024-01-31 or 2024-01-31T12:00."
        )
    return ((dates - dates.min()) / pd.Timedelta(days=1)).to_numpy(dtype=float)


def _plot_times(column: pd.Series) -> pd.Series:
    numeric = _as_numbers(column)
    return pd.to_datetime(column, format="ISO8601") if numeric is None else numeric


def _as_numbers(column: pd.Series) -> pd.Series | None:
    """A column of times as numbers; None where it holds anything else, such as dates."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return None
    numeric = pd.to_numeric(column, errors="coerce")
    return numeric if numeric.notna().all() else None


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
