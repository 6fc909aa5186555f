"""Training data on the device, with a mask instead of NaN, gathered in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from numpy.typing import DTypeLike

from ..base import Batch, Cells, Neighbours
from ..core.arguments import as_array, as_numbers
from ..core.files import digest
from .compressed_rows import CompressedRows, dense_rows, rows_seen
from .minibatches import draw_indices
from .streams import StreamedObservations
from .unequal_tasks import TaskRows

__all__ = [
    "Observations",
    "as_inputs",
    "as_observations",
    "check_has_rows",
    "check_same_points",
    "checked_inputs",
    "in_memory",
    "mask_missing",
]

Rows: TypeAlias = tf.Tensor | CompressedRows


_BLOCK = 4096  # number of rows that are digested at a time


class Observations(NamedTuple):
    """Tasks with inputs and observations, and the axis along which minibatches are taken.

    With several tasks a minibatch is a subset of the tasks; with one task it is a subset of its
    points, which needs a prior whose density splits over points. ``Y`` and ``mask`` of a table that
    is mostly zeros may be compressed; its batches are dense.
    """

    X: tf.Tensor | None  # [T or 1, N, D], 1 if all tasks share their inputs
    Y: Rows  # [T, N, P], zeros where missing
    mask: Rows | None  # [T, N, P]; None if nothing is missing, which is cheaper
    has_tasks: bool = True  # False if data were [N, P]; predictions then have no task axis either
    neighbours: tf.Tensor | None = None  # [N, m], points that each is conditioned on; -1: none
    lengths: Sequence[int] | None = None  # [T], points of tasks that came as lists; then padding

    @property
    def rows(self) -> TaskRows:
        """Tasks and rows of predictions of the data."""
        return TaskRows(self.has_tasks, self.lengths)

    @property
    def axis(self) -> int:
        """0 if minibatches are of tasks, 1 if they are of points of a single task."""
        return 0 if self.Y.shape[0] > 1 else 1

    @property
    def num_items(self) -> int:
        """Number of tasks, or of points of the single task."""
        return int(self.Y.shape[self.axis])

    @property
    def num_points(self) -> int:
        """Total number of points of all tasks, padding included."""
        return int(self.Y.shape[0] * self.Y.shape[1])

    @property
    def num_seen(self) -> int:
        """Number of points of all tasks that have an observation, as padding has none."""
        return self.num_points if self.mask is None else np.count_nonzero(rows_seen(self.mask))

    @property
    def num_outputs(self) -> int:
        """Number of columns of the observations P."""
        return int(self.Y.shape[2])

    @property
    def is_compressed(self) -> bool:
        """Whether observations are compressed rows instead of a tensor."""
        return isinstance(self.Y, CompressedRows)

    @property
    def num_observed(self) -> int:
        """Number of entries of ``Y`` that are not missing."""
        if isinstance(self.mask, CompressedRows):
            return int(self.Y.shape.num_elements() - len(self.mask.entries))
        return int(self.Y.shape.num_elements() if self.mask is None else np.sum(self.mask))

    def describe(self) -> dict[str, Any]:
        """Return the shape and a digest of inputs, observations and mask, to check resumed runs.

        Another order of rows or columns, or other units of inputs, change the digest.
        """
        found = [digest(self.X)]
        for values in (self.Y, self.mask):
            if values is not None:  # by blocks, so that compressed and dense rows agree
                starts = range(0, self.Y.shape[1], _BLOCK)
                found += [digest(values[..., i : i + _BLOCK, :]) for i in starts]
        return {"shape": list(self.Y.shape), "digest": digest(np.array(found))}

    def gather(
        self,
        indices: tf.Tensor | None,
        columns: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
    ) -> Batch:
        """Return the batch of items ``indices [B]`` and outputs ``columns [E]``; None for all.

        :param seed: ignored; :class:`~gpflow_bae.data.SparseTable` draws entries with it.
        """
        if columns is not None:
            batch = self.gather(indices)
            share = self.num_outputs / columns.shape[0]
            return batch._replace(
                Y=tf.gather(batch.Y, columns, axis=-1),
                mask=None if batch.mask is None else tf.gather(batch.mask, columns, axis=-1),
                cells=Cells(columns, tf.constant(share, batch.Y.dtype)),
            )
        if indices is None:
            return Batch(self.X, dense_rows(self.Y), dense_rows(self.mask))
        X = self.X
        if X is not None and (self.axis == 1 or X.shape[0] > 1):
            X = tf.gather(X, indices, axis=self.axis)
        Y, mask = (_gather(values, indices, self.axis) for values in (self.Y, self.mask))
        scale = self.num_items / indices.shape[0]
        near = self._neighbours(indices)
        return Batch(X, Y, mask, scale, scale if self.axis == 1 else 1.0, indices, near=near)

    def reader(
        self, batch_size: int | None, batches: int, seed: Sequence[int], model: Any = None
    ) -> None:
        """Return None: minibatches of data in memory are drawn in the graph of a step."""

    def minibatch(
        self, batch_size: int | None, seed: tf.Tensor, block: Any = (), number: Any = 0
    ) -> Batch:
        """Draw a minibatch of items; all for a size of None.

        :param block, number: ignored; a stream has its minibatches in blocks.
        """
        return self.gather(draw_indices(self.num_items, batch_size, seed))

    def _neighbours(self, indices: tf.Tensor) -> Neighbours | None:
        """Return the data of the points that points ``indices [B]`` are conditioned on."""
        if self.neighbours is None or self.X is None:
            return None
        rows = tf.gather(self.neighbours, indices)
        flat = tf.reshape(tf.maximum(rows, 0), [-1])
        X, Y, mask = (_gather(values, flat, 1) for values in (self.X, self.Y, self.mask))
        return Neighbours(X, Y, mask, flat, rows >= 0)

    def to_numpy(self) -> tuple[np.ndarray | None, np.ndarray]:
        """Return ``(X, Y)`` as arrays, with a task axis and NaN where missing."""
        Y = dense_rows(self.Y).numpy()
        if self.mask is not None:
            Y = np.where(dense_rows(self.mask).numpy(), Y, np.nan)
        return None if self.X is None else self.X.numpy(), Y


def _gather(values: Any, indices: tf.Tensor, axis: int) -> Any:
    """Gather items of a tensor or of compressed rows; None for None."""
    if isinstance(values, CompressedRows):
        return values.take(indices)
    return None if values is None else tf.gather(values, indices, axis=axis)


def checked_inputs(X: Any, shape: tuple[int, ...], inputs: Any) -> np.ndarray:
    """Check inputs against observations and return them as [T or 1, N, D].

    :param shape: shape of the observations [T, N, P].
    :param inputs: the model's :class:`~gpflow_bae.inputs.InputModel`, or None.
    :raises ValueError: for another number of dimensions, tasks or points, and non-finite values.
    """
    X = as_numbers(X, "X", gpflow.default_float())
    if X.ndim == 2:
        X = X[None]
    if X.ndim != 3:
        advice = _column_advice(X.shape)
        raise ValueError(f"X must have shape [N, D] or [T, N, D], got {X.shape}.{advice}")
    check_same_points(X.shape, shape)
    wrong = ~np.isfinite(X) if inputs is None else np.isinf(X)
    if wrong.any():
        task, point, _ = np.argwhere(wrong)[0]
        what = f"(first in task {task}, point {point})"
        if inputs is not None:
            raise ValueError(f"X holds infinity {what}; missing inputs are NaN.")
        raise ValueError(
            f"X holds NaN or infinity {what}; inputs must be complete: drop those points, fill them"
            " in, or let the model infer them (gpflow_bae.inputs.MissingInputs)."
        )
    if inputs is not None:
        X = inputs.prepare(X)
    return X[:1] if (X == X[:1]).all() else X


def _column_advice(shape: Sequence[int | None]) -> str:
    """Return advice for inputs of rank 1."""
    return " One number for each point is a column: X[:, None]." if len(shape) == 1 else ""


def check_same_points(X_shape: Sequence[int | None], Y_shape: Sequence[int | None]) -> None:
    """Check that shapes [T or 1, N, D] and [T, N, P] have the same tasks and points.

    :raises ValueError: naming both shapes.
    """
    (tasks, points, _), (all_tasks, all_points, _) = X_shape, Y_shape
    same_points = points == all_points or None in (points, all_points)
    if not same_points or not (tasks in (1, all_tasks) or None in (tasks, all_tasks)):
        raise ValueError(
            "X and Y must have the same number of tasks and points, got X of shape "
            f"{tuple(X_shape)} and Y of shape {tuple(Y_shape)}; X may have one task where all "
            "tasks share their inputs."
        )


def as_observations(
    Y: Any, name: str = "Y", dtype: DTypeLike | None = None
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return observations with zeros where missing, and their mask.

    NaN, masked entries and NA of a data frame are missing. A symbolic tensor always has a mask.

    :param Y: numbers as an array, a tensor, a data frame or a masked array.
    :param name: name of the observations in error messages.
    :param dtype: type of the result; None for that of ``Y`` if it is a float type.
    :return: observations, and a mask, or None if nothing is missing.
    :raises ValueError: for infinities, and numbers that float32 cannot hold.
    """
    values = tf.get_static_value(Y) if tf.is_tensor(Y) else as_array(Y, name)
    if values is None:
        Y = Y if dtype is None else tf.cast(Y, dtype)
        seen = tf.logical_not(tf.math.is_nan(Y))
        return tf.where(seen, Y, tf.zeros_like(Y)), seen
    kind = values.dtype if dtype is None else tf.as_dtype(dtype).as_numpy_dtype
    values = as_numbers(values, name, kind if np.dtype(kind).kind == "f" else np.float32)
    if np.isinf(values).any():
        raise ValueError(f"{name} holds infinity; missing observations are NaN.")
    as_numbers(values, name, np.float32)  # networks' outputs, and squares overflow far below 1e300
    seen = ~np.isnan(values)
    with tf.init_scope():  # keeps the values out of the graph of a traced function
        if seen.all():
            return tf.constant(values), None
        return tf.constant(np.where(seen, values, np.zeros_like(values))), tf.constant(seen)


def check_has_rows(shape: Any, name: str = "Y") -> None:
    """Check that observations of this shape have rows and columns.

    :raises ValueError: if not.
    """
    if 0 in tuple(shape):
        raise ValueError(f"{name} has shape {tuple(shape)}, without any observation; pass rows.")


def as_inputs(
    X: TensorType, like: tf.Tensor | None = None, name: str = "X", inputs: Any = None
) -> tf.Tensor:
    """Convert inputs [N, D] or [T or 1, N, D] to a tensor [T or 1, N, D].

    :param like: the training inputs, of the same width.
    :param name: name of the inputs in error messages.
    :param inputs: the model's :class:`~gpflow_bae.inputs.InputModel`, or None; then ``like`` and
        the result are prepared by it.
    :raises ValueError: for another number of dimensions, another width, and NaN or infinity in
        values that are not symbolic.
    """
    if not isinstance(X, tf.Tensor | tf.Variable | gpflow.Parameter):
        X = as_numbers(X, name, gpflow.default_float())
        if inputs is not None and X.ndim > 1 and not np.isinf(X).any():
            X = inputs.prepare(X, name)
        elif not np.isfinite(X).all():
            raise ValueError(f"{name} holds NaN or infinity; inputs must be complete.")
    elif inputs is not None:
        X = inputs.prepare_tensor(tf.cast(X, gpflow.default_float()))
    else:
        known = tf.get_static_value(X)
        if known is not None and not np.isfinite(known).all():
            raise ValueError(f"{name} holds NaN or infinity; inputs must be complete.")
    X = tf.cast(tf.convert_to_tensor(X), gpflow.default_float())
    width = None if like is None else like.shape[-1]
    if X.shape.rank not in (2, 3) or (width is not None and X.shape[-1] != width):
        wide = "" if width is None else f" with D = {width} as in training"
        raise ValueError(
            f"{name} must have shape [N, D] or [T, N, D]{wide}, got {tuple(X.shape)}."
            + _column_advice(X.shape)
        )
    return X[None] if X.shape.rank == 2 else X


def mask_missing(Y: np.ndarray, name: str = "Y") -> tuple[np.ndarray, np.ndarray]:
    """Replace NaN in observations by zeros and a mask.

    :param Y: observations [T, N, P], NaN where missing.
    :param name: name of the observations in error messages.
    :return: observations with zeros where missing (float32), and the mask, True where observed.
    :raises ValueError: for infinities, or another number of dimensions.
    """
    Y = as_numbers(Y, name, np.float32)
    if Y.ndim != 3:
        raise ValueError(f"{name} must have shape [T, N, P], got {Y.shape}.")
    if np.isinf(Y).any():
        task, point, column = np.argwhere(np.isinf(Y))[0]
        raise ValueError(
            f"{name} holds infinity (first in task {task}, point {point}, column {column}); "
            "missing observations are NaN."
        )
    mask = ~np.isnan(Y)
    return np.where(mask, Y, np.float32(0.0)), mask


def in_memory(
    data: Observations | StreamedObservations, num_points: int = 10_000, seed: int = 0
) -> Observations:
    """Draw random points of a stream or of compressed rows, as dense observations in memory.

    Dense observations are returned unchanged.

    :param num_points: number of points, or all if there are fewer.
    """
    if isinstance(data, Observations):
        if not data.is_compressed:
            return data
        rows = np.random.default_rng(seed).permutation(data.num_points)[:num_points]
        return Observations(*data.gather(tf.constant(np.sort(rows)))[:3], has_tasks=False)
    X, Y = data.sample(num_points, seed)
    Y, mask = mask_missing(Y[None])
    return Observations(
        None if X is None else tf.constant(X[None], gpflow.default_float()),
        tf.constant(Y),
        None if mask.all() else tf.constant(mask),
        has_tasks=False,
    )
