"""The linear model of coregionalisation for outputs with missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..data import as_pair
from ..kernels.reading import check_kernel_inputs

__all__ = ["LinearCoregionalisation", "principal_directions"]

NOISE_FLOOR = 1e-4  # variance of standardised outputs: keeps covariances of cells well conditioned

_tfd = tfp.distributions


@check_arguments(latent_dim=1)
@check_shapes("Y: [batch..., P]", "return: [P, L]")
def principal_directions(Y: np.ndarray, latent_dim: int) -> np.ndarray:
    """Return principal directions of outputs times their standard deviations, to initialise W.

    The covariance of two outputs uses all rows in which both are observed, and shrinks to zero if
    there are few.

    :param Y: outputs, about standardised; NaN where missing.
    :param latent_dim: L, at most P.
    :raises ValueError: for more directions than outputs.
    """
    Y = as_numbers(Y, "Y", rank=2)
    Y = Y.reshape(-1, Y.shape[-1])
    if np.isinf(Y).any():
        raise ValueError("Y is infinite somewhere: missing outputs are NaN.")
    if latent_dim > Y.shape[1]:
        raise ValueError(
            f"latent_dim is {latent_dim} for {Y.shape[1]} outputs; a linear model of "
            "coregionalisation has at most one channel for each output."
        )
    shown = ~np.isnan(Y)
    values = np.where(shown, Y, 0.0)
    both = shown.T.astype(float) @ shown.astype(float)
    covariance = values.T @ values / np.maximum(both, 1.0)
    covariance *= both / (both + 10.0)
    variances, directions = np.linalg.eigh(covariance)
    return (directions * np.sqrt(np.maximum(variances, 1e-2)))[:, ::-1][:, :latent_dim]


class LinearCoregionalisation(
    gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin
):
    r"""A GP autoencoder with a linear decoder and Gaussian noise, its codes integrated out.

    .. math:: y_{np} = \sum_l W_{pl} z_l(x_n) + e_{np}, \quad
        z_l = \sum_q s_{ql} f_{ql}(x_n) + s_{0l} c_{nl}

    with :math:`f_{ql} \sim GP(0, k_q)`, code noise :math:`c_{nl} \sim N(0, 1)`, which the outputs
    of one row share, and noise :math:`e_{np} \sim N(0, \sigma_p^2)`. Each code has a GP prior with
    a weighted sum of the kernels, so correlations of outputs may differ between timescales; for
    more freedom, ``deviations`` add a :math:`D_{qpl}` of small prior variance to
    :math:`W_{pl} s_{ql}`. This is the linear model of coregionalisation (Goovaerts 1997; Alvarez
    et al. 2012, section 4). Outputs have mean zero and are about standardised
    (:class:`~gpflow_bae.data.Standardiser`).

    Inference is exact, at cost C^3 for C observed cells: :meth:`maximum_log_likelihood_objective`,
    ``training_loss`` and :meth:`predict_y` use all cells of a task at once.
    :func:`~gpflow_bae.inference.fit_coregionalisation` and the posterior that it returns use
    blocks of neighbouring rows. Cells are indexed by row of ``X`` and column of the outputs.
    """

    @check_arguments(deviation=0.0)
    def __init__(
        self,
        kernels: Sequence[gpflow.kernels.Kernel],
        decoder: TensorType,
        scales: TensorType | None = None,
        noise_variance: TensorType | float = 0.1,
        deviation: float = 0.0,
        noise_floor: TensorType | float = NOISE_FLOOR,
    ):
        """
        :param kernels: Q kernels. Fix their variances, which are redundant with the scales
            (``gpflow.set_trainable(kernel.variance, False)``).
        :param decoder: initial W [P, L], such as :func:`principal_directions` of the outputs;
            equal columns would stay equal.
        :param scales: initial s [Q + 1, L], those of the code noise last; None for equal shares of
            the variance.
        :param noise_variance: initial value, for all outputs or for each [P].
        :param deviation: prior standard deviation of D; 0 for no deviations.
        :param noise_floor: lower bound of the noise variance, for all outputs or for each [P]. The
            default suits outputs of unit variance whose neighbouring rows differ by more than 0.01;
            a smaller one fits smoother outputs, as far as rounding allows.
        :raises TypeError: for a kernel that is not a ``gpflow.kernels.Kernel``.
        :raises ValueError: for no kernels, arrays of other shapes, and values out of their range.
        """
        super().__init__()
        self.kernels = list(kernels)
        decoder = as_numbers(decoder, "decoder")
        if not self.kernels or decoder.ndim != 2:
            raise ValueError(
                f"Got {len(self.kernels)} kernels and a decoder of shape {decoder.shape}; expected "
                "at least one, and [P, L]: outputs by channels."
            )
        shape = (len(self.kernels) + 1, decoder.shape[1])
        scales = (
            np.full(shape, shape[0] ** -0.5) if scales is None else as_numbers(scales, "scales")
        )
        if scales.shape != shape:
            raise ValueError(
                f"scales has shape {scales.shape}; expected {shape}: a row for each kernel and one "
                "for the code noise, by channels."
            )
        noise_variance = _per_output(noise_variance, "noise_variance", len(decoder))
        noise_floor = _per_output(noise_floor, "noise_floor", len(decoder))
        for name, values, low in (
            ("decoder", decoder, -np.inf),
            ("scales", scales, 0.0),
            ("noise_floor", noise_floor, 0.0),
            ("noise_variance", noise_variance, noise_floor),
        ):
            if not ((values > low) & np.isfinite(values)).all():
                above = "" if np.max(low) == -np.inf else f" above {np.max(low):g}"
                raise ValueError(f"{name} must hold finite numbers{above}, got {values.tolist()}.")
        zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
        self.decoder = Parameter(decoder, prior=_tfd.Normal(zero, one))
        self.scales = Parameter(scales, transform=gpflow.utilities.positive())
        above = tfp.bijectors.Shift(gpflow.utilities.to_default_float(noise_floor))
        self.noise_variance = Parameter(
            noise_variance,
            transform=tfp.bijectors.Chain([above, gpflow.utilities.positive()]),
        )
        self.deviation = float(deviation)
        self.deviations = None
        if deviation > 0.0:  # in units of the prior, so that all parameters have a similar scale
            self.deviations = Parameter(
                np.zeros((shape[0], *decoder.shape)), prior=_tfd.Normal(zero, one)
            )

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        """Check that the kernels can read inputs [N, D], with enough float precision.

        :param name: name of the inputs in error messages.
        :raises ValueError: naming the column.
        """
        check_kernel_inputs(self.kernels, X, name)

    @property
    def num_outputs(self) -> int:
        """Number of outputs P."""
        return int(self.decoder.shape[0])

    @property
    def mixing(self) -> list[tf.Tensor]:
        """Mixing matrices [P, L] of each kernel's functions, and of the code noise last."""
        found = tf.convert_to_tensor(self.scales)[:, None, :] * self.decoder
        if self.deviations is not None:
            found += self.deviation * tf.convert_to_tensor(self.deviations)
        return tf.unstack(found)

    @check_shapes("X: [n, D]", "row: [C]", "column: [C]", "task: [n]", "return: [C, C]")
    def covariance(
        self,
        X: TensorType,
        row: TensorType,
        column: TensorType,
        task: TensorType | None = None,
    ) -> tf.Tensor:
        """Return the covariance of observed cells, noise included.

        :param task: number of each row's task; tasks are independent. None for one task.
        """
        noise = tf.gather(tf.convert_to_tensor(self.noise_variance), column)
        return self._cross_covariance(X, task, row, column, row, column) + tf.linalg.diag(noise)

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self, data: tuple[TensorType, TensorType]) -> tf.Tensor:
        """Return the log marginal likelihood of the observed cells, in nats.

        :param data: ``(X, Y)``: inputs [N, D] and outputs [N, P], NaN where missing.
        """
        X, Y = self._checked(data)
        row, column = _cells(~np.isnan(Y))
        return self.log_marginal(X, row, column, Y[row, column])

    def predict_y(
        self, Xnew: TensorType | None, *, given: tuple[TensorType, TensorType]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances of observations [N', P], noise included.

        :param Xnew: inputs of other rows [N', D]; None for the rows of ``given``, whose observed
            cells also inform the missing ones of the same row.
        :param given: ``(X, Y)`` to condition on, usually the training data.
        """
        X, Y = self._checked(given)
        row, column = _cells(~np.isnan(Y))
        first, all_rows = 0, X
        if Xnew is not None:
            new = as_numbers(Xnew, "Xnew")
            self.check_inputs(new, "Xnew")
            first, all_rows = len(X), np.concatenate([X, new])
        shape = (len(all_rows) - first, self.num_outputs)
        at, of = _cells(np.ones(shape, bool))
        moments = self.predict(all_rows, row, column, Y[row, column], first + at, of)
        mean, variance = (tf.reshape(moment, shape) for moment in moments)
        return mean, variance

    @check_shapes("X: [n, D]", "row: [C]", "column: [C]", "value: [C]", "task: [n]", "return: []")
    def log_marginal(
        self,
        X: TensorType,
        row: TensorType,
        column: TensorType,
        value: TensorType,
        task: TensorType | None = None,
    ) -> tf.Tensor:
        """Return the log density of observed cells, in nats.

        :param task: as in :meth:`covariance`.
        """
        return -_negative_log_density(self.covariance(X, row, column, task), value)

    @check_shapes(
        "X: [n, D]",
        "row: [C]",
        "column: [C]",
        "value: [C]",
        "target_row: [K]",
        "target_column: [K]",
        "task: [n]",
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
        task: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances of target cells given observed ones, noise included.

        :param task: as in :meth:`covariance`.
        """
        cross = self._cross_covariance(X, task, row, column, target_row, target_column)
        mean, explained = _condition(self.covariance(X, row, column, task), cross, value)
        prior = tf.gather(tf.convert_to_tensor(self.noise_variance), target_column)
        *smooth, of_rows = (tf.reduce_sum(tf.square(A), -1) for A in self.mixing)
        prior += tf.gather(of_rows, target_column)
        for kernel, scale in zip(self.kernels, smooth, strict=True):
            at_rows = tf.gather(kernel(X, full_cov=False), target_row)
            prior += tf.gather(scale, target_column) * at_rows
        return mean, prior - explained

    @check_shapes(
        "X: [n, D]",
        "row: [C]",
        "column: [C]",
        "target_row: [K]",
        "target_column: [K]",
        "return: [K, K]",
    )
    def predict_covariance(
        self,
        X: TensorType,
        row: TensorType,
        column: TensorType,
        target_row: TensorType,
        target_column: TensorType,
    ) -> tf.Tensor:
        """Return the covariance of target cells given observed ones, noise included."""
        L = tf.linalg.cholesky(self.covariance(X, row, column))
        cross = self._cross_covariance(X, None, row, column, target_row, target_column)
        solved = tf.linalg.triangular_solve(L, cross)
        prior = self.covariance(X, target_row, target_column)
        return prior - tf.linalg.matmul(solved, solved, transpose_a=True)

    def _checked(self, data: tuple[TensorType, TensorType]) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and outputs of one task as arrays.

        :raises ValueError: for other shapes, and inputs that the kernels cannot read.
        """
        X, Y = as_pair(data)
        X, Y = as_numbers(X, "X"), as_numbers(Y, "Y")
        if X.ndim != 2 or Y.shape != (len(X), self.num_outputs):
            raise ValueError(
                f"X has shape {X.shape} and Y {Y.shape}; expected [N, D] and "
                f"[N, {self.num_outputs}], rows of one task. fit_coregionalisation takes several."
            )
        self.check_inputs(X)
        return X, Y

    def _cross_covariance(
        self,
        X: tf.Tensor,
        task: tf.Tensor | None,
        row: tf.Tensor,
        column: tf.Tensor,
        other: tf.Tensor,
        at: tf.Tensor,
    ) -> tf.Tensor:
        """Return the covariance [C, K] of cells without observation noise."""
        same = tf.cast(row[:, None] == other, gpflow.default_float())
        of_inputs = [kernel(X) for kernel in self.kernels]
        if task is not None:
            together = task[:, None] == task
            of_inputs = [tf.where(together, K, tf.zeros_like(K)) for K in of_inputs]
        # Whole rows are gathered twice, which takes less than half the time of gathering columns.
        of_rows = [tf.gather(tf.transpose(tf.gather(K, other)), row) for K in of_inputs]
        parts = [
            K * tf.matmul(tf.gather(A, column), tf.gather(A, at), transpose_b=True)
            for K, A in zip([*of_rows, same], self.mixing, strict=True)
        ]
        return tf.add_n(parts)


def _per_output(value: Any, name: str, num_outputs: int) -> np.ndarray:
    """Return a value for each output [P], from one for all or from P of them."""
    found = as_numbers(value, name)
    if found.shape not in ((), (num_outputs,)):
        raise ValueError(
            f"{name} has shape {found.shape}; expected one number, or one for each of "
            f"{num_outputs} outputs."
        )
    return np.broadcast_to(found, (num_outputs,))


def _cells(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the True entries of a mask [N, P]."""
    row, column = np.nonzero(mask)
    return row.astype(np.int32), column.astype(np.int32)


@tf.custom_gradient
def _negative_log_density(covariance: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, object]:
    """Return -log N(value; 0, covariance), with a gradient at half the cost of the Cholesky's."""
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
    """Return conditional means of targets given values [C], and the reduction of their variances.

    With A = K^-1 k and a = K^-1 y they are k^T a and the diagonal of k^T A. The gradient only
    needs these, where that of a Cholesky factor would cost several factorisations.

    :param covariance: K [C, C].
    :param cross: k [C, K].
    """
    L = tf.linalg.cholesky(covariance)
    half = tf.linalg.triangular_solve(L, tf.concat([cross, value[:, None]], 1))
    mean = tf.linalg.matvec(half[:, :-1], half[:, -1], transpose_a=True)
    explained = tf.reduce_sum(tf.square(half[:, :-1]), 0)

    def gradient(of_mean: tf.Tensor, of_explained: tf.Tensor) -> tuple[tf.Tensor, ...]:
        solved = tf.linalg.triangular_solve(L, half, adjoint=True)
        A, a = solved[:, :-1], solved[:, -1:]
        pulled = tf.linalg.matvec(A, of_mean)[:, None]
        of_covariance = -0.5 * (a * tf.transpose(pulled) + pulled * tf.transpose(a))
        of_covariance -= tf.matmul(A * of_explained, A, transpose_b=True)
        of_cross = a * of_mean + 2.0 * A * of_explained
        return of_covariance, of_cross, pulled[:, 0]

    return (mean, explained), gradient
