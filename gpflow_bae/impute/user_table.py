"""A user's table as models see it: tasks, scaled inputs, outputs; and its holes filled."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..data import MultiOutputTable

__all__ = ["INTERVAL", "Imputed", "UserTable", "from_arrays", "input_scaling"]

INTERVAL = 1.6448536269514722  # half width of a 90 % normal interval, in standard deviations


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
    * table: tasks, scaled inputs, outputs.
    * rows [T, N]: the row of the DataFrame that each row of ``table`` is, -1 for padding.
    * tasks: names of the tasks, in their order.
    * times: of the rows of the DataFrame, or of T N rows of arrays, for plots.
    * centre, scale [D]: inputs of ``table`` are ``(X - centre) / scale``.
    """

    source: Any
    table: MultiOutputTable
    rows: np.ndarray
    tasks: tuple[str, ...]
    times: np.ndarray
    centre: np.ndarray
    scale: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows of all tasks, without padding."""
        return int(np.count_nonzero(self.table.rows))

    @property
    def num_holes(self) -> int:
        """Cells that are not observed, without padding."""
        return int(np.count_nonzero(~self.table.observed[self.table.rows]))

    @check_shapes("self.table.Y: [T, N, P]", "mean: [T, N, P]", "variance: [T, N, P]")
    def fill(self, mean: np.ndarray, variance: np.ndarray) -> Any:
        """The source with its holes filled: a DataFrame, or :class:`Imputed` of arrays.

        :param mean, variance: [T, N, P], in the units of the outputs.
        """
        if not isinstance(self.source, np.ndarray):
            return _fill_frame(self, mean, variance)
        observed = self.table.observed
        filled = np.where(observed, self.table.Y, mean)
        sd = np.where(observed, 0.0, np.sqrt(variance))
        bounds = (filled, sd, filled - INTERVAL * sd, filled + INTERVAL * sd)
        return Imputed(*(array.reshape(self.source.shape) for array in bounds))


def _fill_frame(user: UserTable, mean: np.ndarray, variance: np.ndarray) -> Any:
    """The DataFrame with its holes filled, and beside each output its uncertainty.

    ``<output>_sd``, ``<output>_lower`` and ``<output>_upper`` (90 % interval) are there for filled
    cells and missing elsewhere. Observed cells stay as they are, text as text.

    :param mean, variance: [T, N, P], in the units of the outputs.
    """
    filled = user.source.copy()
    real = user.rows >= 0
    index = user.rows[real]
    for p, name in enumerate(user.table.output_names):
        hole = ~user.table.observed[..., p][real]
        value, sd = mean[..., p][real], np.sqrt(variance[..., p][real])
        column = filled[name].to_numpy(dtype=object, copy=True)
        as_text = isinstance(column[0], str)
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
    return filled


def input_scaling(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [D] of inputs [N, D]; 1 where an input is constant."""
    spread = X.std(0)
    return X.mean(0), np.where(spread > 0, spread, 1.0)


def from_arrays(
    X: Any,
    Y: Any,
    output_names: tuple[str, ...] = (),
    scaling: tuple[np.ndarray, np.ndarray] | None = None,
) -> UserTable:
    """The table of arrays.

    :param X: inputs [N, D] or [T, N, D], complete; [N, D] serves all tasks.
    :param Y: outputs [N, P] or [T, N, P], NaN where missing.
    :param scaling: centre and scale of the inputs from an earlier fit; those of this table if None.
    :raises ValueError: for other shapes, inputs that are not finite, infinite outputs, or two rows
        of a task with the same inputs.
    """
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if X.ndim not in (2, 3) or Y.ndim not in (2, 3) or Y.ndim < X.ndim:
        raise ValueError(
            f"X has shape {X.shape} and Y {Y.shape}; expected X [N, D] and Y [N, P], or with an "
            "axis of tasks X [T, N, D] and Y [T, N, P]. A single column is [:, None]."
        )
    whole = Y[None] if Y.ndim == 2 else Y
    inputs = np.broadcast_to(X, (len(whole), *X.shape)) if X.ndim == 2 else X
    scaling = input_scaling(inputs.reshape(-1, inputs.shape[-1])) if scaling is None else scaling
    centre, scale = scaling
    table = MultiOutputTable((inputs - centre) / scale, whole, output_names=output_names)
    num_tasks, num_rows = whole.shape[:2]
    return UserTable(
        Y,
        table,
        np.arange(num_tasks * num_rows).reshape(num_tasks, num_rows),
        tuple(str(t) for t in range(num_tasks)),
        inputs[..., 0].ravel(),
        centre,
        scale,
    )
