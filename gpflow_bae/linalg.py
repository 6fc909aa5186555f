"""Linear algebra that says what failed: TensorFlow's CPU Cholesky returns NaN in silence."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["add_jitter", "cholesky"]


def add_jitter(matrix: TensorType) -> tf.Tensor:
    """``matrix [..., M, M]`` plus GPflow's ``default_jitter()`` on its diagonal."""
    matrix = tf.convert_to_tensor(matrix)
    jitter = tf.cast(gpflow.default_jitter(), matrix.dtype)
    return tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + jitter)


def cholesky(matrix: TensorType, what: str) -> tf.Tensor:
    """Cholesky factor of ``matrix [..., M, M]``, checked for finiteness when run eagerly.

    Inside a compiled round the check would cost a synchronisation per step; there the round's
    own check of its state catches the NaN, and the eager diagnosis that follows ends up here.

    :param what: names the matrix in the error, e.g. ``"K(Z, Z) of SquaredExponential"``.
    :raises ValueError: if the factor is not finite; names the matrix, the jitter, and the task
        and kernel (the leading dimensions of ``matrix``).
    """
    factor = tf.linalg.cholesky(matrix)
    if tf.executing_eagerly():
        bad = ~np.isfinite(factor.numpy()).all(axis=(-2, -1))
        if bad.any():
            where = f" at [task..., kernel] {np.argwhere(bad).tolist()}" if bad.ndim else ""
            finite = bool(np.isfinite(tf.convert_to_tensor(matrix).numpy()).all())
            hint = (
                "raise the jitter (gpflow.config.set_default_jitter) or move inputs that coincide"
                if finite
                else "the matrix itself holds NaN or infinity: check inputs and hyperparameters"
            )
            raise ValueError(
                f"Cholesky decomposition of {what} failed{where} with jitter "
                f"{gpflow.default_jitter():g}: {hint}."
            )
    return factor
