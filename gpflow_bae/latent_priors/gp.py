"""The exact GP prior over codes: cost N^3 per task."""

from __future__ import annotations

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..base import LatentPosterior
from ..core.linalg import cholesky
from .base import LOG_2PI, GaussianLatentPrior
from .kernel_prior import KernelLatentPrior, channels_first

__all__ = ["GP"]


class GP(KernelLatentPrior, GaussianLatentPrior):
    """An exact GP prior: latents_l ~ N(0, K_l + (sigma^2 + jitter) I) for each channel and task.

    Casale et al. (2018), Pearce (2019). ``sigma^2`` is ``code_noise_variance``; the jitter is
    part of the prior covariance in every term: mean, variance and evidence.
    """

    is_dense = True

    def _noise(self) -> tf.Tensor:
        jitter = tf.cast(gpflow.default_jitter(), gpflow.default_float())
        return self.code_noise + jitter

    def _factor(self, X: TensorType, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the code covariance [..., C, N, N], and chol(it + pseudo-noise) [..., L, N, N]."""
        code = self.code_covariance(X)
        total = code + tf.linalg.diag(channels_first(variance))
        return code, cholesky(total, f"K(X, X) + noise of the latent GP ({self._kernel_names()})")

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        code, L = self._factor(X, variance)
        target = channels_first(self.centred(mean, X))[..., None]  # [..., L, N, 1]
        alpha = tf.linalg.triangular_solve(L, target)
        # The columns of L^-1 K give both moments without forming an inverse.
        V = tf.linalg.triangular_solve(L, tf.broadcast_to(code, tf.shape(L)))
        posterior_mean = tf.linalg.matmul(V, alpha, transpose_a=True)[..., 0]
        posterior_variance = tf.linalg.diag_part(code) - tf.reduce_sum(tf.square(V), axis=-2)
        # Rounding can make a variance of zero, of codes without noise, slightly negative.
        return LatentPosterior(
            self.shifted(channels_first(posterior_mean), X),
            channels_first(tf.nn.relu(posterior_variance)),
            self._evidence(L, alpha),
        )

    @check_shapes("latents: [batch..., N, L]", "noise: [batch..., N, 1]", "return: [batch...]")
    def log_prob(
        self, X: TensorType, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the log density of the codes; one factorisation if channels and tasks share it."""
        latents = self.centred(tf.cast(latents, gpflow.default_float()), X)
        covariance = self._noisy_covariance(X, noise)
        L = cholesky(covariance, f"K(X, X) + noise of the latent GP ({self._kernel_names()})")
        if self.shares_kernel:
            return self._evidence(L, tf.linalg.triangular_solve(L, latents[..., None, :, :]))
        target = channels_first(latents)[..., None]
        return self._evidence(L, tf.linalg.triangular_solve(L, target))

    def code_covariance(self, X: TensorType) -> tf.Tensor:
        covariance = self._covariance(X)
        return tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + self._noise())

    def _noisy_covariance(self, X: TensorType, noise: TensorType | None) -> tf.Tensor:
        """Return the covariance of codes [..., C, N, N] with noise [..., N, 1] added to them."""
        covariance = self.code_covariance(X)
        return covariance if noise is None else covariance + tf.linalg.diag(channels_first(noise))

    def precision_diagonal(
        self, X: TensorType, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        covariance = self._noisy_covariance(X, noise)
        L = cholesky(covariance, f"K(X, X) + noise of the latent GP ({self._kernel_names()})")
        inverse = tf.linalg.triangular_solve(L, tf.eye(tf.shape(L)[-1], dtype=L.dtype))
        return channels_first(tf.reduce_sum(tf.square(inverse), axis=-2))

    @staticmethod
    def _evidence(L: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        """Return log N(target; 0, L L^T) [...] for ``alpha = L^-1 target [..., C, N, columns]``."""
        shape = tf.shape(alpha)
        columns = tf.cast(shape[-1], alpha.dtype)
        size = tf.cast(shape[-1] * shape[-2] * shape[-3], alpha.dtype)
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=[-2, -1])
        # With one kernel for several columns the log-determinant counts once per column.
        return -(
            0.5 * tf.reduce_sum(tf.square(alpha), axis=[-3, -2, -1])
            + columns * log_det
            + 0.5 * LOG_2PI * size
        )

    def _regress(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean [..., Nnew, L] and V [..., L, N, Nnew]; the covariance is K - V^T V."""
        _, L = self._factor(X, variance)
        cross = self._cross_covariance(X, Xnew)  # [..., C, N, Nnew]
        shape = tf.concat([tf.shape(L)[:-1], tf.shape(cross)[-1:]], 0)
        V = tf.linalg.triangular_solve(L, tf.broadcast_to(cross, shape))
        target = channels_first(self.centred(mean, X))
        alpha = tf.linalg.triangular_solve(L, target[..., None])
        new_mean = tf.linalg.matmul(V, alpha, transpose_a=True)[..., 0]
        return self.shifted(channels_first(new_mean), Xnew), V

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        new_mean, V = self._regress(Xnew, X, mean, variance)
        new_variance = self._variances(Xnew) - tf.reduce_sum(tf.square(V), axis=-2)
        return new_mean, channels_first(tf.nn.relu(new_variance))

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def predict_full_cov(
        self, Xnew: TensorType, X: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        new_mean, V = self._regress(Xnew, X, mean, variance)
        return new_mean, self._covariance(Xnew) - tf.linalg.matmul(V, V, transpose_a=True)
