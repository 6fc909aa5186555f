"""Gaussian posteriors of codes: the prior given pseudo-observations, or the encoder's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.logdensities import gaussian

from ..base import Batch, Snapshot
from ..encoders import RowCodes
from ..encoders.base import Noise
from ..latent_priors.base import LOG_2PI, GaussianLatentPrior, LatentProcess
from ..mcmc.noise import item_noise
from .base import BoundGuide, CodeDraws, uninformative_where_empty

__all__ = ["CodePosterior", "GaussianGuide", "MeanFieldGuide"]


class CodePosterior(NamedTuple):
    """q(latents) of a batch."""

    mean: tf.Tensor  # [T, N, L]
    variance: tf.Tensor  # [T, N, L]
    divergence: tf.Tensor  # [], the batch's share of KL[q || prior], in nats

    def draws(self, noise: tf.Tensor) -> tf.Tensor:
        """Codes [S, T, N, L] of standard normals."""
        return self.mean + tf.sqrt(self.variance) * noise


class GaussianGuide(BoundGuide):
    r"""q(latents) is the prior conditioned on the encoder's Gaussian pseudo-observations.

    With encoder outputs :math:`(\mu_n, s_n^2)`, prior p and evidence
    :math:`Z = \int p(latents) \prod_n N(\mu_n | latent_n, s_n^2)` (Pearce 2019, eq. 5-6),

    .. math:: KL[q || p] = E_q[\log N(\mu | latents, s^2)] - \log Z .

    For the standard normal prior q(latent_n) is a Gaussian whose moments are the encoder's,
    reparameterised. A point without any observation, such as the padding of a task that is shorter
    than others, has a pseudo-observation that says nothing: the posterior of the other points is
    what it would be without that point, its own is the prior given the others, and its terms of
    the bound cancel.
    """

    uses_prior_variance = True
    rows_are = (
        "the encoder's pseudo-observation times the prior's marginal, averaged over the training "
        "inputs; other rows of the same task are not looked at"
    )

    def encode(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [T, N, L] of the pseudo-observations.

        A point without any observation says nothing of its code, whatever the encoder makes of it.
        """
        return uninformative_where_empty(*self.moments(batch), batch.mask)

    def pseudo_observations(
        self, prior: LatentProcess, batch: Batch, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's output as it is: it is trained to be a pseudo-observation."""
        return self.encode(batch)

    def posterior(
        self, prior: LatentProcess, batch: Batch, snapshot: Snapshot | None = None
    ) -> CodePosterior:
        """Moments of q(latents), and its divergence from the prior."""
        mean, variance = self.encode(batch)
        q = prior.condition_batch(batch.X, mean, variance, batch.point_scale)
        pseudo = gaussian(q.mean, mean, variance)
        pseudo -= 0.5 * q.variance / variance  # the expectation over q of the quadratic
        divergence = tf.reduce_sum(pseudo) - tf.reduce_sum(q.log_marginal)
        return CodePosterior(q.mean, q.variance, divergence)

    def draw(
        self,
        prior: LatentProcess,
        batch: Batch,
        num_draws: int,
        seed: TensorType,
        snapshot: Snapshot | None = None,
    ) -> CodeDraws:
        q = self.posterior(prior, batch, snapshot)
        noise = item_noise(tf.concat([[num_draws], tf.shape(q.mean)], 0), seed, q.mean.dtype)
        return CodeDraws(q.draws(noise), q.divergence)

    def codes_of_rows(
        self, rows: Batch, noise: Noise, num_draws: int, prior_variance: tf.Tensor | None = None
    ) -> RowCodes:
        """Codes of each row by itself, ``Y [rows, P]``.

        :param prior_variance: of a code [L], with which the prior is put in.
        """
        mean, variance = self.moments(rows)
        if prior_variance is not None:
            gain = prior_variance / (prior_variance + variance)
            mean, variance = gain * mean, gain * variance
        return RowCodes.gaussian(mean, variance, noise, num_draws)


class MeanFieldGuide(GaussianGuide):
    r"""q(latents) is the encoder's Gaussian itself, independent over points (Casale et al. 2018).

    .. math:: KL[q || p] = -E_q[\log p(latents | X)] - H[q] .

    A prior that couples the points of a task needs all of their codes. In a minibatch of points
    only the batch's are fresh; of the others a snapshot is taken, as often as the engine takes
    one, where Casale et al. (section 3.3) take a Taylor expansion of that term once an epoch.

    A point without any observation keeps the Gaussian that the encoder gives it, and is part of
    the bound: a mean-field q cannot say nothing. So leave such points out instead of padding.
    """

    uses_prior_variance = False
    rows_are = "the encoder's Gaussian, which is the variational posterior"

    def encode(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [T, N, L] of q(latents) itself."""
        return self.moments(batch)

    def pseudo_observations(
        self, prior: LatentProcess, batch: Batch, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means as codes: the prior has noise of its own (Casale et al., eq. 10).

        A point without any observation has none.
        """
        mean, _ = self.encode(batch)
        return uninformative_where_empty(mean, tf.zeros_like(mean), batch.mask)

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """True: the other points' codes are in the snapshot."""
        return True

    def snapshot(self, data: Any) -> Snapshot | None:
        """The codes of all points as they are now; None where minibatches are of whole tasks."""
        if data.axis == 0 or data.neighbours is not None:
            return None
        mean, _ = self.encode(data.gather(None))
        return Snapshot(data.X, tf.stop_gradient(mean))

    def posterior(
        self, prior: LatentProcess, batch: Batch, snapshot: Snapshot | None = None
    ) -> CodePosterior:
        """The encoder's moments, and -E_q[log p(latents | X)] - H[q].

        :raises TypeError: for a prior without a density of codes.
        """
        if not isinstance(prior, GaussianLatentPrior):
            raise TypeError(
                f"Mean-field codes need a prior with a density, and {type(prior).__name__} has "
                "none; use GP, SparseGP or StandardNormal."
            )
        mean, variance = self.encode(batch)
        entropy = 0.5 * tf.reduce_sum(tf.math.log(variance) + 1.0 + LOG_2PI)
        if batch.neighbours is not None:
            expected = self._expected_given_neighbours(prior, batch, mean, variance)
        elif snapshot is None or batch.indices is None:
            expected = prior.expected_log_prob(batch.X, mean, variance)
        else:
            expected = _expected_given_snapshot(prior, snapshot, batch, mean, variance)
        return CodePosterior(mean, variance, -tf.reduce_sum(expected) - entropy)

    def _expected_given_neighbours(
        self, prior: GaussianLatentPrior, batch: Batch, mean: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """The batch's terms of E_q[log p(latents | X)], each given the codes of a few others."""
        near = batch.neighbours
        assert near is not None
        others = self.encode(Batch(near.X, near.Y, near.mask, indices=near.indices))
        return prior.expected_log_conditionals(
            (batch.X, mean, variance), (near.X, *others), near.present
        )


def _expected_given_snapshot(
    prior: GaussianLatentPrior, whole: Snapshot, batch: Batch, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """The batch's share of E_q[log p(latents | X)], given the codes of all other points.

    Times N/B it has the gradient of the whole term in the prior's parameters, and N/B of it in
    the batch's codes, whose gradient stands for that of all codes.
    """
    scale, indices = batch.point_scale, tf.convert_to_tensor(batch.indices)
    amplified = scale * mean - tf.stop_gradient((scale - 1.0) * mean)  # the value is the mean
    codes = tf.tensor_scatter_nd_update(whole.codes[0], indices[:, None], amplified[0])[None]
    precision = prior.precision_diagonal(whole.X, tf.shape(codes))
    precision = tf.broadcast_to(precision, tf.shape(codes))
    quadratic = tf.gather(precision, indices, axis=1) * variance
    log_prob = tf.reduce_sum(prior.log_prob(whole.X, codes))
    return log_prob / scale - 0.5 * tf.reduce_sum(quadratic)
