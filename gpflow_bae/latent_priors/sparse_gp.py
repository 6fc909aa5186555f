"""The sparse GP prior over codes: FITC with sampled or integrated-out inducing outputs."""

from __future__ import annotations

from typing import Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction

from ..base import LatentPosterior
from ..core.annotations import check_arguments
from ..core.linalg import gram
from .base import GaussianLatentPrior
from .inducing import InducingLatentPrior, weighted_codes, weighted_features
from .kernel_prior import KernelLike, channels_first

__all__ = ["SparseGP"]

tfd = tfp.distributions


class SparseGP(InducingLatentPrior, GaussianLatentPrior):
    r"""A sparse GP prior over codes (FITC): given the inducing outputs codes are independent.

    With features :math:`\phi(x) = L_Z^{-1} k(Z, x)`, :math:`L_Z L_Z^T = K_{ZZ} + jitter I` and
    whitened inducing outputs :math:`\nu \sim N(0, I)` (Tran et al. 2023, eq. 6-8),

    .. math:: latent_n | \nu \sim N(\phi(x_n)^T \nu, k(x_n, x_n) - |\phi(x_n)|^2 + \sigma^2).

    ``inducing_outputs="integrated"`` is for many short tasks: each task has its own :math:`\nu`,
    integrated out exactly at cost N M^2, so a task's codes are N(0, Q + diag(K - Q) + sigma^2 I).
    ``inducing_outputs="sampled"`` has one :math:`\nu` for all tasks, a Parameter that is sampled;
    the density then splits over points, so points can be taken in minibatches.

    If the kernel has rank M on the inputs and the features span it, K = Q and FITC is exact:
    then this is the low-rank prior of Casale et al. (2018), by the matrix inversion lemma.
    """

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        latent_dim: int,
        code_noise_variance: float | None = 1e-3,
        inducing_outputs: Literal["integrated", "sampled"] = "integrated",
        mean_function: MeanFunction | None = None,
    ):
        """
        :param inducing_variable: GPflow inducing points, or an array [M, D] to make them from.
        """
        super().__init__(kernel, inducing_variable, latent_dim, code_noise_variance, mean_function)
        if inducing_outputs == "sampled":
            zero, one = (gpflow.utilities.to_default_float(v) for v in (0.0, 1.0))
            self.whitened_inducing = Parameter(
                np.zeros((latent_dim, self.num_inducing)), prior=tfd.Normal(zero, one)
            )

    @property
    def splits_over_points(self) -> bool:
        """True if the inducing outputs are sampled: given them the points are independent."""
        return self.whitened_inducing is not None

    @check_shapes("X: [batch..., N, D]")
    def given_inducing_outputs(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance [batch..., N, L] of codes given the sampled inducing outputs.

        :raises ValueError: if the inducing outputs are integrated out.
        """
        if self.whitened_inducing is None:
            raise ValueError('SparseGP has inducing_outputs="integrated"; it needs "sampled" here.')
        features, left = self._features(X)
        nu = tf.convert_to_tensor(self.whitened_inducing)
        mean = self.shifted(weighted_codes(features, nu), X)
        variance = channels_first(self._residual_noise(left))
        return mean, tf.broadcast_to(variance, tf.shape(mean))

    def _residual_noise(self, left: tf.Tensor) -> tf.Tensor:
        return left + self.code_noise

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        features, left = self._features(X)
        own = self._residual_noise(left)  # variance given nu
        target, pseudo_noise = channels_first(self.centred(mean, X)), channels_first(variance)
        inducing = self._regress(features, own + pseudo_noise, target)
        explained = weighted_features(features, inducing.mean)
        # Given nu a code's mean is between its own pseudo-observation and phi^T nu.
        gain = own / (own + pseudo_noise)
        posterior_mean = explained + gain * (target - explained)
        posterior_variance = (1.0 - gain) * own + tf.square(1.0 - gain) * self._spread(
            inducing, features
        )
        return LatentPosterior(
            self.shifted(channels_first(posterior_mean), X),
            channels_first(posterior_variance),
            inducing.log_marginal,
        )

    @check_shapes("latents: [batch..., N, L]", "noise: [batch..., N, 1]", "return: [batch...]")
    def log_prob(
        self, X: TensorType, latents: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        """Return the FITC log density of the codes of each task."""
        latents = self.centred(tf.cast(latents, gpflow.default_float()), X)
        features, left = self._features(X)
        own = self._residual_noise(left)
        own = own if noise is None else own + channels_first(noise)
        return self._regress(features, own, channels_first(latents)).log_marginal

    def code_covariance(self, X: TensorType) -> tf.Tensor | None:
        if self.whitened_inducing is not None:
            return None
        features, left = self._features(X)
        covariance = tf.linalg.matmul(features, features, transpose_a=True)
        return covariance + tf.linalg.diag(self._residual_noise(left))

    def precision_diagonal(
        self, X: TensorType, shape: TensorType, noise: TensorType | None = None
    ) -> tf.Tensor:
        features, left = self._features(X)
        own = self._residual_noise(left)
        own = own if noise is None else own + channels_first(noise)
        if self.whitened_inducing is not None:
            return channels_first(1.0 / own)
        scaled = features * tf.math.rsqrt(own)[..., None, :]
        # Matrix inversion lemma: (D + Q)^-1 = D^-1/2 (I - A^T (I + A A^T)^-1 A) D^-1/2.
        solved = tf.linalg.triangular_solve(self._precision_factor(gram(scaled)), scaled)
        return channels_first((1.0 - tf.reduce_sum(tf.square(solved), axis=-2)) / own)
