"""The columns that kernels read of their inputs, as numbers or as ids, and batched covariances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Kernel

from ..core.arguments import warn_caller
from .categorical import Categorical
from .object_view import ObjectView

__all__ = [
    "category_columns",
    "check_categories",
    "check_columns_are_there",
    "check_distances",
    "check_kernel_inputs",
    "covariance_of_points",
    "covariance_of_tasks",
    "numbers_of_ids",
    "parts_of",
]


def parts_of(kernel: Kernel, columns: np.ndarray) -> Iterator[tuple[Kernel, np.ndarray]]:
    """Yield the elementary kernels of a kernel, each with the columns that it reads.

    :param columns: indices [D] of the columns of the kernel's inputs.
    :raises ValueError: for ``active_dims`` that do not exist, and lengthscales of other columns.
    """
    try:
        read = columns[kernel.active_dims]
    except IndexError:
        read = columns[:0]
    if not read.size:
        dims = kernel.active_dims
        dims = dims if isinstance(dims, slice) else np.asarray(dims).tolist()
        raise ValueError(
            f"The kernel {type(kernel).__name__} reads active_dims={dims} of inputs with "
            f"{len(columns)} column(s), which count from 0: change active_dims, or give inputs "
            "that have them."
        )
    if isinstance(kernel, gpflow.kernels.Combination):
        for part in kernel.kernels:
            yield from parts_of(part, read)
    elif isinstance(kernel, ObjectView):
        yield kernel, read[:1]
        if len(read) > 1:
            yield from parts_of(kernel.view_kernel, read[1:])
    else:
        if isinstance(kernel, gpflow.kernels.Stationary):
            number = np.size(kernel.lengthscales)
            if number not in (1, len(read)):
                raise ValueError(
                    f"The kernel {type(kernel).__name__} has {number} lengthscales, and reads "
                    f"{len(read)} column(s) of the inputs: give it one, or one for each of these "
                    "columns, which active_dims can choose."
                )
        yield kernel, read


def _parts(kernels: Sequence[Kernel], width: int) -> Iterator[tuple[Kernel, np.ndarray]]:
    for kernel in kernels:
        yield from parts_of(kernel, np.arange(width))


def check_columns_are_there(kernels: Sequence[Kernel], width: int) -> None:
    """Check that inputs with ``width`` columns have the kernels' ``active_dims``.

    :raises ValueError: if not, with the kernel's name.
    """
    for _ in _parts(kernels, width):
        pass


def check_kernel_inputs(
    kernels: Sequence[Kernel], X: np.ndarray, name: str = "X", *, distances: bool = True
) -> None:
    """Check that kernels can read inputs [..., D], with enough float precision.

    :param name: name of the inputs in error messages.
    :param distances: whether distances between inputs are computed.
    :raises ValueError: naming the column.
    """
    check_columns_are_there(kernels, X.shape[-1])
    check_categories(kernels, X, name)
    if distances:
        check_distances(kernels, X, name)


def category_columns(kernels: Sequence[Kernel], width: int) -> list[int]:
    """Return the columns that a kernel reads as ids, whose values must not be optimised."""
    ids = (gpflow.kernels.Coregion, Categorical, ObjectView)
    found = {int(c) for part, read in _parts(kernels, width) if isinstance(part, ids) for c in read}
    return sorted(found)


def numbers_of_ids(kernels: Sequence[Kernel], width: int) -> dict[int, int]:
    """Return how many ids GPflow's Coregion has, by the column that it reads them from."""
    found: dict[int, int] = {}
    for part, read in _parts(kernels, width):
        if isinstance(part, gpflow.kernels.Coregion):
            for column in read.tolist():
                found[column] = min(part.output_dim, found.get(column, part.output_dim))
    return found


def check_categories(kernels: Sequence[Kernel], X: np.ndarray, name: str) -> None:
    """Check the ids of GPflow's Coregion, which truncates values to integers.

    :param X: [..., D]; NaN is ignored.
    :raises ValueError: for values that are not ids, with the column and the value.
    """
    for part, read in _parts(kernels, X.shape[-1]):
        if not isinstance(part, gpflow.kernels.Coregion):
            continue
        for column in read:
            ids = X[..., column]
            wrong = ~np.isnan(ids) & ((ids != np.round(ids)) | (ids < 0) | (ids >= part.output_dim))
            if wrong.any():
                raise ValueError(
                    f"{name} holds {ids[wrong][0]:g} in column {column}, which the kernel Coregion "
                    f"reads as an id: expected whole numbers from 0 to {part.output_dim - 1}. Take "
                    "rows that occur, such as Z = X[::10], not their means."
                )


def check_distances(kernels: Sequence[Kernel], X: np.ndarray, name: str = "X") -> None:
    """Check that inputs are not so far from zero that rounding spoils distances between them.

    GPflow computes squared distances from squares of the inputs over the lengthscale, whose
    rounding is the error of covariances. It must not exceed the jitter.

    :param X: [..., D]; NaN is ignored.
    :raises ValueError: if subtracting an offset solves the problem, with the column and the offset;
        if squared distances overflow.
    :warns UserWarning: if the lengthscale is too small for the range of the inputs.
    """
    info = np.finfo(gpflow.default_float())
    most = max(gpflow.default_jitter(), 1e4 * float(info.eps))
    rows = X.reshape(-1, X.shape[-1])
    known = ~np.isnan(rows)
    low = np.where(known, rows, np.inf).min(0, initial=np.inf)
    high = np.where(known, rows, -np.inf).max(0, initial=-np.inf)
    low, high = (np.where(known.any(0), v, 0.0) for v in (low, high))
    for part, read in _parts(kernels, X.shape[-1]):
        if not isinstance(part, gpflow.kernels.IsotropicStationary) or isinstance(
            part, gpflow.kernels.Periodic
        ):
            continue
        with tf.init_scope():
            lengthscales = np.broadcast_to(np.asarray(part.lengthscales), read.shape)
        far = np.maximum(np.abs(low), np.abs(high))[read] / lengthscales
        half = 0.5 * (high - low)[read] / lengthscales
        with np.errstate(over="ignore"):
            rounding, centred = (2.0 * float(info.eps) * np.sum(np.square(v)) for v in (far, half))
        if not np.isfinite(rounding):
            column = read[int(np.argmax(far))]
            raise ValueError(
                f"{name} holds {max(low[column], high[column], key=abs):.6g} in column {column}, "
                f"and squared distances of the kernel {type(part).__name__} overflow: correct the "
                "value, or change the column's units."
            )
        if rounding <= most:
            continue
        worst = int(np.argmax(far - half))
        column, lengthscale = read[worst], lengthscales[worst]
        if centred < 1e-2 * rounding:
            offset = 0.5 * (low[column] + high[column])
            raise ValueError(
                f"{name} lies around {offset:.6g} in column {column}, {far[worst]:.2g} times the "
                f"lengthscale {lengthscale:.3g} of the kernel {type(part).__name__}: squared "
                f"distances are then rounded so that covariances are wrong by {rounding:.1g}. "
                f"Subtract an origin such as {offset:.6g} from that column, of inducing and new "
                "inputs too."
            )
        worst = int(np.argmax(half))
        warn_caller(
            f"{name} has a range of {(high - low)[read[worst]]:.6g} in column {read[worst]}, and "
            f"the lengthscale of the kernel {type(part).__name__} is {lengthscales[worst]:.3g}: "
            f"distances are rounded so that covariances are wrong by {centred:.1g}, and most are "
            "0. Divide that column by a typical distance, or start with a larger lengthscale."
        )


def _is_batched(kernel: Kernel) -> bool:
    """Return whether a kernel accepts leading task axes.

    Those whose ``K`` and ``K_diag`` are implemented in GPflow or here do, except ChangePoints. That
    includes users' kernels that only define the covariance as a function of distance.
    """
    if isinstance(kernel, gpflow.kernels.ChangePoints):
        return False
    if isinstance(kernel, gpflow.kernels.Combination):
        return all(map(_is_batched, kernel.kernels))
    if isinstance(kernel, ObjectView):
        return _is_batched(kernel.view_kernel) and _is_batched(kernel.object_kernel)
    inner = getattr(kernel, "kernel", None)  # CompletedInputs
    if isinstance(inner, Kernel) and not _is_batched(inner):
        return False
    methods = (type(kernel).K, type(kernel).K_diag)
    return all(m.__module__.split(".")[0] in ("gpflow", "gpflow_bae") for m in methods)


def covariance_of_tasks(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """Return covariances [batch..., N, N] of the points of each task ``X [batch..., N, D]``.

    A kernel written for inputs [N, D] only, as in GPflow's documentation, is called for each task.
    """
    X = tf.convert_to_tensor(X)
    if X.shape.rank == 2 or _is_batched(kernel):
        return kernel(X)
    lead = tf.shape(X)[:-2]
    if X.shape[:-2].num_elements() == 1:
        return kernel(tf.reshape(X, X.shape[-2:]))[(None,) * (X.shape.rank - 2)]
    tasks = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], 0))
    tasks = tf.ensure_shape(tasks, [None, *X.shape[-2:]])
    found = tf.map_fn(lambda task: kernel(task), tasks)
    return tf.reshape(found, tf.concat([lead, tf.shape(found)[-2:]], 0))


def covariance_of_points(
    kernel: Kernel, function: Callable[[tf.Tensor], tf.Tensor], X: TensorType
) -> tf.Tensor:
    """Apply a pointwise function of a kernel to ``X [batch..., N, D]``: [..., batch..., N].

    :param function: function from points [N, D] to [..., N], such as variances or covariances with
        inducing points; a kernel without leading task axes gets all points as [N, D].
    """
    X = tf.convert_to_tensor(X)
    if X.shape.rank == 2 or _is_batched(kernel):
        return function(X)
    found = function(tf.reshape(X, [-1, X.shape[-1]]))
    return tf.reshape(found, tf.concat([tf.shape(found)[:-1], tf.shape(X)[:-1]], 0))
