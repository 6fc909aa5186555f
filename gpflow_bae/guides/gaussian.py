"""Guides with Gaussian codes: the prior given pseudo-observations, or mean field."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.logdensities import gaussian

from ..base import Batch, Neighbours, Snapshot
from ..data.compressed_rows import rows_seen
from ..encoders import RowCodes
from ..encoders.base import Noise
from ..latent_priors.base import (
    LOG_2PI,
    UNINFORMATIVE_VARIANCE,
    GaussianLatentPrior,
    LatentProcess,
    expected_log_prob,
)
from ..mcmc.noise import item_noise
from .base import BoundGuide, CodeDraws, log_density_of_empty, uninformative_where_empty

__all__ = ["CodePosterior", "GaussianGuide", "MeanFieldGuide", "SubsetGuide"]


class CodePosterior(NamedTuple):
    """Gaussian q(latents) of a batch."""

    mean: tf.Tensor  # [T, N, L]
    variance: tf.Tensor  # [T, N, L]
    divergence: tf.Tensor  # [], the batch's share of KL[q || prior], in nats

    def draws(self, noise: tf.Tensor) -> tf.Tensor:
        """Return draws of the codes [S, T, N, L] from standard normals of that shape."""
        return self.mean + tf.sqrt(self.variance) * noise


class GaussianGuide(BoundGuide):
    r"""The prior conditioned on the encoder's Gaussian pseudo-observations, as q(latents).

    With encoder outputs :math:`(\mu_n, s_n^2)`, prior p and evidence
    :math:`Z = \int p(latents) \prod_n N(\mu_n | latent_n, s_n^2)` (Pearce 2019, eq. 5-6),

    .. math:: KL[q || p] = E_q[\log N(\mu | latents, s^2)] - \log Z .

    For the standard normal prior q(latent_n) is a Gaussian whose moments are those of the encoder,
    reparameterised. A point without any observation, such as the padding of a task that is shorter
    than others, has an uninformative pseudo-observation: it does not change the posterior of the
    other points, its own is the prior given the others, and its terms of the bound cancel.
    """

    uses_prior_variance = True

    def encode(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances [T, N, L] of the pseudo-observations.

        That of a point without any observation is uninformative, whatever the encoder's output.
        """
        return uninformative_where_empty(*self.moments(batch), batch.mask)

    def pseudo_observations(
        self, prior: LatentProcess, batch: Batch, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's output, which is trained as a pseudo-observation."""
        return self.encode(batch)

    def posterior(
        self, prior: LatentProcess, batch: Batch, snapshot: Snapshot | None = None
    ) -> CodePosterior:
        """Return the moments of q(latents), and its divergence from the prior."""
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
        """Return codes of independent rows ``Y [rows, P]``.

        :param prior_variance: prior variance of a code [L] to condition with; None for none.
        """
        mean, variance = self.moments(rows)
        if prior_variance is not None:
            gain = prior_variance / (prior_variance + variance)
            mean, variance = gain * mean, gain * variance
        return RowCodes.gaussian(mean, variance, noise, num_draws)


class SubsetGuide(GaussianGuide):
    r"""As :class:`GaussianGuide`, where a minibatch of points is a data set of its own.

    A prior that couples the points of a task needs all of them for the bound. Here that of B of N
    points is the bound of these points without the others, times N/B (Ashman et al. 2020, eq. 42).
    It is a biased estimate, as its posterior has less information than that of all points, and
    costs :math:`B^3` for :math:`N^3` under an exact :class:`~gpflow_bae.latent_priors.GP`. Without
    minibatches, and in predictions, it is a :class:`GaussianGuide`.
    """

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """Return True: the points of a minibatch do not need the others."""
        return True

    def posterior(
        self, prior: LatentProcess, batch: Batch, snapshot: Snapshot | None = None
    ) -> CodePosterior:
        """Return the moments of q(latents) given the batch alone, and its divergence."""
        return super().posterior(prior, batch._replace(point_scale=1.0), snapshot)


class MeanFieldGuide(GaussianGuide):
    r"""The encoder's Gaussian, independent over points, as q(latents) (Casale et al. 2018).

    .. math:: KL[q || p] = -E_q[\log p(latents | X)] - H[q] .

    A prior that couples the points of a task needs all of their codes. A minibatch of points
    computes only its own codes; those of the others are in a snapshot, as old as the engine's
    settings allow. Casale et al. (section 3.3) use a Taylor expansion of that term once an epoch.

    Predictions at other points are given the means of the codes, without their variances, as in
    eq. 10 of the paper: intervals there are those of known codes.

    A point without any observation, such as the padding of a task that is shorter than others, has
    the prior's marginal, and no part in the bound: that is the bound of the other points alone.
    Under a :class:`~gpflow_bae.latent_priors.NearestNeighbourGP` a point within a task still takes
    the place of a neighbour.
    """

    uses_prior_variance = False

    def encode(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's means and variances [T, N, L], also of points without observation.

        Those of q(latents) are :meth:`codes`.
        """
        return self.moments(batch)

    def codes(self, prior: LatentProcess, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means and variances [T, N, L] of q(latents)."""
        mean, variance = self.encode(batch)
        if batch.mask is None:
            return mean, variance
        seen = rows_seen(batch.mask)
        return (
            tf.where(seen, mean, prior.mean(batch.X)),
            tf.where(seen, variance, prior.marginal_variance(batch.X)),
        )

    def pseudo_observations(
        self, prior: LatentProcess, batch: Batch, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's means as noise-free codes, as in Casale et al. (2018), eq. 10.

        Predictions at other points are given these; codes of the points themselves have the
        encoder's variances (:meth:`spread`). A point without any observation is uninformative.
        """
        mean, _ = self.encode(batch)
        return uninformative_where_empty(mean, tf.zeros_like(mean), batch.mask)

    def spread(self, batch: Batch) -> tf.Tensor:
        """Return the variances [T, N, L] of q(latents), 0 at points without any observation."""
        _, variance = self.encode(batch)
        return _of_seen(variance, None if batch.mask is None else rows_seen(batch.mask))

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """Return True: the other points' codes are in the snapshot."""
        return True

    def snapshot(self, data: Any) -> Snapshot | None:
        """Return the current codes of all points; None if minibatches do not need them."""
        if data.axis == 0 or data.neighbours is not None:
            return None
        batch = data.gather(None)
        mean, _ = self.encode(batch)
        seen = None if batch.mask is None else rows_seen(batch.mask)
        return Snapshot(data.X, tf.stop_gradient(mean), seen)

    def posterior(
        self, prior: LatentProcess, batch: Batch, snapshot: Snapshot | None = None
    ) -> CodePosterior:
        """Return the encoder's moments, and -E_q[log p(latents | X)] - H[q].

        :raises TypeError: for a prior without a density of codes.
        """
        if not isinstance(prior, GaussianLatentPrior):
            raise TypeError(
                f"Mean-field codes need a prior with a density, and {type(prior).__name__} has "
                "none; use GP, SparseGP or StandardNormal."
            )
        mean, variance = self.codes(prior, batch)
        seen = None if batch.mask is None else rows_seen(batch.mask)
        entropy = 0.5 * tf.reduce_sum(_of_seen(tf.math.log(variance) + 1.0 + LOG_2PI, seen))
        if batch.near is not None:
            expected = self._expected_given_neighbours(prior, batch, mean, variance)
        elif snapshot is None or batch.indices is None:
            expected = _expected_of_seen(prior, batch.X, mean, variance, seen)
        else:
            expected = _expected_given_snapshot(prior, snapshot, batch, mean, variance)
        return CodePosterior(mean, variance, -tf.reduce_sum(expected) - entropy)

    def _expected_given_neighbours(
        self, prior: GaussianLatentPrior, batch: Batch, mean: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """Return the batch's terms of E_q[log p(latents | X)], each given its neighbours' codes."""
        near, conditionals = batch.near, prior.by_neighbours
        assert isinstance(near, Neighbours) and conditionals is not None
        others = self.encode(Batch(near.X, near.Y, near.mask, indices=near.indices))

        def itself_last(of_neighbours: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
            """Return values of the neighbours of each point, and its own: [1, B, m + 1, K]."""
            shape = tf.concat([[1], tf.shape(near.present), tf.shape(own)[-1:]], 0)
            return tf.concat([tf.reshape(of_neighbours, shape), own[..., None, :]], -2)

        X = itself_last(near.X, tf.convert_to_tensor(batch.X))
        codes, variances = map(itself_last, others, (mean, variance))
        there = near.present
        if near.mask is not None:
            there &= tf.reshape(rows_seen(near.mask), tf.shape(there))
        present = tf.concat([there, tf.ones_like(there[:, :1])], -1)
        found = conditionals.log_conditionals(X, codes, present, variances)
        return found if batch.mask is None else _of_seen(found, rows_seen(batch.mask)[..., 0])


def _of_seen(values: tf.Tensor, seen: tf.Tensor | None) -> tf.Tensor:
    """Return values with zeros at points without observation; all if ``seen`` is None."""
    return values if seen is None else tf.where(seen, values, tf.zeros_like(values))


def _expected_of_seen(
    prior: GaussianLatentPrior,
    X: TensorType | None,
    mean: tf.Tensor,
    variance: tf.Tensor,
    seen: tf.Tensor | None,
) -> tf.Tensor:
    """Return E_q[log p(latents | X)] [batch...] of the codes of points with an observation.

    :param seen: [batch..., N, 1]; None for all points.
    """
    if seen is None:
        return expected_log_prob(prior, X, mean, variance)
    noise = UNINFORMATIVE_VARIANCE * tf.cast(~seen, mean.dtype)
    found = expected_log_prob(prior, X, mean, variance, noise)
    return found - log_density_of_empty(seen, mean.shape[-1])


def _expected_given_snapshot(
    prior: GaussianLatentPrior, whole: Snapshot, batch: Batch, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """Return the batch's share of E_q[log p(latents | X)], given the codes of all other points.

    Times N/B it has the whole term's gradient in the prior's parameters, and N/B times that
    gradient in the batch's codes, as an estimate for all codes.
    """
    scale, indices = batch.point_scale, tf.convert_to_tensor(batch.indices)
    amplified = scale * mean - tf.stop_gradient((scale - 1.0) * mean)  # the value is the mean
    codes = tf.tensor_scatter_nd_update(whole.codes[0], indices[:, None], amplified[0])[None]
    spread = tf.tensor_scatter_nd_update(
        tf.zeros_like(whole.codes[0]), indices[:, None], scale * variance[0]
    )
    return _expected_of_seen(prior, whole.X, codes, spread[None], whole.seen) / scale
