"""A GP under Titsias's variational approximation, with minibatches of points."""

from __future__ import annotations

import gpflow
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.logdensities import gaussian

from ..base import LatentPosterior
from ..core.annotations import check_arguments
from ..core.row_blocks import are_many, over_blocks
from ..mcmc.noise import standard_noise
from .inducing import InducingLatentPrior, InducingPosterior, weighted_codes
from .kernel_prior import KernelLike, channels_first

__all__ = ["TitsiasGP"]


class TitsiasGP(InducingLatentPrior):
    r"""A GP prior conditioned on pseudo-observations through M inducing outputs (Titsias 2009).

    Given pseudo-observations :math:`(\mu_n, s_n^2)` the optimal :math:`q(u)` is
    that of a regression on the features with noise :math:`s_n^2` alone; codes are marginals of
    :math:`q(f) = \int p(f | u) q(u) du`, and the evidence is the collapsed bound, which is
    :math:`\sum_n E_q[\log N(\mu_n | f_n, s_n^2)] - KL[q(u) || p(u)]`. For a minibatch of points
    (:meth:`condition_batch`) :math:`q(u)` is estimated with its sums scaled by N/B (Jazbec et al.
    2021, eq. 9: consistent, biased for small batches), and the bound is that of Hensman et al.
    (eq. 10), in which the divergence is divided among the points.

    Codes are the latent function: there is no code noise. With Z = X this is the exact GP. The
    evidence is a bound, so codes have no density: this is a
    :class:`~gpflow_bae.latent_priors.LatentProcess` for variational models, and codes cannot be
    sampled under it.
    """

    @check_arguments()
    def __init__(
        self,
        kernel: KernelLike,
        inducing_variable: gpflow.inducing_variables.InducingPoints | TensorType,
        latent_dim: int,
        mean_function: MeanFunction | None = None,
    ):
        """Arguments as in :class:`SparseGP`."""
        super().__init__(kernel, inducing_variable, latent_dim, None, mean_function)

    @property
    def splits_over_points(self) -> bool:
        """True: a minibatch estimates the posterior of the inducing outputs."""
        return True

    def _residual_noise(self, left: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(left)

    def condition(self, X: TensorType, mean: TensorType, variance: TensorType) -> LatentPosterior:
        """Return marginals of q, and Titsias's bound as evidence (Jazbec et al. 2021, app. B.4).

        More points than :data:`~gpflow_bae.core.row_blocks.ROWS` are processed in blocks, so that
        memory does not grow with M times their number.
        """
        if not are_many(mean):
            return self.condition_batch(X, mean, variance, 1.0)
        inducing = self.inducing_posterior(X, mean, variance)
        f_mean, f_variance = over_blocks(lambda X: self._marginals(X, inducing), (X,))
        return self._bounded(f_mean, f_variance, mean, variance, inducing, 1.0)

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def condition_batch(
        self, X: TensorType, mean: TensorType, variance: TensorType, point_scale: float
    ) -> LatentPosterior:
        # Not in blocks: a training step may be compiled by XLA, which needs static shapes.
        features = self._features(X)
        inducing = self._inducing_given(features, X, mean, variance, point_scale)
        moments = self._marginals(X, inducing, features)
        return self._bounded(*moments, mean, variance, inducing, point_scale)

    @check_shapes(
        "X: [xbatch..., N, D]",
        "mean: [batch..., N, L]",
        "variance: [batch..., N, L]",
    )
    def hensman_bound(
        self,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
        inducing: InducingPosterior,
        point_scale: float = 1.0,
    ) -> LatentPosterior:
        """Return marginals of the codes and the bound on the evidence, for any q(nu).

        :param inducing: q's mean [batch..., L, M] and factor [batch..., L, M, M].
        """
        moments = self._marginals(X, inducing)
        return self._bounded(*moments, mean, variance, inducing, point_scale)

    def _marginals(
        self,
        X: TensorType,
        inducing: InducingPosterior,
        known: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances of the codes [batch..., N, L].

        :param known: features of X and residual variances, if they are known.
        """
        features, left = self._features(X) if known is None else known
        mean = weighted_codes(features, inducing.mean)
        return self.shifted(mean, X), channels_first(left + self._spread(inducing, features))

    def _bounded(
        self,
        f_mean: tf.Tensor,
        f_variance: tf.Tensor,
        mean: TensorType,
        variance: TensorType,
        inducing: InducingPosterior,
        point_scale: float,
    ) -> LatentPosterior:
        """Return codes with these moments, and the bound on the pseudo-observations' evidence."""
        expected = gaussian(f_mean, mean, variance)
        expected -= 0.5 * f_variance / variance
        bound = tf.reduce_sum(expected, [-2, -1]) - self._divergence(inducing) / point_scale
        return LatentPosterior(f_mean, f_variance, bound)

    @inherit_check_shapes
    def draw_codes(
        self,
        X: TensorType,
        mean: TensorType,
        variance: TensorType,
        seed: TensorType,
        num_draws: int,
        rows: TensorType | None = None,
    ) -> tf.Tensor:
        """Draw inducing outputs, and given those the residuals of each point independently.

        Draws are joint over points, but for the covariances of residuals, which are neglected.
        """
        inducing = self.inducing_posterior(X, mean, variance)
        chosen = X if rows is None else tf.gather(X, rows, axis=-2)
        features, left = self._features(chosen)
        seeds = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        draws = tf.concat([[num_draws], tf.shape(inducing.mean)], 0)
        noise = standard_noise(draws, seeds[0], inducing.mean.dtype)
        # All draws are right-hand sides of one factor: [..., L, M, num_draws].
        away = tf.linalg.triangular_solve(inducing.factor, _first_axis_last(noise), adjoint=True)
        outputs = inducing.mean[..., None] + away
        smooth = _last_axis_first(tf.linalg.matmul(features, outputs, transpose_a=True))
        residual = standard_noise(tf.shape(smooth), seeds[1], smooth.dtype) * tf.sqrt(left)
        return self.shifted(channels_first(smooth + residual), chosen)

    def _divergence(self, inducing: InducingPosterior) -> tf.Tensor:
        """Return KL[q(nu) || N(0, I)] of whitened inducing outputs, summed over channels: [...]."""
        factor = tf.convert_to_tensor(inducing.factor)
        inverse = tf.linalg.triangular_solve(factor, tf.eye(self.num_inducing, dtype=factor.dtype))
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), -1)
        per_channel = log_det + 0.5 * (
            tf.reduce_sum(tf.square(inverse), [-2, -1])
            + tf.reduce_sum(tf.square(inducing.mean), -1)
            - float(self.num_inducing)
        )
        return tf.reduce_sum(per_channel, -1)


def _first_axis_last(values: tf.Tensor) -> tf.Tensor:
    return tf.transpose(values, [*range(1, values.shape.rank), 0])


def _last_axis_first(values: tf.Tensor) -> tf.Tensor:
    rank = values.shape.rank
    return tf.transpose(values, [rank - 1, *range(rank - 1)])
