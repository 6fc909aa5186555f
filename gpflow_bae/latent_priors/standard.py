"""The i.i.d. standard normal prior of plain autoencoders."""

from __future__ import annotations

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..base import LatentPosterior
from .base import GaussianLatentPrior, gaussian_log_density

__all__ = ["StandardNormal"]


class StandardNormal(GaussianLatentPrior):
    """A standard normal prior, latents ~ N(0, I); inputs are ignored and may be None."""

    needs_inputs = False

    @check_shapes("mean: [batch..., N, L]", "variance: [batch..., N, L]")
    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        mean = tf.cast(mean, gpflow.default_float())
        variance = tf.cast(variance, gpflow.default_float())
        gain = 1.0 / (1.0 + variance)
        log_marginal = gaussian_log_density(mean, 1.0 + variance)
        return LatentPosterior(
            gain * mean, gain * variance, tf.reduce_sum(log_marginal, axis=[-2, -1])
        )

    def marginal_variance(self, X: TensorType | None) -> tf.Tensor:
        return tf.ones([1, self.latent_dim], gpflow.default_float())

    def precision_diagonal(
        self, X: TensorType | None, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        ones = tf.ones(shape, gpflow.default_float())
        return ones if noise is None else ones / (1.0 + noise)

    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the prior's moments at new inputs, which do not depend on other points' codes.

        :raises ValueError: if ``Xnew`` is None, because then the number of points is unknown.
        """
        if Xnew is None:
            raise ValueError("Xnew is needed to know how many points to predict, got None.")
        shape = tf.concat([tf.shape(mean)[:-2], [tf.shape(Xnew)[-2], self.latent_dim]], 0)
        zeros = tf.zeros(shape, gpflow.default_float())
        return zeros, tf.ones_like(zeros)

    def predict_full_cov(
        self,
        Xnew: TensorType,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the prior's moments; the covariance is the identity in each channel."""
        new_mean, _ = self.predict(Xnew, X, mean, variance)
        shape = tf.shape(new_mean)
        eye = tf.eye(shape[-2], dtype=new_mean.dtype)
        return new_mean, tf.broadcast_to(
            eye, tf.concat([shape[:-2], [shape[-1], shape[-2], shape[-2]]], 0)
        )
