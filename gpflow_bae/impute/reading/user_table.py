"""A user's table: its columns by role, the arrays that models see, and its filled copy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.arguments import as_numbers
from .columns import FittedColumns, in_order, output_kinds, scale_inputs
from .indicators import Indicator, groups
from .kinds.monotone import between_neighbours, with_directions
from .table_format import TableFormat

if TYPE_CHECKING:
    from ...data import MultiOutputTable, Standardiser

__all__ = ["INTERVAL", "CellPredictions", "Imputed", "UserTable", "from_arrays"]

INTERVAL = 1.6448536269514722  # half width of a 90 % normal interval, in standard deviations


class CellPredictions(NamedTuple):
    """Predictions of all cells [T, N, P] in the units of the outputs, with observation noise."""

    mean: np.ndarray
    variance: np.ndarray
    lower: np.ndarray  # of a 90 % interval
    upper: np.ndarray


class Imputed(NamedTuple):
    """Filled outputs and their uncertainty, each of the shape of the given ``Y``.

    Where a cell was observed, ``sd`` is zero and the interval is the cell itself.
    """

    filled: np.ndarray
    sd: np.ndarray
    lower: np.ndarray  # of a 90 % interval
    upper: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class UserTable:
    """A table whose columns have been read and checked. Only ``table`` needs TensorFlow.

    Rows are those of the DataFrame, or the T N rows of arrays.

    * source: the DataFrame, or the array Y [N, P] or [T, N, P].
    * inputs, outputs: names of the D inputs and of all Q columns to fill, in the user's order.
      Without inputs rows have no order. A column of categories is one of zeros and ones for each,
      named by an :class:`~gpflow_bae.impute.reading.indicators.Indicator`.
    * X [rows, D]: inputs, complete; dates as days since ``columns.origin``.
    * Y [rows, Q]: outputs in their units, NaN where missing.
    * times [rows]: the first input for plots: numbers, or timestamps as the clocks of its time
      zone show them; numbers of the rows where there are no inputs.
    * row_tasks [rows]: the name of each row's task.
    * columns: kinds of the outputs and scaling of the inputs.
    * notes: notes for the user on how the table was read, in sentences.
    * table_format: how text writes numbers and missing cells.
    * native: the given table, where ``source`` is its copy in pandas.
    * unknown [rows, Q]: cells that hold what the fit does not know, which models see as missing
      ones, Booleans; None for none.
    """

    source: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    X: np.ndarray
    Y: np.ndarray
    times: np.ndarray
    row_tasks: np.ndarray
    columns: FittedColumns
    notes: tuple[str, ...] = ()
    table_format: TableFormat = TableFormat()
    native: Any = None
    unknown: np.ndarray | None = None

    @property
    def missing(self) -> np.ndarray:
        """Which cells are missing: Booleans [rows, Q]."""
        missing = np.isnan(self.Y)
        return missing if self.unknown is None else missing & ~self.unknown

    @property
    def has_dates(self) -> bool:
        """Whether the first input is a date; it then counts in days."""
        return np.issubdtype(self.times.dtype, np.datetime64)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the T tasks, sorted, so that nothing depends on the order of the table."""
        return self._tasks_and_rows[0]

    @property
    def rows(self) -> np.ndarray:
        """The row that each row of ``table`` is: [T, N], -1 for padding."""
        return self._tasks_and_rows[1]

    @functools.cached_property
    def _tasks_and_rows(self) -> tuple[tuple[str, ...], np.ndarray]:
        names, task = np.unique(self.row_tasks, return_inverse=True)
        order = np.arange(len(names))
        with contextlib.suppress(ValueError):
            order = np.argsort(names.astype(float), kind="stable")  # 2 is before 10
        task = np.argsort(order)[task]
        lengths = np.bincount(task)
        rows = np.full((len(lengths), lengths.max()), -1)
        rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.argsort(task, kind="stable")
        return tuple(names[order].tolist()), rows

    @property
    def _padded_rows(self) -> np.ndarray:
        """As ``rows``, but padding is the task's last row."""
        return np.where(self.rows >= 0, self.rows, self.rows.max(1, keepdims=True))

    @functools.cached_property
    def table(self) -> MultiOutputTable:
        """The table that models see: tasks, scaled inputs, and the outputs that vary."""
        from ...data import MultiOutputTable

        kinds = self.columns.kinds
        varying = [self.outputs.index(kind.name) for kind in kinds]
        X = (self.X - self.columns.centre) / self.columns.scale
        real = self.rows >= 0
        return MultiOutputTable(
            X[self._padded_rows],
            np.where(real[..., None], self.Y[:, varying][self.rows], np.nan),
            output_names=tuple(kind.name for kind in kinds),
            input_names=self.inputs,
            lengths=np.count_nonzero(real, axis=1),
        )

    @property
    def calendar(self) -> np.ndarray | None:
        """Timestamps by the clock (datetime64) of the rows [T, N], padding as the task's last row.

        None if the first input is no date.
        """
        return self.times[self._padded_rows] if self.has_dates else None

    @property
    def time_scale(self) -> float:
        """Length of a unit of the scaled first input: in days if it is a date."""
        return float(self.columns.scale[0])

    @functools.cached_property
    def interval(self) -> float:
        """Median distance of the first input's values within tasks, in days if it is a date.

        NaN without inputs.
        """
        if not self.inputs:
            return np.nan
        first = (self.X[rows[rows >= 0], 0] for rows in self.rows)
        steps = np.concatenate([np.diff(np.unique(values)) for values in first])
        return float(np.median(steps)) if len(steps) else np.nan

    def standardiser(self, table: MultiOutputTable | None = None) -> Standardiser:
        """Mean and standard deviation of the outputs, each transformed as its kind says.

        :param table: ``table`` with further cells hidden, whose observed cells are taken;
            ``table`` itself if None.
        :raises ValueError: as :meth:`gpflow_bae.data.Standardiser.fit`.
        """
        from ...data import Standardiser

        table = self.table if table is None else table
        transforms = [kind.transform for kind in self.columns.kinds]
        return Standardiser.fit(table.Y, table.output_names, transforms=transforms)

    @property
    def num_rows(self) -> int:
        """Number of rows of all tasks."""
        return len(self.X)

    @property
    def num_holes(self) -> int:
        """Number of missing cells of the columns to fill."""
        return int(np.count_nonzero(self.missing[:, self._firsts]))

    @property
    def num_cells(self) -> int:
        """Number of cells of the columns to fill."""
        return self.num_rows * len(self._firsts)

    @property
    def _firsts(self) -> list[int]:
        """One of the columns of each column to fill."""
        firsts = (columns[0] for columns in groups(self.outputs))
        return [p for p in firsts if getattr(self.outputs[p], "filled", True)]

    def fill(
        self,
        mean: np.ndarray,
        variance: np.ndarray,
        lower: np.ndarray | None = None,
        upper: np.ndarray | None = None,
    ) -> Any:
        """The source with its missing cells filled: a DataFrame, or :class:`Imputed` of arrays.

        Columns of a DataFrame keep their types, and observed cells stay as they are; in columns of
        whole numbers filled cells are rounded. A column of categories has the most probable one,
        and ``<output>_probability`` beside it. Beside each output come
        ``<output>_sd``, ``<output>_lower`` and ``<output>_upper``, missing but for the cells that
        were filled, and for those of a constant observed fewer than eight times. Values and
        intervals are what a column of its kind can have, see
        :meth:`gpflow_bae.impute.reading.kinds.column_kind.ColumnKind.settle`.

        :param mean, variance: of the cells [T, N, P], in the units of the outputs.
        :param lower, upper: ends of their 90 % interval; those of a Gaussian if None.
        :raises ValueError: for arrays of another shape.
        """
        if lower is None or upper is None:
            half = INTERVAL * np.sqrt(variance)
            lower, upper = mean - half, mean + half
        return self._filled(self._settled(mean, variance, lower, upper))

    def fill_with(self, values: np.ndarray) -> Any:
        """The source with its missing cells at given values, and no columns beside its own.

        :param values: of the cells [T, N, P], possible ones of their kinds.
        """
        settled = self._settled(values, values, values, values, as_they_are=True)
        filled = self._filled(settled, with_uncertainty=False)
        return filled.filled if isinstance(filled, Imputed) else filled

    def _filled(
        self, settled: Mapping[Any, tuple[np.ndarray, ...]], *, with_uncertainty: bool = True
    ) -> Any:
        """The source with its missing cells filled, in the library of the given table.

        :param settled: values, deviations and interval ends [rows] of all outputs, by name.
        :param with_uncertainty: whether a frame has columns beside its own.
        """
        if isinstance(self.source, np.ndarray):
            return _fill_arrays(self, settled)
        from .filling import fill_frame  # needs pandas, which exists where there is a frame

        holes = {self.outputs[p]: self.missing[:, p] for p in self._firsts}
        filled = fill_frame(self.source, holes, settled, self.table_format)
        if not with_uncertainty:
            filled = filled.iloc[:, : self.source.shape[1]]
        if self.native is None:
            return filled
        from .other_frames import back

        changed = [getattr(name, "column", name) for name, hole in holes.items() if hole.any()]
        return back(self.native, filled, changed)

    def probabilities(self, mean: np.ndarray, variance: np.ndarray) -> dict[Any, Any]:
        """Probabilities [rows, K] of the categories of each column to fill, as DataFrames.

        :param mean, variance: of the cells [T, N, P].
        """
        from .filling import probabilities_of

        settled = self._settled(mean, variance, mean, mean)
        firsts = [self.outputs[p] for p in self._firsts]
        columns = [name.column for name in firsts if isinstance(name, Indicator)]
        return {column: probabilities_of(column, settled, self.source.index) for column in columns}

    def _settled(
        self, *moments: np.ndarray, as_they_are: bool = False
    ) -> dict[Any, tuple[np.ndarray, ...]]:
        """Values, deviations and interval ends [rows] of all columns, by name.

        :param moments: means, variances and interval ends [T, N, P].
        :param as_they_are: whether they are what a column of its kind can have.
        """
        if any(moment.shape != self.table.Y.shape for moment in moments):
            shapes = [moment.shape for moment in moments]
            raise ValueError(f"Moments have the shapes {shapes}; expected {self.table.Y.shape}.")
        real = self.rows >= 0
        order = np.argsort(self.rows[real])
        settled: dict[Any, tuple[np.ndarray, ...]] = {}
        for p, kind in enumerate(self.columns.kinds):
            cells = tuple(moment[..., p][real][order] for moment in moments)
            found = cells if as_they_are else kind.settle(*cells)
            if kind.direction:
                middle, deviation, *ends = found
                column = self.Y[:, self.outputs.index(kind.name)]
                series = kind.direction, column, self.row_tasks, self.X
                middle, *ends = between_neighbours(*series, [middle, *ends])
                found = middle, deviation, *ends
            settled[kind.name] = found
        for name, value in self.columns.constants.items():
            same, unknown = np.full(self.num_rows, value), np.full(self.num_rows, np.nan)
            sure = name not in self.columns.doubtful
            settled[name] = (same, 0.0 * same, same, same) if sure else (same, *[unknown] * 3)
        return {name: settled[name] for name in self.outputs}


def _fill_arrays(user: UserTable, settled: Mapping[Any, tuple[np.ndarray, ...]]) -> Imputed:
    value, deviation, lower, upper = (
        np.stack([settled[name][i] for name in user.outputs], axis=-1).reshape(user.source.shape)
        for i in range(4)
    )
    given, hole = user.source, np.isnan(user.source)
    ends = (np.where(hole, end, given) for end in (lower, upper))
    return Imputed(np.where(hole, value, given), np.where(hole, deviation, 0.0), *ends)


def from_arrays(
    X: Any | None,
    Y: Any,
    output_names: tuple[str, ...] = (),
    kinds: Mapping[str, Any] | str | None = None,
    fitted: FittedColumns | None = None,
) -> UserTable:
    """The table of arrays.

    :param X: inputs [N, D] or [T, N, D], complete; [N, D] serves all tasks. None for rows without
        inputs, in no order; Y is then [N, P].
    :param Y: outputs [N, P] or [T, N, P], NaN where missing.
    :param kinds: of outputs, by name, see :func:`gpflow_bae.impute.reading.columns.output_kinds`.
    :param fitted: how the table of an earlier fit was read.
    :raises ValueError: for other shapes, text, or what :func:`output_kinds` refuses; ``table``
        refuses inputs that are not finite, infinite outputs, and two rows of a task with the same
        inputs.
    """
    from ...data.tables import column_names

    Y = as_numbers(Y, "Y")
    if X is None and (Y.ndim != 2 or 0 in Y.shape):
        raise ValueError(f"Rows have shape {Y.shape}; expected [N, P], with inputs X otherwise.")
    X = np.zeros((len(Y), 0)) if X is None else as_numbers(X, "X")
    wrong = X.ndim not in (2, 3) or Y.ndim not in (2, 3) or Y.ndim < X.ndim
    if wrong or 0 in Y.shape or X.shape[:-1] != Y.shape[-X.ndim : -1]:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape}; expected X [N, D] and Y [N, P], or with an "
            "axis of tasks X [T, N, D] and Y [T, N, P]. A single column is [:, None]."
        )
    whole = Y[None] if Y.ndim == 2 else Y
    num_tasks, num_rows, num_outputs = whole.shape
    inputs = np.broadcast_to(X, (num_tasks, *X.shape)) if X.ndim == 2 else X
    if fitted is not None:
        expected = len(fitted.centre), len(fitted.kinds) + len(fitted.constants)
        if (inputs.shape[-1], num_outputs) != expected:
            raise ValueError(
                f"The table has {inputs.shape[-1]} inputs and {num_outputs} outputs; the one "
                f"of fit had {expected[0]} and {expected[1]}."
            )
    names = column_names("outputs", output_names, "y", num_outputs)
    Y_rows = whole.reshape(-1, num_outputs)
    X_rows = inputs.reshape(len(Y_rows), inputs.shape[-1])
    input_names = tuple(f"x{d}" for d in range(X_rows.shape[1]))
    row_tasks = np.repeat([str(t) for t in range(num_tasks)], num_rows)
    order = in_order(np.repeat(np.arange(num_tasks), num_rows), X_rows) if input_names else None
    found = output_kinds(names, Y_rows, kinds, fitted, order=order)
    times = X_rows[:, 0] if input_names else np.arange(float(len(Y_rows)))
    seen, columns, notes = scale_inputs(input_names, X_rows, times, found, fitted)
    if fitted is None:
        kinds_now = with_directions(columns.kinds, names, Y_rows, row_tasks, seen, kinds)
        columns = columns._replace(kinds=kinds_now)
    return UserTable(
        Y,
        input_names,
        names,
        seen,
        Y_rows,
        times,
        row_tasks,
        columns,
        (*notes, *found.notes),
    )
