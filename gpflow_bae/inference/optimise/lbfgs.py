"""L-BFGS for deterministic losses of at most a few thousand parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.optimize
import tensorflow as tf

from ...core import functional

__all__ = [
    "Minimum",
    "assign_vector",
    "lbfgs",
    "loss_of",
    "loss_with_gradient",
    "vector_of",
]

_BARRIER = 1e10  # replaces a loss that is not finite, so that the line search backtracks

LossAndGradient: TypeAlias = Callable[[np.ndarray], tuple[Any, Any]]


class Minimum(NamedTuple):
    """Result of L-BFGS."""

    vector: np.ndarray
    loss: float  # infinite if no finite loss was found


def vector_of(tensors: Sequence[tf.Tensor | tf.Variable]) -> np.ndarray:
    """Return the values of tensors or variables as one vector in ``default_float()``."""
    return functional.flatten(tensors).numpy()


def assign_vector(variables: Sequence[tf.Variable], vector: np.ndarray) -> None:
    """Assign to variables a vector as :func:`vector_of` returns it."""
    values = functional.unflatten(tf.constant(vector), variables)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def loss_with_gradient(
    loss: Callable[..., tf.Tensor], variables: Sequence[tf.Variable]
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return a function that returns a loss and its gradient by all variables, as one vector.

    The gradient by variables that the loss does not depend on is zero.
    """

    def evaluated(*arguments: Any) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(*arguments)
        found = tape.gradient(value, variables, unconnected_gradients="zero")
        return value, functional.flatten([tf.convert_to_tensor(g) for g in found])

    return evaluated


def loss_of(loss_and_gradient: LossAndGradient, vector: np.ndarray) -> float:
    """Return the loss at a vector; infinite if it or its gradient is not finite."""
    loss, _ = _evaluated(loss_and_gradient, vector)
    return loss if loss < _BARRIER else np.inf


def _evaluated(loss_and_gradient: LossAndGradient, x: np.ndarray) -> tuple[float, np.ndarray]:
    try:
        loss, gradient = loss_and_gradient(x)
    except tf.errors.InvalidArgumentError:  # Cholesky failures raise on a GPU, and are NaN on a CPU
        return _BARRIER, np.zeros_like(x)
    value, slope = float(loss), np.asarray(gradient)
    finite = np.isfinite(value) and np.isfinite(slope).all()
    return (value, slope) if finite else (_BARRIER, np.zeros_like(x))


def lbfgs(
    loss_and_gradient: LossAndGradient,
    start: np.ndarray | Sequence[np.ndarray],
    max_iterations: int,
    *,
    max_evaluations: int | None = None,
    num_corrections: int = 10,
    callback: Callable[[np.ndarray], Any] | None = None,
) -> Minimum:
    """Minimise a loss of a vector by SciPy's L-BFGS-B (Zhu et al. 1997).

    If the loss or its gradient is not finite, or a Cholesky factorisation fails, the line search
    backtracks.

    :param loss_and_gradient: returns loss and gradient at a vector in ``default_float()``.
    :param start: an initial vector, or several, of which the one with the lowest loss is used.
    :param max_iterations: largest number of steps.
    :param max_evaluations: largest number of evaluations of the loss; SciPy's default if None.
    :param num_corrections: number of corrections in the Hessian approximation.
    :param callback: called with the vector after each step; raising ``StopIteration`` ends the fit.
    """
    starts = [start] if isinstance(start, np.ndarray) else list(start)
    first = starts[0]
    if len(starts) > 1:
        first = min(starts, key=lambda x: loss_of(loss_and_gradient, x))
    options: dict[str, Any] = {"maxiter": max_iterations, "maxcor": num_corrections}
    if max_evaluations is not None:
        options["maxfun"] = max_evaluations
    found = scipy.optimize.minimize(
        lambda x: _evaluated(loss_and_gradient, x),
        first,
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options=options,
    )
    if found.fun >= _BARRIER:
        return Minimum(first, np.inf)
    return Minimum(found.x, float(found.fun))
