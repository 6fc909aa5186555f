"""Checks of training data against a model, and their transfer to the device."""

from __future__ import annotations

from typing import Any, overload

import gpflow
import numpy as np
import scipy.sparse
import tensorflow as tf

from ..base import VariationalModel
from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from .compressed_rows import split_missing
from .memory import check_memory
from .model_checks import SPLITTING_ADVICE, check_inputs, check_items, check_support
from .observations import Observations, check_has_rows, checked_inputs, mask_missing
from .sparse_table import SparseTable
from .streams import StreamedObservations
from .unequal_tasks import as_pair, unequal_lengths

__all__ = ["check_columns", "prepare_data"]


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
        observations ``Y [N, P]`` or ``[T, N, P]``, NaN where missing. Tasks of unequal lengths
        are lists of arrays ``[N_t, D]`` and ``[N_t, P]``. A ``Y`` that is mostly zeros
        may be a SciPy sparse matrix, for variational models with an encoder: it stays sparse, and
        its minibatches are dense. Or a :class:`~gpflow_bae.data.SparseTable`, for models that take
        one; or a :class:`~gpflow_bae.data.StreamedObservations`. Prepared data are returned.
    :param batch_size: number of tasks (or of points of a single task) in a minibatch.
    :raises ValueError: for shapes that disagree, inputs that are not finite, observations that are
        infinite or outside of the likelihood's support, inputs that the prior's kernels cannot
        read or that are so far from zero that distances lose float precision, a task or column
        without observations, a batch size out of range, matrices that do not fit memory, and a
        sparse matrix for a model that needs all observations at once.
    """
    if isinstance(data, SparseTable | StreamedObservations):
        data.check(model, batch_size)
        return data
    if isinstance(data, Observations):
        _check_batch_size(model, data, batch_size)
        return _with_neighbours(model, data)
    X, Y = as_pair(data)
    lengths = unequal_lengths(data[1])
    mask: Any
    if scipy.sparse.issparse(Y):
        _check_takes_sparse(model)
        check_has_rows(Y.shape)
        stored, zeros = scipy.sparse.coo_matrix(Y), np.zeros(Y.shape[1], np.float32)
        values = np.append(np.asarray(stored.data, np.float32), zeros)
        check_support(model, values, columns=np.append(stored.col, np.arange(len(zeros))))
        Y, mask, observed = split_missing(Y)
        has_tasks = False
    else:
        Y = as_numbers(Y, "Y", np.float32)
        has_tasks = Y.ndim != 2
        Y = Y if has_tasks else Y[None]
        if Y.ndim != 3:
            raise ValueError(f"Y must have shape [N, P] or [T, N, P], got {Y.shape}.")
        check_has_rows(Y.shape[not has_tasks :])
        Y, seen = mask_missing(Y)
        check_support(model, Y, seen)
        observed = seen.sum(1)
        Y, mask = tf.constant(Y), None if seen.all() else tf.constant(seen)
    if X is None:
        if model.needs_inputs:
            raise ValueError(
                f"{model.latent_prior_name} is a prior over inputs: X is needed, got None."
            )
    else:
        shape = tuple(map(int, Y.shape))
        X = checked_inputs(X, shape, getattr(model, "inputs", None))
        check_inputs(model, X)
        X = tf.constant(X, gpflow.default_float())
    empty_tasks = np.flatnonzero(~observed.any(axis=1))
    if empty_tasks.size:
        raise ValueError(
            f"Y has no observation at all in task(s) {empty_tasks.tolist()}; drop those tasks."
        )
    empty_columns = np.flatnonzero(~observed.any(axis=0))
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
    result = Observations(X, Y, mask, has_tasks, lengths=lengths)
    check_items(model, result.num_items)
    _check_batch_size(model, result, batch_size)
    prior = getattr(model, "latent_prior", None)
    if prior is not None and X is not None:
        items = result.num_items if batch_size is None else batch_size
        tasks, points = (items, Y.shape[1]) if result.axis == 0 else (1, items)
        check_memory(prior, min(tasks, X.shape[0]), points)  # shared inputs, shared matrices
        if prior.by_neighbours is not None:
            prior.by_neighbours.check_lengths(lengths)
    return _with_neighbours(model, result)


def _check_takes_sparse(model: Any) -> None:
    """Check that a model takes rows of a sparse matrix: variational, with an encoder."""
    of_rows = isinstance(model, VariationalModel) and model.is_amortized and model.inputs is None
    if not of_rows or model.row_variables:
        raise ValueError(
            "A sparse Y is for variational models whose encoder sees one row at a time, such as "
            f"SVGPVAE; {type(model).__name__} needs a dense one: pass Y.toarray(). (A table that "
            "is mostly unknown, not mostly zero, is a gpflow_bae.data.SparseTable.)"
        )


def _with_neighbours(model: Any, data: Observations) -> Observations:
    """Return the data with the neighbours that the model's prior conditions points on."""
    near = getattr(getattr(model, "latent_prior", None), "by_neighbours", None)
    if near is None or data.X is None or data.axis == 0:
        return data._replace(neighbours=None)
    return data._replace(neighbours=near.neighbours_of(data.X))


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
            f"{SPLITTING_ADVICE}."
        )


def check_columns(model: Any, data: Any, num_columns: int | None) -> None:
    """Check that a model and data allow minibatches of ``num_columns`` outputs.

    :raises ValueError: for a number out of range, a model whose bound does not split over
        outputs, a stream, or a sparse table, which draws entries instead.
    """
    if num_columns is None:
        return
    if isinstance(data, SparseTable):
        raise ValueError(
            "num_columns is for complete columns; a SparseTable has max_entries instead."
        )
    if isinstance(data, StreamedObservations):
        raise ValueError(
            "A batch_size of outputs is for data in memory; leave it out for a stream."
        )
    if not model.splits_over_outputs:
        raise ValueError(
            f"The bound of {type(model).__name__} does not split over outputs: give batch_size "
            "as one number."
        )
    if not 1 <= num_columns <= data.num_outputs:
        raise ValueError(
            "batch_size has a number of outputs that must lie between 1 and the "
            f"{data.num_outputs} columns of Y, got {num_columns}."
        )
