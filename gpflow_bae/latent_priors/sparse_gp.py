"""The sparse GP prior over codes: FITC with sampled or integrated-out inducing outputs."""

from __future__ import annotations

from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import LatentPosterior
from ..inducing_variables import as_inducing_points
from ..linalg import add_jitter, cholesky
from .base import (
    KernelLatentPrior,
    KernelLike,
    channels_first,
    gaussian_log_density,
)

__all__ = ["SparseGP"]

tfd = tfp.distributions


class _WeightSpace(NamedTuple):
    """Posterior of the whitened inducing outputs, and the evidence of the pseudo-observations."""

    mean: tf.Tensor  # [..., L, M]
    factor: tf.Tensor | None  # [..., L, M, M], chol of the precision; None where outputs are known
    log_marginal: tf.Tensor  # [...]


class SparseGP(KernelLatentPrior):
    r"""FITC: given the inducing outputs the codes are independent, so sums split over points.

    With features :math:`\phi(x) = L_Z^{-1} k(Z, x)`, :math:`L_Z L_Z^T = K_{ZZ} + jitter I` and
    whitened inducing outputs :math:`\nu \sim N(0, I)` (Tran et al. 2023, eq. 6-8),

    .. math:: latent_n | \nu \sim N(\phi(x_n)^T \nu, k(x_n, x_n) - |\phi(x_n)|^2 + \sigma^2).

    ``inducing_outputs="integrated"``: each task has its own :math:`\nu`, integrated out exactly at
    cost N M^2, so a task's codes are N(0, Q + diag(K - Q) + sigma^2 I). For many short tasks.
    ``inducing_outputs="sampled"``: one :math:`\nu` for all, a Parameter that the sampler moves;
    the density then splits over points, so points can be taken in minibatches.
    """

    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        latent_dim: int,
        code_noise_variance: float = 1e-3,
        inducing_outputs: Literal["integrated", "sampled"] = "integrated",
    ):
        """
        :param inducing_variable: GPflow inducing points, or an array [M, D] (then they get a
            uniform prior over a box, see :func:`gpflow_bae.inducing_variables.uniform`).
        """
        super().__init__(kernel, latent_dim, code_noise_variance)
        if inducing_outputs not in ("integrated", "sampled"):
            raise ValueError(
                f'inducing_outputs must be "integrated" or "sampled", got {inducing_outputs!r}.'
            )
        self.inducing_variable = as_inducing_points(inducing_variable)
        self.whitened_inducing: Parameter | None = None
        if inducing_outputs == "sampled":
            num_inducing = int(self.inducing_variable.Z.shape[0])
            zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
            self.whitened_inducing = Parameter(
                np.zeros((latent_dim, num_inducing)), prior=tfd.Normal(zero, one)
            )

    @property
    def num_inducing(self) -> int:
        """Number of inducing points M."""
        return int(self.inducing_variable.Z.shape[0])

    def _features(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Features [..., C, M, N] and the variance that they leave, without noise [..., C, N]."""
        Z = tf.convert_to_tensor(self.inducing_variable.Z)
        Kzz = add_jitter(self._covariance(Z))
        L = cholesky(Kzz, f"K(Z, Z) of the sparse latent GP ({self._kernel_names()})")
        Kzx = tf.stack([k(Z, X) for k in self.kernels], 0)  # [C, M, xbatch..., N]
        Kzx = self._inducing_axis_inwards(Kzx)
        shape = tf.concat([tf.shape(Kzx)[:-2], tf.shape(L)[-2:]], 0)
        features = tf.linalg.triangular_solve(tf.broadcast_to(L, shape), Kzx)
        left = self._variances(X) - tf.reduce_sum(tf.square(features), axis=-2)
        # Rounding can take a variance that is zero (X on Z) below zero by an epsilon.
        return features, tf.maximum(left, tf.zeros_like(left))

    @staticmethod
    def _inducing_axis_inwards(Kzx: tf.Tensor) -> tf.Tensor:
        """[C, M, xbatch..., N] to [xbatch..., C, M, N]."""
        rank = Kzx.shape.rank
        return tf.transpose(Kzx, [*range(2, rank - 1), 0, 1, rank - 1])

    def _weight_space(
        self, features: tf.Tensor, noise: tf.Tensor, target: tf.Tensor
    ) -> _WeightSpace:
        """Regress ``target [..., L, N]`` with ``noise [..., L or C, N]`` on the features."""
        if self.whitened_inducing is not None:
            nu = tf.convert_to_tensor(self.whitened_inducing)  # [L, M]
            residual = target - tf.linalg.matvec(features, nu, transpose_a=True)
            density = gaussian_log_density(residual, noise)
            return _WeightSpace(nu, None, tf.reduce_sum(density, axis=[-2, -1]))
        scaled = features / tf.sqrt(noise)[..., None, :]  # [..., L or C, M, N]
        precision = tf.linalg.matmul(scaled, scaled, transpose_b=True)
        eye = tf.eye(self.num_inducing, dtype=precision.dtype)
        B = cholesky(precision + eye, f"I + A A^T of the sparse latent GP ({self._kernel_names()})")
        whitened = target / tf.sqrt(noise)
        projected = tf.linalg.matvec(scaled, whitened)[..., None]  # [..., L, M, 1]
        shape = tf.concat([tf.shape(projected)[:-2], tf.shape(B)[-2:]], 0)
        B_all = tf.broadcast_to(B, shape)  # the solve wants one factor per right-hand side
        half = tf.linalg.triangular_solve(B_all, projected)
        mean = tf.linalg.triangular_solve(B_all, half, adjoint=True)[..., 0]
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(B)), -1)
        per_channel = (
            tf.reduce_sum(gaussian_log_density(target, noise), -1)
            + 0.5 * tf.reduce_sum(tf.square(half), axis=[-2, -1])
            - log_det
        )
        return _WeightSpace(mean, B_all, tf.reduce_sum(per_channel, -1))

    @staticmethod
    def _spread(weights: _WeightSpace, features: tf.Tensor) -> tf.Tensor | float:
        """Variance of phi^T nu under the posterior of nu: [..., L, N]."""
        if weights.factor is None:
            return 0.0
        shape = tf.concat([tf.shape(weights.factor)[:-1], tf.shape(features)[-1:]], 0)
        solved = tf.linalg.triangular_solve(weights.factor, tf.broadcast_to(features, shape))
        return tf.reduce_sum(tf.square(solved), axis=-2)

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        features, left = self._features(X)
        own = left + tf.convert_to_tensor(self.code_noise_variance)  # what nu does not explain
        target, pseudo_noise = channels_first(mean), channels_first(variance)
        weights = self._weight_space(features, own + pseudo_noise, target)
        explained = tf.linalg.matvec(features, weights.mean, transpose_a=True)
        # Given nu the code mixes its own pseudo-observation with what the others explain.
        gain = own / (own + pseudo_noise)
        posterior_mean = explained + gain * (target - explained)
        posterior_variance = (1.0 - gain) * own + tf.square(1.0 - gain) * self._spread(
            weights, features
        )
        return LatentPosterior(
            channels_first(posterior_mean),
            channels_first(posterior_variance),
            weights.log_marginal,
        )

    @check_shapes("latents: [batch..., N, L]", "return: [batch...]")
    def log_prob(self, X: TensorType, latents: TensorType) -> tf.Tensor:
        """FITC log density of the codes of each task."""
        latents = tf.cast(latents, gpflow.default_float())
        features, left = self._features(X)
        noise = left + tf.convert_to_tensor(self.code_noise_variance)
        return self._weight_space(features, noise, channels_first(latents)).log_marginal

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        features, left = self._features(X)
        own = left + tf.convert_to_tensor(self.code_noise_variance)
        weights = self._weight_space(features, own + channels_first(variance), channels_first(mean))
        new_features, new_left = self._features(Xnew)
        new_mean = tf.linalg.matvec(new_features, weights.mean, transpose_a=True)
        new_variance = new_left + self._spread(weights, new_features)
        # Known inducing outputs predict without looking at the tasks, but each task gets a result.
        lead = tf.broadcast_dynamic_shape(tf.shape(mean)[:-2], tf.shape(new_mean)[:-2])
        shape = tf.concat([lead, tf.shape(new_mean)[-2:]], 0)
        new_mean, new_variance = (tf.broadcast_to(v, shape) for v in (new_mean, new_variance))
        return channels_first(new_mean), channels_first(new_variance)
