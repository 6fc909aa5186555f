"""Training data on the device, with a mask in the place of NaN, gathered in a graph."""

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
from .compressed_rows import CompressedRows, dense_rows
from .streams import StreamedObservations

__all__ = [
    "Observations",
    "as_inputs",
    "as_observations",
    "as_pair",
    "check_same_points",
    "checked_inputs",
    "in_memory",
    "mask_missing",
]

Rows: TypeAlias = tf.Tensor | CompressedRows


_BLOCK = 4096  # rows that are digested at a time


class Observations(NamedTuple):
    """Tasks with inputs and observations, and the axis along which minibatches are taken.

    With several tasks a minibatch is a subset of the tasks; with one task it is a subset of its
    points, which needs a prior whose density splits over points. Of a table that is mostly zeros,
    ``Y`` and ``mask`` may be compressed; batches of them are not.
    """

    X: tf.Tensor | None  # [T or 1, N, D], 1 where all tasks share their inputs
    Y: Rows  # [T, N, P], zeros where missing
    mask: Rows | None  # [T, N, P]; None where nothing is missing, which saves work
    has_tasks: bool = True  # False where they came as [N, P], and predictions go as they came
    neighbours: tf.Tensor | None = None  # [N, m], points that minibatches bring with them; -1: none

    @property
    def axis(self) -> int:
        """0 where tasks are drawn, 1 where the points of a single task are."""
        return 0 if self.Y.shape[0] > 1 else 1

    @property
    def num_items(self) -> int:
        """How many tasks, or points of the single task, there are to draw from."""
        return int(self.Y.shape[self.axis])

    @property
    def num_points(self) -> int:
        """Points of all tasks together, padding included."""
        return int(self.Y.shape[0] * self.Y.shape[1])

    @property
    def num_outputs(self) -> int:
        """Columns of the observations, P."""
        return int(self.Y.shape[2])

    @property
    def is_compressed(self) -> bool:
        """Whether there is no tensor of all observations."""
        return isinstance(self.Y, CompressedRows)

    @property
    def num_observed(self) -> int:
        """Entries of ``Y`` that are not missing."""
        if isinstance(self.mask, CompressedRows):
            return int(self.Y.shape.num_elements() - len(self.mask.entries))
        return int(self.Y.shape.num_elements() if self.mask is None else np.sum(self.mask))

    def describe(self) -> dict[str, Any]:
        """Shape, and a digest of inputs, observations and mask: a resumed run knows its data by it.

        Rows or columns in another order, and inputs in other units, are other data.
        """
        found = [digest(self.X)]
        for values in (self.Y, self.mask):
            if values is not None:  # of a table that is compressed as of one that is not
                starts = range(0, self.Y.shape[1], _BLOCK)
                found += [digest(values[..., i : i + _BLOCK, :]) for i in starts]
        return {"shape": list(self.Y.shape), "digest": digest(np.array(found))}

    def gather(
        self,
        indices: tf.Tensor | None,
        columns: tf.Tensor | None = None,
        seed: tf.Tensor | None = None,
    ) -> Batch:
        """The batch of items ``indices [B]``, and of outputs ``columns [E]``; None for all.

        :param seed: not needed here; :class:`~gpflow_bae.data.SparseTable` draws entries.
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
        Y, mask = (_taken(values, indices, self.axis) for values in (self.Y, self.mask))
        scale = self.num_items / indices.shape[0]
        near = self._neighbours(indices)
        return Batch(X, Y, mask, scale, scale if self.axis == 1 else 1.0, indices, neighbours=near)

    def _neighbours(self, indices: tf.Tensor) -> Neighbours | None:
        """What points ``indices [B]`` are conditioned on."""
        if self.neighbours is None or self.X is None:
            return None
        rows = tf.gather(self.neighbours, indices)
        flat = tf.reshape(tf.maximum(rows, 0), [-1])
        X, Y, mask = (_taken(values, flat, 1) for values in (self.X, self.Y, self.mask))
        return Neighbours(X, Y, mask, flat, rows >= 0)

    def to_numpy(self) -> tuple[np.ndarray | None, np.ndarray]:
        """``(X, Y)`` as they came in, NaN where missing."""
        Y = dense_rows(self.Y).numpy()
        if self.mask is not None:
            Y = np.where(dense_rows(self.mask).numpy(), Y, np.nan)
        return None if self.X is None else self.X.numpy(), Y


def _taken(values: Any, indices: tf.Tensor, axis: int) -> Any:
    """Items of a tensor or of compressed rows; None stays None."""
    if isinstance(values, CompressedRows):
        return values.take(indices)
    return None if values is None else tf.gather(values, indices, axis=axis)


def checked_inputs(X: Any, shape: tuple[int, ...], inputs: Any) -> np.ndarray:
    """Inputs [T or 1, N, D] that go with observations.

    :param shape: of the observations [T, N, P].
    :param inputs: an :class:`~gpflow_bae.inputs.InputModel`, of models that have one.
    :raises ValueError: for another number of dimensions, tasks or points, and what is not finite.
    """
    X = as_numbers(X, "X", gpflow.default_float())
    if X.ndim == 2:
        X = X[None]
    if X.ndim != 3:
        advice = _columns(X.shape)
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


def _columns(shape: Sequence[int | None]) -> str:
    """What to do with inputs that are a list of numbers."""
    return " One number for each point is a column: X[:, None]." if len(shape) == 1 else ""


def check_same_points(X_shape: Sequence[int | None], Y_shape: Sequence[int | None]) -> None:
    """Refuse inputs [T or 1, N, D] and observations [T, N, P] of other points.

    :raises ValueError: with both shapes.
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
    """Observations with zeros where they are missing, and which are seen.

    NaN is missing, and so is what is masked, or NA in a frame. A tensor without
    values yet, in a function that is traced, has a mask in any case.

    :param Y: numbers, of whatever holds some.
    :param name: what the error calls them.
    :param dtype: of the result; None for that of ``Y`` where it is a float type.
    :return: the same with zeros, and a mask, or None where nothing is missing.
    :raises ValueError: for infinities.
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
    seen = ~np.isnan(values)
    with tf.init_scope():  # a function that is traced keeps no copy in its graph
        if seen.all():
            return tf.constant(values), None
        return tf.constant(np.where(seen, values, np.zeros_like(values))), tf.constant(seen)


def as_pair(data: Any, name: str = "data") -> tuple[Any, Any]:
    """``(X, Y)``, whatever these are.

    :raises TypeError: for anything that is no pair.
    """
    if isinstance(data, tuple | list) and len(data) == 2:
        return data[0], data[1]
    raise TypeError(
        f"{name} must be a pair (X, Y), inputs (None for a model without) and observations, got "
        f"{type(data).__name__}."
    )


def as_inputs(
    X: TensorType, like: tf.Tensor | None = None, name: str = "X", inputs: Any = None
) -> tf.Tensor:
    """Inputs [T or 1, N, D] from those or from [N, D].

    :param like: the training inputs, of the same width.
    :param name: what the error calls them.
    :param inputs: the model's :class:`~gpflow_bae.inputs.InputModel`, if it has one; then ``like``
        and the result are as it prepares them.
    :raises ValueError: for another number of dimensions, another width, or NumPy's NaN or infinity.
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
            + _columns(X.shape)
        )
    return X[None] if X.shape.rank == 2 else X


def mask_missing(Y: np.ndarray, name: str = "Y") -> tuple[np.ndarray, np.ndarray]:
    """What a model is given of observations that are NaN where missing.

    :param Y: observations [T, N, P].
    :param name: what the error calls them.
    :return: the same with zeros where missing (float32), and the mask, True where observed.
    :raises ValueError: for infinities.
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
    """Of a stream or of compressed rows some points, drawn at random, for what needs all of its
    data at once.

    :param num_points: as many, or all where there are fewer.
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
