"""Tasks of unequal lengths: lists of arrays are padded, and padding is NaN in predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..core.arguments import kind_of
from .tables import pad_tasks

__all__ = [
    "TaskRows",
    "as_pair",
    "check_same_lengths",
    "padded_inputs",
    "rows_at",
    "rows_of",
    "unequal_lengths",
]


class TaskRows(NamedTuple):
    """What data, or the arguments of a prediction, say about the tasks and rows of a result."""

    has_tasks: bool  # False if data were [N, P]; results then have no task axis either
    lengths: Sequence[int] | None = None  # [T], of tasks of unequal lengths; later rows are padding

    def of(
        self, values: Any, *rows: int, tasks: int | None = None, points: Any = None
    ) -> np.ndarray | tf.Tensor:
        """Return a result without an axis of tasks if there are none, and NaN in padding.

        :param values: an array or a tensor, with an axis of tasks.
        :param rows: axes of rows; by default the last but one.
        :param tasks: axis of tasks; by default the one before the rows.
        :param points: numbers of the rows of the result; by default all.
        """
        rows, rank = rows or (-2,), len(values.shape)
        tasks = (rows[0] - 1 if tasks is None else tasks) % rank
        if not self.has_tasks:
            return values[(slice(None),) * tasks + (0,)]
        if self.lengths is None:
            return values
        for axis in rows:
            numbers = np.arange(values.shape[axis]) if points is None else np.asarray(points)
            own = numbers < np.asarray(self.lengths)[:, None]
            shape = [1] * rank
            shape[tasks], shape[axis] = own.shape
            own = own.reshape(shape)
            where = tf.where if tf.is_tensor(values) else np.where
            values = where(own, values, np.array(np.nan, values.dtype.name))
        return values


def rows_of(Y: Any) -> TaskRows:
    """Return the tasks and rows of observations [N, P], [T, N, P] or a list of [N_t, P]."""
    lengths = unequal_lengths(Y)
    return TaskRows(lengths is not None or np.ndim(Y) == 3, lengths)


def rows_at(Xnew: Any, given: TaskRows) -> tuple[Any, TaskRows]:
    """Return new inputs, padded if they are a list, and the tasks and rows of predictions there.

    :param Xnew: inputs [N', D], [T or 1, N', D] or a list of [N'_t, D]; None for the rows of the
        data that predictions condition on.
    :param given: tasks and rows of those data.
    """
    if Xnew is None:
        return None, given
    lengths, Xnew = unequal_lengths(Xnew), padded_inputs(Xnew)
    return Xnew, TaskRows(given.has_tasks or np.ndim(Xnew) != 2, lengths)


def padded_inputs(X: Any) -> Any:
    """Return inputs, padded by :func:`~gpflow_bae.data.pad_tasks` if they are a list of tasks."""
    return X if unequal_lengths(X) is None else pad_tasks(X, is_input=True)[0]


def check_same_lengths(data: tuple[Any, Any], rows: TaskRows) -> None:
    """Check that observations to score, if they are a list, have the rows of the prediction.

    :raises ValueError: naming both numbers of rows.
    """
    lengths = unequal_lengths(data[1])
    if lengths is not None and lengths != rows.lengths:
        raise ValueError(
            f"Ynew has tasks of {lengths} rows; predictions are of "
            f"{'tasks of equal lengths' if rows.lengths is None else f'{rows.lengths} rows'}."
        )


def as_pair(data: Any, name: str = "data") -> tuple[Any, Any]:
    """Unpack a pair ``(X, Y)``, and pad tasks that are lists of arrays of unequal lengths.

    :return: X and Y. Lists of arrays [N_t, D] and [N_t, P] with different N_t become arrays
        [T, max N_t, D] and [T, max N_t, P] by :func:`~gpflow_bae.data.pad_tasks`.
    :raises TypeError: for anything but a tuple or list.
    :raises ValueError: for another number of values, and for tasks whose X and Y have different
        numbers of points.
    """
    is_sequence = isinstance(data, tuple | list)
    if not is_sequence or len(data) != 2:
        raise (ValueError if is_sequence else TypeError)(
            f"{name} must be a pair (X, Y), inputs (None for a model without) and observations, "
            f"got {f'{len(data)} values' if is_sequence else kind_of(data)}."
        )
    X, Y = data
    of_x, of_y = unequal_lengths(X), unequal_lengths(Y)
    if of_x is None and of_y is None:
        return X, Y
    if X is not None and of_x != of_y:
        shapes = [np.shape(v) if n is None else n for v, n in ((X, of_x), (Y, of_y))]
        raise ValueError(
            f"{name} has tasks of unequal lengths: X and Y must then both be lists, with the same "
            f"numbers of points in each task, got {shapes[0]} and {shapes[1]}."
        )
    return padded_inputs(X), pad_tasks(Y, is_input=False)[0]


def unequal_lengths(values: Any) -> list[int] | None:
    """Return the numbers of rows of a list of arrays [N_t, .], or None if it is no such list."""
    if not isinstance(values, tuple | list) or {getattr(v, "ndim", 0) for v in values} != {2}:
        return None
    lengths = [v.shape[0] for v in values]
    return None if len(set(lengths)) == 1 else lengths
