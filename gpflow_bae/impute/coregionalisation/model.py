"""The model's covariance, and what it predicts, for the cells of one block of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

__all__ = ["Block", "LinearCoregionalisation"]

NOISE_FLOOR = 1e-6  # variance, of standardised outputs, as small as GPflow's jitter

_tfd = tfp.distributions


class Block(NamedTuple):
    """Observed cells, and cells to predict, of the same rows."""

    X: np.ndarray  # [n, D]
    row: np.ndarray  # [C], of X
    column: np.ndarray  # [C]
    value: np.ndarray  # [C]
    target_row: np.ndarray  # [K]
    target_column: np.ndarray  # [K]


class LinearCoregionalisation(gpflow.Module):
    r"""A GP autoencoder with a linear decoder and Gaussian noise, its codes integrated out.

    .. math:: y_{np} = \sum_l W_{pl} z_l(x_n) + e_{np}, \quad
        z_l = \sum_q s_{ql} f_{ql}(x_n) + s_{0l} c_{nl}

    with :math:`f_{ql} \sim GP(0, k_q)`, code noise :math:`c_{nl} \sim N(0, 1)`, which is what the
    outputs of a row share at that row alone, and noise :math:`e_{np} \sim N(0, \sigma_p^2)`. Each
    code has a GP prior with a mixture of the kernels, so that outputs may go together otherwise
    over days than over an hour; where that is not enough, ``deviations`` add to
    :math:`W_{pl} s_{ql}` a :math:`D_{qpl}` of small prior variance. This is the linear model of
    coregionalisation (Goovaerts 1997; Alvarez et al. 2012, section 4). Of a block with C observed
    cells all is exact, at cost C^3.
    """

    def __init__(
        self,
        kernels: Sequence[gpflow.kernels.Kernel],
        decoder: np.ndarray,
        scales: np.ndarray,
        noise_variance: np.ndarray,
        deviation: float = 0.0,
    ):
        """
        :param kernels: Q of them, of variance 1.
        :param decoder: W [P, L].
        :param scales: s [Q + 1, L], those of the code noise last.
        :param noise_variance: [P], above 1e-6.
        :param deviation: prior standard deviation of D; 0 for none.
        """
        super().__init__()
        self.kernels = list(kernels)
        zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
        self.decoder = Parameter(decoder, prior=_tfd.Normal(zero, one))
        self.scales = Parameter(scales, transform=gpflow.utilities.positive())
        self.noise_variance = Parameter(
            noise_variance, transform=gpflow.utilities.positive(NOISE_FLOOR)
        )
        self.deviation = float(deviation)
        self.deviations = None
        if deviation > 0.0:  # in units of their prior, so that optimisers see one scale
            shape = (len(scales), *np.shape(decoder))
            self.deviations = Parameter(np.zeros(shape), prior=_tfd.Normal(zero, one))

    @property
    def mixing(self) -> list[tf.Tensor]:
        """What turns the functions of each kernel, and code noise, into outputs: [P, L] each."""
        found = tf.convert_to_tensor(self.scales)[:, None, :] * self.decoder
        if self.deviations is not None:
            found += self.deviation * tf.convert_to_tensor(self.deviations)
        return tf.unstack(found)

    @check_shapes("X: [n, D]", "row: [C]", "column: [C]", "return: [C, C]")
    def covariance(self, X: TensorType, row: TensorType, column: TensorType) -> tf.Tensor:
        """Of observed cells, noise included."""
        noise = tf.gather(tf.convert_to_tensor(self.noise_variance), column)
        return self._between(X, row, column, row, column) + tf.linalg.diag(noise)

    @check_shapes("X: [n, D]", "row: [C]", "column: [C]", "value: [C]", "return: []")
    def log_marginal(
        self, X: TensorType, row: TensorType, column: TensorType, value: TensorType
    ) -> tf.Tensor:
        """Log density of observed cells, in nats."""
        return -_negative_log_density(self.covariance(X, row, column), value)

    @check_shapes(
        "X: [n, D]",
        "row: [C]",
        "column: [C]",
        "value: [C]",
        "target_row: [K]",
        "target_column: [K]",
        "return[0]: [K]",
        "return[1]: [K]",
    )
    def predict(
        self,
        X: TensorType,
        row: TensorType,
        column: TensorType,
        value: TensorType,
        target_row: TensorType,
        target_column: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances of cells given observed ones; noise is included."""
        cross = self._between(X, row, column, target_row, target_column)
        mean, explained = _condition(self.covariance(X, row, column), cross, value)
        prior = tf.gather(tf.convert_to_tensor(self.noise_variance), target_column)
        *smooth, of_rows = (tf.reduce_sum(tf.square(A), -1) for A in self.mixing)
        prior += tf.gather(of_rows, target_column)
        for kernel, scale in zip(self.kernels, smooth, strict=True):
            at_rows = tf.gather(kernel(X, full_cov=False), target_row)
            prior += tf.gather(scale, target_column) * at_rows
        return mean, prior - explained

    def _between(
        self, X: tf.Tensor, row: tf.Tensor, column: tf.Tensor, other: tf.Tensor, at: tf.Tensor
    ) -> tf.Tensor:
        """Covariance of the decoded codes of cells: [C, K]."""
        same = tf.cast(row[:, None] == other, gpflow.default_float())
        of_rows = [tf.gather(tf.gather(k(X), row), other, axis=1) for k in self.kernels]
        parts = [
            K * tf.matmul(tf.gather(A, column), tf.gather(A, at), transpose_b=True)
            for K, A in zip([*of_rows, same], self.mixing, strict=True)
        ]
        return tf.add_n(parts)


@tf.custom_gradient
def _negative_log_density(covariance: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, object]:
    """-log N(value; 0, covariance); its gradient in closed form costs half of the Cholesky's."""
    L = tf.linalg.cholesky(covariance)
    solved = tf.linalg.cholesky_solve(L, value[:, None])
    count = tf.cast(tf.shape(value)[0], value.dtype)
    loss = 0.5 * (tf.reduce_sum(value * solved[:, 0]) + count * float(np.log(2.0 * np.pi)))
    loss += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inverse = tf.linalg.cholesky_solve(L, tf.eye(tf.shape(L)[0], dtype=L.dtype))
        outer = tf.matmul(solved, solved, transpose_b=True)
        return 0.5 * upstream * (inverse - outer), upstream * solved[:, 0]

    return loss, gradient


@tf.custom_gradient
def _condition(
    covariance: tf.Tensor, cross: tf.Tensor, value: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], object]:
    """Conditional means, and how much smaller variances become, of targets given values [C].

    With A = K^-1 k and a = K^-1 y they are k^T a and the diagonal of k^T A; the gradient needs no
    more than these, where that of a Cholesky factor would cost several factorisations.

    :param covariance: K [C, C].
    :param cross: k [C, K].
    """
    L = tf.linalg.cholesky(covariance)
    solved = tf.linalg.cholesky_solve(L, tf.concat([cross, value[:, None]], 1))
    A, a = solved[:, :-1], solved[:, -1:]
    mean = tf.linalg.matmul(cross, a, transpose_a=True)[:, 0]
    explained = tf.reduce_sum(cross * A, 0)

    def gradient(of_mean: tf.Tensor, of_explained: tf.Tensor) -> tuple[tf.Tensor, ...]:
        pulled = tf.linalg.matvec(A, of_mean)[:, None]
        of_covariance = -0.5 * (a * tf.transpose(pulled) + pulled * tf.transpose(a))
        of_covariance -= tf.matmul(A * of_explained, A, transpose_b=True)
        of_cross = a * of_mean + 2.0 * A * of_explained
        return of_covariance, of_cross, pulled[:, 0]

    return (mean, explained), gradient
