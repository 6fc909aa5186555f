"""What kernels read of their inputs: which columns, as numbers or as ids, and with what digits."""

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
    "covariance_of_points",
    "covariance_of_tasks",
    "parts_of",
]


def parts_of(kernel: Kernel, columns: np.ndarray) -> Iterator[tuple[Kernel, np.ndarray]]:
    """Kernels without parts that a kernel is made of, each with the columns that it reads.

    :param columns: numbers of the columns that the whole is given, [D].
    :raises ValueError: for ``active_dims`` that are not there.
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
        yield kernel, read


def _parts(kernels: Sequence[Kernel], width: int) -> Iterator[tuple[Kernel, np.ndarray]]:
    for kernel in kernels:
        yield from parts_of(kernel, np.arange(width))


def check_columns_are_there(kernels: Sequence[Kernel], width: int) -> None:
    """Refuse kernels with ``active_dims`` that inputs of so many columns do not have.

    :raises ValueError: naming the kernel.
    """
    for _ in _parts(kernels, width):
        pass


def category_columns(kernels: Sequence[Kernel], width: int) -> list[int]:
    """Columns that some kernel reads as ids, so that nothing may move values in them."""
    ids = (gpflow.kernels.Coregion, Categorical, ObjectView)
    found = {int(c) for part, read in _parts(kernels, width) if isinstance(part, ids) for c in read}
    return sorted(found)


def check_categories(kernels: Sequence[Kernel], X: np.ndarray, name: str) -> None:
    """Refuse what GPflow's Coregion, which casts to integers, would take for another id.

    :param X: [..., D]; NaN is left to others.
    :raises ValueError: naming the column and the value.
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
    """Refuse inputs so far from zero that distances between them are rounding errors.

    GPflow finds squared distances from squares of the inputs over the lengthscale, whose rounding
    is what covariances are wrong by. It may not exceed the jitter that they are given anyway.

    :param X: [..., D]; NaN is left out.
    :raises ValueError: naming the column and the offset, where subtracting one mends it.
    :warns UserWarning: where the lengthscale is that small beside the range itself.
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
        rounding, centred = (2.0 * float(info.eps) * np.sum(np.square(v)) for v in (far, half))
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
    """Whether a kernel takes leading axes of tasks: GPflow's own and ours do, with one exception.

    Of another the code decides that computes it, such as GPflow's for a kernel that only says how a
    covariance depends on the distance.
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
    """Covariances [batch..., N, N] of the points of each task ``X [batch..., N, D]``.

    A kernel that is written for one table of inputs, as GPflow's documentation shows it, is asked
    task by task.
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
    """What a function of each point by itself makes of ``X [batch..., N, D]``: [..., batch..., N].

    :param function: of points [N, D] to [..., N], such as variances or covariances with inducing
        points, by a kernel that may know no leading axes of tasks.
    """
    X = tf.convert_to_tensor(X)
    if X.shape.rank == 2 or _is_batched(kernel):
        return function(X)
    found = function(tf.reshape(X, [-1, X.shape[-1]]))
    return tf.reshape(found, tf.concat([tf.shape(found)[:-1], tf.shape(X)[:-1]], 0))
