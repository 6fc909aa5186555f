"""Autoencoders whose codes have a bound: a guide with a density beside prior and decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..arguments import check_arguments
from ..base import Batch, LatentPosterior, Snapshot, VariationalModel, VariationalTerms
from ..decoders import Identity
from ..encoders import GaussianEncoder, RankOneEncoder, SiteEncoder
from ..guides import (
    CodePosterior,
    ConditionalGuide,
    GaussianGuide,
    JointCodePosterior,
    MeanFieldGuide,
    RankOneGuide,
    SiteGuide,
)
from ..inputs import Condition
from ..latent_priors import LatentProcess, StandardNormal
from .autoencoder import LikelihoodLike, Network, with_mask
from .gpflow_interface import ExternalDataModel

__all__ = ["CVAE", "VAE", "VariationalAutoencoder"]


def as_gaussian_encoder(encoder: Network) -> Any:
    """A Keras model with 2 L outputs as a Gaussian encoder; a module stays as it is."""
    return encoder if isinstance(encoder, gpflow.Module) else GaussianEncoder(encoder)


class VariationalAutoencoder(ExternalDataModel, VariationalModel):
    r"""An autoencoder with the bound of its guide's q(latents),

    .. math:: ELBO = E_q[\log p(Y | latents)] - KL[q(latents) || p(latents | X)] .

    By default q is the prior conditioned on the encoder's pseudo-observations
    (:class:`~gpflow_bae.guides.GaussianGuide`); for the standard normal prior this is the plain
    VAE. Under :class:`~gpflow_bae.latent_priors.NearestNeighbourGP` it is the encoder's own
    Gaussian (:class:`~gpflow_bae.guides.MeanFieldGuide`): the prior's ``mean_field_by_default``.
    Decoder weights and hyperparameters have point estimates; their priors join the bound where the
    settings of the fit say so.
    """

    guide: GaussianGuide

    @check_arguments(num_data=1)
    def __init__(
        self,
        latent_prior: LatentProcess,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        num_data: int | None = None,
    ):
        """Other arguments as in :class:`Autoencoder`.

        :param num_data: how many points (tasks, where data have an axis of tasks) there are in all;
            needed for minibatches in a training loop of your own, as in GPflow's ``SVGP``.
        :param encoder: a Gaussian encoder, a built Keras model ``[rows, P] -> [rows, 2 L]`` (means,
            and logarithms of standard deviations), or a :class:`~gpflow_bae.guides.GaussianGuide`,
            which stays as it is. An encoder gets the guide that suits it and the prior.
        """
        guide = encoder
        if isinstance(encoder, RankOneEncoder):
            guide = RankOneGuide(encoder)
        elif isinstance(encoder, SiteEncoder):
            guide = SiteGuide(encoder)
        elif not isinstance(guide, GaussianGuide):
            kind = MeanFieldGuide if latent_prior.mean_field_by_default else GaussianGuide
            guide = kind(as_gaussian_encoder(encoder))
        super().__init__(latent_prior, decoder, likelihood, guide)
        self.num_data = num_data

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return self.guide.splits_over_points(self.latent_prior)

    splitting_advice = VariationalModel.splitting_advice

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Parameters whose log prior density may join the bound: those that have a prior."""
        return tuple(p for p in self.sampled.parameters if p.prior is not None)

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Trainable variables of the prior over codes."""
        return tuple(self.latent_prior.trainable_variables)

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]")
    def encode(
        self,
        X: TensorType | None,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
    ) -> tuple[tf.Tensor, ...]:
        """Means and variances [batch..., N, L] that the guide gives ``Y`` before the prior.

        Of a :class:`~gpflow_bae.guides.RankOneGuide`, those of its factors and their directions;
        of a :class:`~gpflow_bae.guides.SiteGuide`, its sites.

        :param Y: NaN (or masked) where missing, or zeros there with a ``mask``.
        """
        Y, mask = with_mask(Y, mask)
        return self.guide.encode(Batch(X, Y, mask, indices=indices))

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]")
    def posterior(
        self,
        X: TensorType | None = None,
        Y: TensorType | None = None,
        mask: TensorType | None = None,
        **of_gpflow: Any,
    ) -> LatentPosterior:
        """Codes given the guide's pseudo-observations, of ``Y`` as in :meth:`encode`.

        :raises TypeError: without ``Y``, or for other arguments (``precompute_cache``): GPflow's
            method of that name returns another thing.
        """
        if Y is None or of_gpflow:
            raise TypeError(
                "posterior(X, Y) is of the codes of observations, so Y is needed. GPflow's object "
                "of that name, which remembers its data, is here "
                "gpflow_bae.Posterior.from_point(model, (X, Y))."
            )
        Y, mask = with_mask(Y, mask)
        return self.prior_for(Batch(X, Y, mask)).condition(X, *self.encode(X, Y, mask))

    def approximate_posterior(
        self, batch: Batch, snapshot: Snapshot | None = None, seed: TensorType | None = None
    ) -> CodePosterior | JointCodePosterior:
        """Moments of q(latents) of a batch, and its share of KL[q || prior].

        :param seed: of draws of inputs that have distributions, whose divergence is in it too;
            without one their means take the place of draws.
        """
        prior = self.prior_for(batch, seed)
        q = self.guide.posterior(prior, batch, snapshot)
        return q._replace(divergence=q.divergence + prior.input_divergence(batch))

    def expected_log_likelihood(
        self, q: CodePosterior | JointCodePosterior, batch: Batch
    ) -> tf.Tensor:
        """E_q[log p(Y | latents)] of codes that are the likelihood's parameters, in nats."""
        Y = tf.cast(batch.Y, q.mean.dtype)
        cells = self.likelihood.expected_log_prob_of_cells(q.mean, q.variance, Y)
        if batch.mask is not None:
            cells = tf.where(batch.mask, cells, tf.zeros_like(cells))
        return tf.reduce_sum(cells)

    @property
    def sites(self) -> tuple[Parameter, ...]:
        """The guide's."""
        return self.guide.sites

    def update_sites(self, batch: Batch, seed: TensorType, step_size: TensorType) -> None:
        """One natural gradient step of the sites of a batch, as a ``SiteGuide`` has them.

        :param seed: of draws of the codes, where the guide takes some.
        :param step_size: in (0, 1]; a tensor does not retrace what it is compiled in.
        :raises TypeError: for another guide.
        """
        if not isinstance(self.guide, SiteGuide):
            raise TypeError(
                f"Only a SiteGuide has sites, and this model's guide is a "
                f"{type(self.guide).__name__}: build it with encoder=SiteEncoder(T, N, L)."
            )
        self.guide.update_sites(
            self.prior_for(batch),
            lambda latents: self.decode(batch.X, latents),
            self.likelihood,
            batch,
            seed,
            step_size,
        )

    def snapshot(self, data: Any) -> Snapshot | None:
        """The guide's."""
        return self.guide.snapshot(data)

    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """The bound's two terms for a batch of tasks or points, with one draw of the codes.

        Without a network (:class:`~gpflow_bae.decoders.Identity`) there is nothing to draw.
        """
        if isinstance(self.decoder, Identity):
            q = self.approximate_posterior(batch, snapshot, seed)
            return VariationalTerms(self.expected_log_likelihood(q, batch), q.divergence, q.mean)
        prior = self.prior_for(batch, seed)
        latents, divergence = self.guide.draw(prior, batch, 1, seed, snapshot)
        divergence += prior.input_divergence(batch)
        F = self.decode(batch.X, latents[0])
        observed = tf.reduce_sum(self.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        return VariationalTerms(tf.cast(observed, latents.dtype), divergence, F)


class VAE(VariationalAutoencoder):
    """Variational autoencoder with a standard normal prior (Kingma and Welling 2014)."""

    @check_arguments()
    def __init__(
        self,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        num_data: int | None = None,
    ):
        """Keras models are wrapped: the encoder has ``2 latent_dim`` outputs."""
        super().__init__(StandardNormal(latent_dim), decoder, encoder, likelihood, num_data)


class CVAE(VariationalAutoencoder):
    """Conditional VAE (Sohn et al. 2015): encoder and decoder see features of the inputs.

    The codes have a standard normal prior, whatever the inputs.
    """

    needs_inputs = True

    @check_arguments(condition_dim=1)
    def __init__(
        self,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
        latent_dim: int,
        condition: Callable[[tf.Tensor], tf.Tensor] | None = None,
        condition_dim: int = 1,
    ):
        """
        :param decoder: Keras model ``[rows, latent_dim + condition_dim] -> [rows, P]``, codes
            first; it may treat the features as it likes, e.g. as constant planes of an image.
        :param encoder: Keras model ``[rows, P + condition_dim] -> [rows, 2 latent_dim]``,
            observations first.
        :param condition: features ``[..., N, condition_dim]`` of the inputs ``X [..., N, D]``; by
            default the inputs themselves.
        :param condition_dim: their number.
        :raises ValueError: if the networks' widths are not those.
        """
        self.condition_dim = int(condition_dim)
        self._condition = Condition(condition, condition_dim)
        guide = ConditionalGuide(as_gaussian_encoder(encoder), self._condition)
        super().__init__(StandardNormal(latent_dim), decoder, guide, likelihood)

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Likelihood parameters at codes and features of the inputs."""
        return self.decoder(self._condition.join(latents, X))
