r"""Coordinates of the codes of each task: by their prior, or by prior and information together.

The codes Z [N, L] of a task have a prior with the covariance F F^T, F = blockdiag over channels of
Cholesky factors, and what its observations say of them is about a Gaussian with the precision
D = blockdiag over points of D_n [L, L]. With C C^T = I + F^T D F::

    Z = F u              white under the prior,
    Z = F C^-T u         white under the posterior: its precision is F^-T (I + F^T D F) F^-1.

Under a smooth GP every frame of a video informs all the others, so that its posterior is stiffer
than its prior by orders of magnitude along some directions and no stiffer along the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from ..linalg import cholesky
from ..models import BayesianAutoencoder

__all__ = ["CodeCoordinates", "CoupledCodes", "WhitenedCodes", "code_coordinates"]


class CodeCoordinates(Protocol):
    """A linear map of coordinates [T, N, L] to codes [T, N, L]."""

    def to_value(self, u: tf.Tensor) -> tf.Tensor:
        """The codes at coordinates."""

    def from_value(self, codes: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`to_value`."""

    def gradient(self, by_value: tf.Tensor) -> tf.Tensor:
        """The gradient by coordinates, given that by the codes."""


class WhitenedCodes(NamedTuple):
    """Channel by channel: codes = factor u."""

    factors: tf.Tensor  # [T, C, N, N] lower triangular, C = 1 or L

    def to_value(self, u: tf.Tensor) -> tf.Tensor:
        """The codes at coordinates."""
        return self._mapped(tf.linalg.matmul, u)

    def from_value(self, codes: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`to_value`."""
        return self._mapped(tf.linalg.triangular_solve, codes)

    def gradient(self, by_value: tf.Tensor) -> tf.Tensor:
        """The gradient by coordinates, given that by the codes."""
        return self._mapped(lambda f, g: tf.linalg.matmul(f, g, transpose_a=True), by_value)

    def _mapped(self, function: Any, codes: tf.Tensor) -> tf.Tensor:
        if self.factors.shape[-3] == 1:  # one product for all channels
            return function(self.factors[..., 0, :, :], codes)
        by_channel = tf.linalg.matrix_transpose(codes)[..., None]  # [T, L, N, 1]
        return tf.linalg.matrix_transpose(function(self.factors, by_channel)[..., 0])


class CoupledCodes(NamedTuple):
    """All points and channels of a task together: codes = matrix u."""

    matrix: tf.Tensor  # [T, N L, N L], points first
    inverse: tf.Tensor

    def to_value(self, u: tf.Tensor) -> tf.Tensor:
        """The codes at coordinates."""
        return _product(self.matrix, u)

    def from_value(self, codes: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`to_value`."""
        return _product(self.inverse, codes)

    def gradient(self, by_value: tf.Tensor) -> tf.Tensor:
        """The gradient by coordinates, given that by the codes."""
        return _product(self.matrix, by_value, transpose=True)


def _product(matrix: tf.Tensor, codes: tf.Tensor, *, transpose: bool = False) -> tf.Tensor:
    shape = tf.shape(codes)
    flat = tf.reshape(codes, [shape[0], -1])
    return tf.reshape(tf.linalg.matvec(matrix, flat, transpose_a=transpose), shape)


def code_coordinates(
    model: BayesianAutoencoder, parameters: Any, X: tf.Tensor | None, information: Any = ()
) -> CodeCoordinates | None:
    """Of the codes of tasks; None under a prior that gives them no covariance.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    :param X: inputs of the tasks [T, N, D].
    :param information: of their observations on each code [T, N, L, L], positive semi-definite;
        () for the coordinates of the prior.
    """
    if X is None or model.whitened_codes:
        return None
    covariance = model.bind(parameters).latent_prior.code_covariance(X)
    if covariance is None:
        return None
    factors = cholesky(covariance, "the prior covariance of the codes")
    return _coupled(factors, information) if tf.is_tensor(information) else WhitenedCodes(factors)


def _coupled(factors: tf.Tensor, information: tf.Tensor) -> CoupledCodes:
    T, N, L, _ = tf.unstack(tf.shape(information))
    factors = tf.broadcast_to(factors, [T, L, N, N])
    # F[n, l, m, k] = factors[l, n, m] where l = k.
    blocks = tf.linalg.diag(tf.transpose(factors, [0, 2, 3, 1]))  # [T, N, N, L, L]
    F = tf.transpose(blocks, [0, 1, 3, 2, 4])  # [T, N, L, N, L]
    informed = tf.linalg.matmul(information, tf.reshape(F, [T, N, L, N * L]))
    F = tf.reshape(F, [T, N * L, N * L])
    informed = tf.reshape(informed, [T, N * L, N * L])
    identity = tf.eye(N * L, batch_shape=[T], dtype=F.dtype)
    precision = identity + tf.linalg.matmul(F, informed, transpose_a=True)
    C = cholesky(precision, "the posterior precision of the codes in units of their prior")
    transposed = tf.linalg.triangular_solve(C, tf.linalg.matrix_transpose(F))
    inverse = tf.linalg.matmul(C, tf.linalg.triangular_solve(F, identity), transpose_a=True)
    return CoupledCodes(tf.linalg.matrix_transpose(transposed), inverse)
