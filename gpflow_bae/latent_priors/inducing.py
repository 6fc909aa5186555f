"""Base class of priors with inducing points: features, and Bayesian regression on them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import covariances
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction

from ..core.linalg import cholesky, gram, sum_of_squares
from ..core.row_blocks import are_many, over_blocks, sum_over_blocks
from ..inducing_variables import ObjectViewInducingPoints, as_inducing_points, bounded
from ..kernels.reading import (
    category_columns,
    check_categories,
    check_columns_are_there,
    covariance_of_points,
)
from .base import gaussian_log_density
from .kernel_prior import KernelLatentPrior, KernelLike, channels_first

__all__ = ["InducingLatentPrior", "InducingPosterior", "weighted_codes", "weighted_features"]


def weighted_features(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return each channel's features times its weights: [..., L, N].

    :param features: [..., C, M, N], C = 1 if channels share them, else C = L.
    :param weights: [..., L, M].
    """
    if features.shape[-3] == 1:
        # One product takes 0.9 ms with its gradient on one thread, for 64 channels of 96 points;
        # with a copy of the features for each channel it took 4 ms.
        return tf.linalg.matmul(weights, tf.squeeze(features, -3))
    return tf.linalg.matvec(features, weights, transpose_a=True)


def weighted_codes(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return :func:`weighted_features` with channels last, the layout of codes: [..., N, L].

    If channels share the features, the product has this layout already: a transpose would take
    longer than the product, 0.1 ms on one thread for 512 points of 16 channels.
    """
    if features.shape[-3] == 1:
        features = tf.squeeze(features, -3)
        return tf.linalg.matmul(features, weights, transpose_a=True, transpose_b=True)
    return channels_first(weighted_features(features, weights))


def _is_box(points: gpflow.inducing_variables.InducingPoints) -> bool:
    """Return whether points have a uniform prior, whose sigmoid transform rounds ids."""
    return isinstance(getattr(points.Z, "prior", None), tfp.distributions.Uniform)


class InducingPosterior(NamedTuple):
    """Posterior of the whitened inducing outputs, and the evidence of the pseudo-observations."""

    mean: tf.Tensor  # [..., L, M]
    factor: tf.Tensor | None  # [..., L, M, M], chol of the precision; None if outputs are known
    log_marginal: tf.Tensor  # [...]


class InducingLatentPrior(KernelLatentPrior):
    r"""Base class of sparse GP priors, in terms of features of the inputs.

    The features are :math:`\phi(x) = L_Z^{-1} k(Z, x)` with :math:`L_Z L_Z^T = K_{ZZ}`. The
    latent function is :math:`\phi(x)^T \nu` with whitened inducing outputs
    :math:`\nu \sim N(0, I)`, plus a residual of variance :math:`k(x, x) - |\phi(x)|^2` that
    subclasses treat differently. Covariances are ``gpflow.covariances.Kuu`` and ``Kuf``, so
    inter-domain inducing variables work if those are registered for them.
    """

    whitened_inducing: Parameter | None = None

    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        latent_dim: int,
        code_noise_variance: float | None = 1e-3,
        mean_function: MeanFunction | None = None,
    ):
        """
        :param inducing_variable: GPflow inducing points, or an array [M, D] to make them from.
            A model that samples them gives them a prior
            (:func:`gpflow_bae.inducing_variables.bounded`).
        :raises ValueError: for points without the columns that the kernel reads, or with values
            between its ids.
        """
        super().__init__(kernel, latent_dim, code_noise_variance, mean_function)
        self.inducing_variable = as_inducing_points(inducing_variable)
        if self._points_are_inputs:
            Z = np.asarray(self.inducing_variable.Z)
            check_columns_are_there(self._kernels_inside, Z.shape[-1])
            if self.id_columns and _is_box(self.inducing_variable):
                self.inducing_variable = bounded(self.inducing_variable, self.id_columns)
                Z = np.asarray(self.inducing_variable.Z)
            check_categories(self._kernels_inside, Z, "The array of inducing inputs Z")

    @property
    def _points_are_inputs(self) -> bool:
        """Whether inducing points have the kernels' input columns; object-view points do not."""
        return not isinstance(self.inducing_variable, ObjectViewInducingPoints)

    def check_inputs(self, X: np.ndarray, name: str = "X") -> None:
        width = self.inducing_variable.Z.shape[-1]
        if self._points_are_inputs and self.inputs is None and width != X.shape[-1]:
            raise ValueError(
                f"{name} has D = {X.shape[-1]} columns, and the inducing inputs have {width}: give "
                "inducing inputs [M, D] of the columns of X."
            )
        super().check_inputs(X, name)

    @property
    def id_columns(self) -> list[int]:
        """Columns of the inducing inputs that a kernel reads as ids."""
        if not self._points_are_inputs:
            return []
        return category_columns(self._kernels_inside, int(self.inducing_variable.Z.shape[-1]))

    @property
    def num_inducing(self) -> int:
        """Number of inducing points M."""
        return int(self.inducing_variable.Z.shape[0])

    def _features(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return features [..., C, M, N] and the residual variance without noise [..., C, N]."""
        points, jitter = self.inducing_variable, gpflow.default_jitter()
        Kzz = tf.stack([covariances.Kuu(points, k, jitter=jitter) for k in self.kernels], 0)
        L = cholesky(Kzz, f"K(Z, Z) of the sparse latent GP ({self._kernel_names()})")
        Kzx = tf.stack([self._inducing_covariance(k, X) for k in self.kernels], 0)
        Kzx = self._inducing_axis_inwards(Kzx)  # from [C, M, xbatch..., N]
        shape = tf.concat([tf.shape(Kzx)[:-2], tf.shape(L)[-2:]], 0)
        features = tf.linalg.triangular_solve(tf.broadcast_to(L, shape), Kzx)
        left = self._variances(X) - sum_of_squares(features, -2)
        # Rounding can make a variance of zero (X on Z) slightly negative.
        return features, tf.maximum(left, tf.zeros_like(left))

    @check_shapes("X: [batch..., N, D]", "return: [batch..., C]")
    def unexplained_share(self, X: TensorType) -> tf.Tensor:
        """Return the share of each kernel's variance that the inducing outputs leave, over inputs.

        It is the mean of (k(x, x) - q(x, x)) / k(x, x), from 0, if inducing points determine the
        process at the inputs, to 1, if they say nothing of it.
        """
        _, left = self._features(X)
        return tf.reduce_mean(left / self._variances(X), -1)

    def _inducing_covariance(self, kernel: gpflow.kernels.Kernel, X: TensorType) -> tf.Tensor:
        """Return k(Z, X) [M, xbatch..., N]."""
        of_points = functools.partial(covariances.Kuf, self.inducing_variable, kernel)
        return covariance_of_points(kernel, of_points, X)

    @staticmethod
    def _inducing_axis_inwards(Kzx: tf.Tensor) -> tf.Tensor:
        """Transpose [C, M, xbatch..., N] to [xbatch..., C, M, N]."""
        rank = Kzx.shape.rank
        return tf.transpose(Kzx, [*range(2, rank - 1), 0, 1, rank - 1])

    def _regress(
        self, features: tf.Tensor, noise: tf.Tensor, target: tf.Tensor
    ) -> InducingPosterior:
        """Regress ``target [..., L, N]`` with ``noise [..., L or C, N]`` on the features."""
        if self.whitened_inducing is not None:
            nu = tf.convert_to_tensor(self.whitened_inducing)  # [L, M]
            residual = target - weighted_features(features, nu)
            density = gaussian_log_density(residual, noise)
            return InducingPosterior(nu, None, tf.reduce_sum(density, axis=[-2, -1]))
        precision, projected, density = self._sums(features, noise, target)
        return self._solved(precision, projected, density)

    @staticmethod
    def _sums(
        features: tf.Tensor, noise: tf.Tensor, target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the regression's sufficient statistics, summed over points.

        The features' precision [..., L or C, M, M], their product with the target [..., L, M],
        and the log density of the target given zero features [..., L].
        """
        root = tf.math.rsqrt(noise)
        scaled = features * root[..., None, :]  # [..., L or C, M, N]
        projected = tf.linalg.matvec(scaled, target * root)
        return gram(scaled), projected, tf.reduce_sum(gaussian_log_density(target, noise), -1)

    def _solved(
        self, precision: tf.Tensor, projected: tf.Tensor, density: tf.Tensor
    ) -> InducingPosterior:
        """Solve the regression with the statistics of :meth:`_sums`."""
        B = self._precision_factor(precision)
        projected = projected[..., None]  # [..., L, M, 1]
        shape = tf.concat([tf.shape(projected)[:-2], tf.shape(B)[-2:]], 0)
        B_all = tf.broadcast_to(B, shape)  # the solve needs one factor per right-hand side
        half = tf.linalg.triangular_solve(B_all, projected)
        mean = tf.linalg.triangular_solve(B_all, half, adjoint=True)[..., 0]
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(B)), -1)
        per_channel = density + 0.5 * tf.reduce_sum(tf.square(half), axis=[-2, -1]) - log_det
        return InducingPosterior(mean, B_all, tf.reduce_sum(per_channel, -1))

    def _precision_factor(self, precision: tf.Tensor) -> tf.Tensor:
        """Return chol(I + A A^T) from A A^T [..., C, M, M], A being features over noise scales."""
        eye = tf.eye(self.num_inducing, dtype=precision.dtype)
        return cholesky(
            precision + eye, f"I + A A^T of the sparse latent GP ({self._kernel_names()})"
        )

    @staticmethod
    def _spread(inducing: InducingPosterior, features: tf.Tensor) -> tf.Tensor | float:
        """Return the variance of phi^T nu under the posterior of nu: [..., L, N]."""
        if inducing.factor is None:
            return 0.0
        shape = tf.concat([tf.shape(inducing.factor)[:-1], tf.shape(features)[-1:]], 0)
        solved = tf.linalg.triangular_solve(inducing.factor, tf.broadcast_to(features, shape))
        return sum_of_squares(solved, -2)

    def _residual_noise(self, left: tf.Tensor) -> tf.Tensor:
        """Return the noise variance of a code around phi^T nu, from the residual variance."""
        raise NotImplementedError

    @check_shapes("X: [xbatch..., N, D]", "mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def inducing_posterior(
        self, X: TensorType, mean: TensorType, variance: TensorType, point_scale: float = 1.0
    ) -> InducingPosterior:
        """Return the posterior of the whitened inducing outputs given pseudo-observations.

        More points than :data:`~gpflow_bae.core.row_blocks.ROWS` are processed in blocks, here and
        in :meth:`predict`, so that memory does not grow with M times their number.

        :param mean: pseudo-observations ``mean ~ N(latents, variance)``.
        :param point_scale: N/B if these are B of the N points of the task; the result then
            estimates that of all points (Jazbec et al. 2021, eq. 9).
        """
        if self.whitened_inducing is not None or not are_many(mean):
            return self._inducing_given(self._features(X), X, mean, variance, point_scale)

        def sums(X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> Any:
            features, left = self._features(X)
            noise = (self._residual_noise(left) + channels_first(variance)) / point_scale
            return self._sums(features, noise, channels_first(self.centred(mean, X)))

        return self._solved(*sum_over_blocks(sums, (X, mean, variance)))

    def _inducing_given(
        self,
        features: tuple[tf.Tensor, tf.Tensor],
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
        point_scale: float,
    ) -> InducingPosterior:
        """Compute :meth:`inducing_posterior` from the features of X (:meth:`_features`)."""
        noise = self._residual_noise(features[1]) + channels_first(variance)
        target = channels_first(self.centred(mean, X))
        return self._regress(features[0], noise / point_scale, target)

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        inducing, tasks = self.inducing_posterior(X, mean, variance), tf.shape(mean)[:-2]
        if not are_many(tf.convert_to_tensor(Xnew)):
            return self._predicted(Xnew, inducing, tasks)
        new_mean, new_variance = over_blocks(
            lambda Xnew: self._predicted(Xnew, inducing, tasks), (Xnew,)
        )
        return new_mean, new_variance

    def _predicted(
        self, Xnew: TensorType, inducing: InducingPosterior, tasks: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return moments at ``Xnew``; ``tasks`` are the pseudo-observations' leading dimensions."""
        features, left = self._features(Xnew)
        new_mean = weighted_features(features, inducing.mean)
        new_variance = left + self._spread(inducing, features)
        # With known inducing outputs all tasks have the same prediction, returned for each.
        lead = tf.broadcast_dynamic_shape(tasks, tf.shape(new_mean)[:-2])
        shape = tf.concat([lead, tf.shape(new_mean)[-2:]], 0)
        new_mean, new_variance = (tf.broadcast_to(v, shape) for v in (new_mean, new_variance))
        return self.shifted(channels_first(new_mean), Xnew), channels_first(new_variance)

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict_full_cov(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        inducing = self.inducing_posterior(X, mean, variance)
        new_mean, _ = self._predicted(Xnew, inducing, tf.shape(mean)[:-2])
        features, _ = self._features(Xnew)
        covariance = self._covariance(Xnew)
        covariance -= tf.linalg.matmul(features, features, transpose_a=True)
        if inducing.factor is not None:
            shape = tf.concat([tf.shape(inducing.factor)[:-1], tf.shape(features)[-1:]], 0)
            features = tf.broadcast_to(features, shape)
            solved = tf.linalg.triangular_solve(inducing.factor, features)
            covariance += tf.linalg.matmul(solved, solved, transpose_a=True)
        return new_mean, covariance
