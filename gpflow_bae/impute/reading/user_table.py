"""A user's table as models see it: tasks, scaled inputs, outputs; and its holes filled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from check_shapes import check_shapes

from ...core.arguments import as_numbers, spread, varies
from ...data import MultiOutputTable, Standardiser
from ...data.tables import column_names
from .columns import (
    BESIDE,
    ColumnKind,
    FittedColumns,
    beside_name,
    output_kinds,
    still_inputs,
)

__all__ = [
    "INTERVAL",
    "CellPredictions",
    "Imputed",
    "UserTable",
    "from_arrays",
    "input_scaling",
]

INTERVAL = 1.6448536269514722  # half width of a 90 % normal interval, in standard deviations


class CellPredictions(NamedTuple):
    """Of all cells [T, N, P], observation noise included, in the units of the outputs."""

    mean: np.ndarray
    variance: np.ndarray
    lower: np.ndarray  # of a 90 % interval
    upper: np.ndarray


class Imputed(NamedTuple):
    """Outputs without holes and their uncertainty, each of the shape of the given ``Y``.

    Where a cell was observed, ``sd`` is zero and the interval is the cell itself.
    """

    filled: np.ndarray
    sd: np.ndarray
    lower: np.ndarray  # of a 90 % interval
    upper: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class UserTable:
    """A table as it came, and as a model sees it.

    * source: the DataFrame, or the array Y [N, P] or [T, N, P]; nothing but the holes is changed.
    * table: tasks, scaled inputs, outputs in their own units; columns that are constant are left
      out.
    * rows [T, N]: the row of the DataFrame that each row of ``table`` is, -1 for padding.
    * tasks: names of the tasks, in their order.
    * times: of the rows of the DataFrame, or of T N rows of arrays, for plots: numbers, or
      timestamps in UTC.
    * centre, scale [D]: inputs of ``table`` are ``(X - centre) / scale``.
    * outputs: names of all Q columns to fill, in the user's order.
    * missing: which of their cells are holes, for the rows of the DataFrame, or T N rows of arrays:
      Booleans [rows, Q].
    * kinds: of the P outputs of ``table``.
    * constants: values of the outputs that are left out of it, by name.
    * notes: what a user should know of how the table was read, in sentences.
    * decimal: the decimal mark of numbers that are text.
    * doubtful: names of the constants that were observed too rarely to be sure of them.
    """

    source: Any
    table: MultiOutputTable
    rows: np.ndarray
    tasks: tuple[str, ...]
    times: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    outputs: tuple[str, ...]
    missing: np.ndarray
    kinds: tuple[ColumnKind, ...]
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decimal: str = "."
    doubtful: frozenset[Any] = frozenset()

    @property
    def still(self) -> np.ndarray:
        """Which inputs have one value in all rows, but for rounding: Booleans [D]."""
        return ~varies(self.table.X[self.table.rows])

    @property
    def calendar(self) -> np.ndarray | None:
        """Timestamps in UTC (datetime64) of the rows [T, N], padding as the task's last row.

        None if the first input is no date. Else it counts in days, see ``time_scale``.
        """
        if not np.issubdtype(self.times.dtype, np.datetime64):
            return None
        last = np.take_along_axis(self.rows, self.table.lengths[:, None] - 1, axis=1)
        return self.times[np.where(self.rows >= 0, self.rows, last)]

    @property
    def origin(self) -> np.datetime64 | None:
        """The first date, from which days count in a fit to this table; None if there are none."""
        return self.times.min() if np.issubdtype(self.times.dtype, np.datetime64) else None

    @property
    def time_scale(self) -> float:
        """How long a unit of the scaled first input is: in days if it is a date."""
        return float(self.scale[0])

    @property
    def interval(self) -> float:
        """Median distance of the first input's values within tasks, in days if it is a date."""
        steps = [
            np.diff(np.unique(X[real, 0]))
            for X, real in zip(self.table.X, self.table.rows, strict=True)
        ]
        all_steps = np.concatenate(steps)
        return self.time_scale * float(np.median(all_steps)) if len(all_steps) else np.nan

    def standardiser(self, table: MultiOutputTable | None = None) -> Standardiser:
        """Of the outputs, each transformed as its kind says first.

        :param table: whose observed cells it is fitted to, such as this one with cells hidden;
            ``self.table`` if None.
        :raises ValueError: as :meth:`gpflow_bae.data.Standardiser.fit`.
        """
        table = self.table if table is None else table
        transforms = [kind.transform for kind in self.kinds]
        return Standardiser.fit(table.Y, table.output_names, transforms=transforms)

    @property
    def num_rows(self) -> int:
        """Rows of all tasks, without padding."""
        return int(np.count_nonzero(self.table.rows))

    @property
    def num_holes(self) -> int:
        """Cells that are not observed, without padding."""
        return int(np.count_nonzero(self.missing))

    @check_shapes(
        "self.table.Y: [T, N, P]",
        "mean: [T, N, P]",
        "variance: [T, N, P]",
        "lower: [T, N, P]",
        "upper: [T, N, P]",
    )
    def fill(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        lower: np.ndarray | None = None,
        upper: np.ndarray | None = None,
    ) -> Any:
        """The source with its holes filled: a DataFrame, or :class:`Imputed` of arrays.

        Columns of a DataFrame keep their types, and cells that were observed stay as they are; in
        columns of whole numbers or truth values filled cells are rounded. Beside each output come
        ``<output>_sd``, ``<output>_lower`` and ``<output>_upper``, missing but for the cells that
        were filled, and for those of a constant observed fewer than eight times. Values and
        intervals are what a column of its kind can have, see
        :meth:`gpflow_bae.impute.reading.columns.ColumnKind.settle`.

        :param mean, variance: of the cells, in the units of the outputs.
        :param lower, upper: ends of their 90 % interval; those of a Gaussian if None.
        """
        if lower is None or upper is None:
            half = INTERVAL * np.sqrt(variance)
            lower, upper = mean - half, mean + half
        settled = {}
        for p, kind in enumerate(self.kinds):
            cells = (array[..., p] for array in (mean, variance, lower, upper))
            settled[kind.name] = kind.settle(*cells)
        for name, value in self.constants.items():
            same = np.full(self.rows.shape, value)
            unknown = np.full(same.shape, np.nan)
            doubtful = unknown, unknown, unknown
            settled[name] = same, *(doubtful if name in self.doubtful else (0.0 * same, same, same))
        real = self.rows >= 0
        order = np.argsort(self.rows[real])
        ordered = {name: [a[real][order] for a in arrays] for name, arrays in settled.items()}
        fill = _fill_arrays if isinstance(self.source, np.ndarray) else _fill_frame
        return fill(self, ordered)


def _fill_arrays(user: UserTable, settled: dict[str, list[np.ndarray]]) -> Imputed:
    value, deviation, lower, upper = (
        np.stack([settled[name][i] for name in user.outputs], axis=-1).reshape(user.source.shape)
        for i in range(4)
    )
    given, hole = user.source, np.isnan(user.source)
    ends = (np.where(hole, end, given) for end in (lower, upper))
    return Imputed(np.where(hole, value, given), np.where(hole, deviation, 0.0), *ends)


def _fill_frame(user: UserTable, settled: dict[Any, list[np.ndarray]]) -> Any:
    # pandas is there, or there would be no frame.
    import pandas as pd

    source = user.source
    places = {name: i for i, name in enumerate(source.columns)}
    columns = [source.iloc[:, i] for i in range(source.shape[1])]
    names = list(source.columns)
    for q, name in enumerate(user.outputs):
        hole = user.missing[:, q]
        value, *beside = settled[name]
        if hole.any():
            place = places[name]
            columns[place] = _filled(columns[place], hole, value[hole], user.decimal)
        for suffix, array in zip(BESIDE, beside, strict=True):
            names.append(beside_name(name, suffix))
            columns.append(pd.Series(np.where(hole, array, np.nan), index=source.index))
    filled = pd.concat(columns, axis=1)
    filled.attrs = dict(source.attrs)
    if isinstance(source.columns, pd.MultiIndex):
        filled.columns = pd.MultiIndex.from_tuples(names, names=source.columns.names)
    else:
        filled.columns = pd.Index(names, name=source.columns.name, tupleize_cols=False)
    return filled


def _filled(column: Any, hole: np.ndarray, values: np.ndarray, decimal: str) -> Any:
    """A column of a frame with its holes filled; of the same type, and observed cells untouched."""
    if hasattr(column, "sparse"):  # which takes no assignments
        dense = _filled(column.sparse.to_dense(), hole, values, decimal)
        return dense.astype(column.dtype)
    kind = getattr(column.dtype, "kind", "O")
    if kind == "f":
        found: Any = values.astype(getattr(column.dtype, "numpy_dtype", column.dtype))
    elif kind in "iu":
        limits = np.iinfo(getattr(column.dtype, "numpy_dtype", column.dtype))
        whole = [min(max(round(v), limits.min), limits.max) for v in values.tolist()]
        found = np.array(whole, limits.dtype)
    elif kind == "b":
        found = values >= 0.5
    else:
        cells = column.to_numpy(dtype=object, copy=True)
        if any(isinstance(cell, str) for cell in cells):
            # The shortest text that is this number.
            text = [repr(v).removesuffix(".0").replace(".", decimal) for v in values.tolist()]
            cells[hole] = text
        else:
            cells[hole] = values
            numbers = cells.astype(float)
            cells = numbers if (numbers == cells).all() else cells
        return type(column)(cells, index=column.index, name=column.name)
    filled = column.copy()
    filled[hole] = found
    return filled


def input_scaling(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [D] of inputs [N, D]; 1 where an input is constant."""
    return np.where(varies(X), X.mean(0), X[0]), spread(X)


def from_arrays(
    X: Any,
    Y: Any,
    output_names: tuple[str, ...] = (),
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
) -> UserTable:
    """The table of arrays.

    :param X: inputs [N, D] or [T, N, D], complete; [N, D] serves all tasks.
    :param Y: outputs [N, P] or [T, N, P], NaN where missing.
    :param kinds: of outputs, by name, see :func:`gpflow_bae.impute.reading.columns.output_kinds`.
    :param fitted: what an earlier fit knows of the columns.
    :raises ValueError: for other shapes, inputs that are not finite, infinite outputs, two rows
        of a task with the same inputs, or what :func:`output_kinds` refuses.
    """
    X, Y = as_numbers(X, "X"), as_numbers(Y, "Y")
    wrong = X.ndim not in (2, 3) or Y.ndim not in (2, 3) or Y.ndim < X.ndim
    if wrong or 0 in X.shape + Y.shape:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape}; expected X [N, D] and Y [N, P], or with an "
            "axis of tasks X [T, N, D] and Y [T, N, P]. A single column is [:, None]."
        )
    whole = Y[None] if Y.ndim == 2 else Y
    inputs = np.broadcast_to(X, (len(whole), *X.shape)) if X.ndim == 2 else X
    if fitted is not None:
        expected = len(fitted.centre), len(fitted.kinds) + len(fitted.constants)
        if (inputs.shape[-1], whole.shape[-1]) != expected:
            raise ValueError(
                f"The table has {inputs.shape[-1]} inputs and {whole.shape[-1]} outputs; the one "
                f"of fit had {expected[0]} and {expected[1]}."
            )
    names = column_names("outputs", output_names, "y", whole.shape[-1])
    flat = whole.reshape(-1, len(names))
    found = output_kinds(names, flat, kinds, fitted)
    flat_inputs = inputs.reshape(-1, inputs.shape[-1])
    columns = [f"x{d}" for d in range(flat_inputs.shape[1])]
    seen, notes = still_inputs(columns, flat_inputs, fitted)
    centre, scale = input_scaling(seen) if fitted is None else (fitted.centre, fitted.scale)
    kept = [names.index(kind.name) for kind in found.kinds]
    table = MultiOutputTable(
        ((seen - centre) / scale).reshape(inputs.shape),
        whole[..., kept],
        output_names=tuple(kind.name for kind in found.kinds),
    )
    num_tasks, num_rows = whole.shape[:2]
    return UserTable(
        Y,
        table,
        np.arange(num_tasks * num_rows).reshape(num_tasks, num_rows),
        tuple(str(t) for t in range(num_tasks)),
        flat_inputs[:, 0],
        centre,
        scale,
        names,
        np.isnan(flat),
        found.kinds,
        found.constants,
        (*notes, *found.notes),
        doubtful=found.doubtful,
    )
