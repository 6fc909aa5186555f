"""Training data on the device: checked once, with NaN turned into a mask, gathered in a graph."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..arguments import as_numbers, check_arguments
from ..base import Batch, Cells, Neighbours
from .memory import check_memory
from .sparse_table import SparseTable
from .streams import StreamedObservations

__all__ = [
    "Observations",
    "as_pair",
    "check_columns",
    "in_memory",
    "mask_missing",
    "prepare_data",
]


class Observations(NamedTuple):
    """Tasks with inputs and observations, and the axis along which minibatches are taken.

    With several tasks a minibatch is a subset of the tasks; with one task it is a subset of its
    points, which needs a prior whose density splits over points.
    """

    X: tf.Tensor | None  # [T or 1, N, D], 1 where all tasks share their inputs
    Y: tf.Tensor  # [T, N, P], zeros where missing
    mask: tf.Tensor | None  # [T, N, P]; None where nothing is missing, which saves work
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

    def describe(self) -> list[Any]:
        """Shape and sum, by which a resumed run knows its data."""
        return [list(self.Y.shape), float(tf.reduce_sum(self.Y))]

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
            return Batch(self.X, self.Y, self.mask)
        X = self.X
        if X is not None and (self.axis == 1 or X.shape[0] > 1):
            X = tf.gather(X, indices, axis=self.axis)
        Y = tf.gather(self.Y, indices, axis=self.axis)
        mask = None if self.mask is None else tf.gather(self.mask, indices, axis=self.axis)
        scale = self.num_items / indices.shape[0]
        near = self._neighbours(indices)
        return Batch(X, Y, mask, scale, scale if self.axis == 1 else 1.0, indices, neighbours=near)

    def _neighbours(self, indices: tf.Tensor) -> Neighbours | None:
        """What points ``indices [B]`` are conditioned on."""
        if self.neighbours is None or self.X is None:
            return None
        rows = tf.gather(self.neighbours, indices)
        flat = tf.reshape(tf.maximum(rows, 0), [-1])
        X, Y = (tf.gather(values, flat, axis=1) for values in (self.X, self.Y))
        mask = None if self.mask is None else tf.gather(self.mask, flat, axis=1)
        return Neighbours(X, Y, mask, flat, rows >= 0)

    def to_numpy(self) -> tuple[np.ndarray | None, np.ndarray]:
        """``(X, Y)`` as they came in, NaN where missing."""
        Y = self.Y.numpy()
        if self.mask is not None:
            Y = np.where(self.mask.numpy(), Y, np.nan)
        return None if self.X is None else self.X.numpy(), Y


def _check_inputs(X: Any, shape: tuple[int, ...], inputs: Any) -> np.ndarray:
    """:param inputs: an :class:`~gpflow_bae.inputs.InputModel`, of models that have one."""
    X = as_numbers(X, "X", gpflow.default_float())
    if X.ndim == 2:
        X = X[None]
    if X.ndim != 3:
        raise ValueError(f"X must have shape [N, D] or [T, N, D], got {X.shape}.")
    if X.shape[1] != shape[1] or X.shape[0] not in (1, shape[0]):
        raise ValueError(
            f"X and Y must have the same number of tasks and points, got X of shape {X.shape} and "
            f"Y of shape {shape}; X may have one task where all tasks share their inputs."
        )
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
    X = tf.cast(tf.convert_to_tensor(X), gpflow.default_float())
    width = None if like is None else like.shape[-1]
    if X.shape.rank not in (2, 3) or (width is not None and X.shape[-1] != width):
        raise ValueError(
            f"{name} must have shape [N, D] or [T, N, D] with D = {width or 'any'} as in training, "
            f"got {tuple(X.shape)}."
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


@overload
def prepare_data(
    model: Any, data: tuple[object, object] | Observations, batch_size: int | None = None
) -> Observations: ...


@overload
def prepare_data(model: Any, data: SparseTable, batch_size: int | None = None) -> SparseTable: ...


@overload
def prepare_data(
    model: Any, data: StreamedObservations, batch_size: int | None = None
) -> StreamedObservations: ...


@check_arguments()
def prepare_data(
    model: Any,
    data: tuple[object, object] | Observations | SparseTable | StreamedObservations,
    batch_size: int | None = None,
) -> Observations | SparseTable | StreamedObservations:
    """Check ``data = (X, Y)`` against ``model`` and put it on the device.

    :param data: inputs ``X [N, D]`` or ``[T, N, D]`` (None for models without inputs) and
        observations ``Y [N, P]`` or ``[T, N, P]``, NaN where missing; or a
        :class:`~gpflow_bae.data.SparseTable`, for models that take one; or a
        :class:`~gpflow_bae.data.StreamedObservations`. Data that were prepared are returned.
    :param batch_size: how many tasks (or points, of a single task) a minibatch will have.
    :raises ValueError: for shapes that disagree, inputs that are not finite, infinite
        observations, a task or column without any observation, an impossible batch size, matrices
        that no memory of this machine could hold.
    """
    if isinstance(data, SparseTable | StreamedObservations):
        data.check(model, batch_size)
        return data
    if isinstance(data, Observations):
        _check_batch_size(model, data, batch_size)
        return _with_neighbours(model, data)
    X, Y = as_pair(data)
    Y = as_numbers(Y, "Y", np.float32)
    has_tasks = Y.ndim != 2
    Y = Y if has_tasks else Y[None]
    if Y.ndim != 3:
        raise ValueError(f"Y must have shape [N, P] or [T, N, P], got {Y.shape}.")
    if X is None:
        if model.needs_inputs:
            raise ValueError(
                f"{model.latent_prior_name} is a prior over inputs: X is needed, got None."
            )
    else:
        X = _check_inputs(X, Y.shape, getattr(model, "inputs", None))
    Y, mask = mask_missing(Y)
    empty_tasks = np.flatnonzero(~mask.any(axis=(1, 2)))
    if empty_tasks.size:
        raise ValueError(
            f"Y has no observation at all in task(s) {empty_tasks.tolist()}; drop those tasks."
        )
    empty_columns = np.flatnonzero(~mask.any(axis=(0, 1)))
    if empty_columns.size:
        raise ValueError(
            f"Y has no observation at all in column(s) {empty_columns.tolist()}; drop those "
            "columns."
        )
    width = model.decoder.output_dim
    if width != Y.shape[-1]:
        raise ValueError(
            f"decoder returns {width} outputs per point, but Y has P = {Y.shape[-1]} columns; "
            "change the width of the decoder's last layer."
        )
    result = Observations(
        None if X is None else tf.constant(X, gpflow.default_float()),
        tf.constant(Y),
        None if mask.all() else tf.constant(mask),
        has_tasks,
    )
    _check_batch_size(model, result, batch_size)
    _check_memory(model, result, batch_size)
    return _with_neighbours(model, result)


def _check_memory(model: Any, data: Observations, batch_size: int | None) -> None:
    """Of the prior's matrices for a batch; models without a prior have none."""
    prior = getattr(model, "latent_prior", None)
    if prior is not None and data.X is not None:
        items = data.num_items if batch_size is None else batch_size
        tasks, points = (items, data.Y.shape[1]) if data.axis == 0 else (1, items)
        check_memory(prior, min(tasks, data.X.shape[0]), points)  # shared inputs, shared matrices


def _with_neighbours(model: Any, data: Observations) -> Observations:
    """The same, whose minibatches bring the points with them that this model's prior asks for."""
    neighbours = None
    if data.X is not None and data.axis == 1 and model.needs_inputs:
        neighbours = model.neighbours_of(data.X)
    return data._replace(neighbours=neighbours)


def _check_batch_size(model: Any, data: Observations, batch_size: int | None) -> None:
    items = "tasks" if data.axis == 0 else "points"
    if batch_size is None or batch_size == data.num_items:
        return
    if not 1 <= batch_size <= data.num_items:
        raise ValueError(
            f"batch_size must lie between 1 and the {data.num_items} {items}, got {batch_size}."
        )
    if data.axis == 1 and not model.splits_over_points:
        raise ValueError(
            f"{type(model).__name__} cannot take the points of a single task in minibatches, "
            f"because its prior ({model.latent_prior_name}) couples them: set batch_size=None, or "
            f"{model.splitting_advice}."
        )


def check_columns(model: Any, data: Any, num_columns: int | None) -> None:
    """Refuse minibatches of outputs that cannot be.

    :raises ValueError: for a number out of range, a model whose bound does not split over
        outputs, or a sparse table, which takes entries.
    """
    if num_columns is None:
        return
    if isinstance(data, SparseTable):
        raise ValueError(
            "num_columns is for complete columns; a SparseTable has max_entries instead."
        )
    if isinstance(data, StreamedObservations):
        raise ValueError("num_columns is for data in memory; set it to None for a stream.")
    if not model.splits_over_outputs:
        raise ValueError(
            f"The bound of {type(model).__name__} does not split over outputs: set num_columns to "
            "None."
        )
    if not 1 <= num_columns <= data.num_outputs:
        raise ValueError(
            f"num_columns must lie between 1 and the {data.num_outputs} columns of Y, got "
            f"{num_columns}."
        )


def in_memory(
    data: Observations | StreamedObservations, num_points: int = 10_000, seed: int = 0
) -> Observations:
    """Of a stream some points, drawn at random, for what needs all of its data at once.

    :param num_points: as many, or all where there are fewer.
    """
    if isinstance(data, Observations):
        return data
    X, Y = data.sample(num_points, seed)
    Y, mask = mask_missing(Y[None])
    return Observations(
        None if X is None else tf.constant(X[None], gpflow.default_float()),
        tf.constant(Y),
        None if mask.all() else tf.constant(mask),
        has_tasks=False,
    )
