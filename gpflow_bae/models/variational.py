"""Autoencoders with a variational posterior over codes and an evidence lower bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import Batch, LatentPosterior, Snapshot, VariationalModel, VariationalTerms
from ..core.annotations import check_arguments
from ..encoders import GaussianEncoder
from ..guides import CodePosterior, ConditionalGuide, GaussianGuide, MeanFieldGuide
from ..guides.base import log_density_of_empty
from ..inputs import Condition
from ..latent_priors import LatentProcess, StandardNormal
from .autoencoder import LikelihoodLike, Network, with_mask
from .gpflow_interface import ExternalDataModel

__all__ = ["CVAE", "VAE", "VariationalAutoencoder"]

_NO_SEED = (0, 0)  # pseudo-observations of a Gaussian encoder are no draws


def as_gaussian_encoder(encoder: Network) -> Any:
    """Wrap a Keras model with 2 L outputs in a Gaussian encoder; return a module unchanged."""
    return encoder if isinstance(encoder, gpflow.Module) else GaussianEncoder(encoder)


def _default_guide(latent_prior: LatentProcess) -> type[GaussianGuide]:
    """Return the guide class of a variational model that gets an encoder instead of a guide.

    It is mean field if any part of the prior is by neighbours, for which conditioning is
    approximate and more expensive than the density.
    """
    parts = (latent_prior, *latent_prior.submodules)
    near = any(isinstance(p, LatentProcess) and p.by_neighbours is not None for p in parts)
    return MeanFieldGuide if near else GaussianGuide


def input_divergence(prior: LatentProcess, batch: Batch) -> tf.Tensor:
    """Return the batch's share of KL[q || prior] of unknown inputs, in nats; 0 without any.

    :param prior: latent prior, with the seed of the input draws that the codes depend on.
    """
    if prior.inputs is None:
        return tf.zeros([], gpflow.default_float())
    return prior.inputs.divergence(batch.X, batch.point_scale, batch.scale)


class VariationalAutoencoder(ExternalDataModel, VariationalModel):
    r"""An autoencoder with an evidence lower bound for the guide's q(latents).

    .. math:: ELBO = E_q[\log p(Y | latents)] - KL[q(latents) || p(latents | X)] .

    By default q is the prior conditioned on the encoder's pseudo-observations
    (:class:`~gpflow_bae.guides.GaussianGuide`); for the standard normal prior this is the plain
    VAE. Under :class:`~gpflow_bae.latent_priors.NearestNeighbourGP` it is the encoder's own
    Gaussian (:class:`~gpflow_bae.guides.MeanFieldGuide`).
    Decoder weights and hyperparameters have point estimates; their log priors are added to the
    bound if the settings of the fit request it.
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

        :param num_data: total number of points (of tasks, if data have a task axis); needed for
            minibatches in your own training loop, as in GPflow's ``SVGP``.
        :param encoder: a Gaussian encoder, a built Keras model ``[rows, P] -> [rows, 2 L]`` (means,
            and logarithms of standard deviations), or a :class:`~gpflow_bae.guides.GaussianGuide`.
            An encoder gets the default guide of the prior.
        """
        guide = encoder
        if not isinstance(guide, GaussianGuide):
            guide = _default_guide(latent_prior)(as_gaussian_encoder(encoder))
        super().__init__(latent_prior, decoder, likelihood, guide)
        self.num_data = num_data

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return self.guide.splits_over_points(self.latent_prior)

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Sampled parameters that have a prior, whose log density may be added to the bound."""
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
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's means and variances [batch..., N, L], before the prior.

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
        """Return the posterior of the codes given the guide's pseudo-observations.

        Those of points without any observation have no part in the evidence.

        :param Y: as in :meth:`encode`.
        :raises TypeError: without ``Y``, or for arguments of GPflow's method of the same name
            (``precompute_cache``), which returns something else.
        """
        if Y is None or of_gpflow:
            raise TypeError(
                "posterior(X, Y) is of the codes of observations, so Y is needed. GPflow's object "
                "of that name, which remembers its data, is here "
                "gpflow_bae.Posterior.from_point(model, (X, Y))."
            )
        batch = Batch(X, *with_mask(Y, mask))
        prior = self.prior_for(batch)
        q = prior.condition(X, *self.guide.pseudo_observations(prior, batch, _NO_SEED))
        spread = self.guide.spread(batch)
        if spread is not None:
            q = q._replace(variance=q.variance + spread)
        if batch.mask is None:
            return q
        empty = log_density_of_empty(batch.mask, self.latent_dim)
        return q._replace(log_marginal=q.log_marginal - empty)

    def approximate_posterior(
        self, batch: Batch, snapshot: Snapshot | None = None, seed: TensorType | None = None
    ) -> CodePosterior:
        """Return moments of q(latents) for a batch, and its share of KL[q || prior].

        The KL includes that of unknown inputs with distributions.

        :param seed: seed for drawing those inputs; None uses their means.
        """
        prior = self.prior_for(batch, seed)
        q = self.guide.posterior(prior, batch, snapshot)
        return q._replace(divergence=q.divergence + input_divergence(prior, batch))

    def snapshot(self, data: Any) -> Snapshot | None:
        """Return the guide's snapshot of the codes."""
        return self.guide.snapshot(data)

    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return the terms of the bound for a batch, with one draw of the codes."""
        prior = self.prior_for(batch, seed)
        latents, divergence = self.guide.draw(prior, batch, 1, seed, snapshot)
        divergence += input_divergence(prior, batch)
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
        """Arguments as in :class:`VariationalAutoencoder`; the encoder has 2 L outputs."""
        super().__init__(StandardNormal(latent_dim), decoder, encoder, likelihood, num_data)


class CVAE(VariationalAutoencoder):
    """Conditional VAE (Sohn et al. 2015), with input features for encoder and decoder.

    The codes have a standard normal prior, independent of the inputs.
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
            first; features may become constant planes of an image, for example.
        :param encoder: Keras model ``[rows, P + condition_dim] -> [rows, 2 latent_dim]``,
            observations first.
        :param condition: maps inputs ``X [..., N, D]`` to features ``[..., N, condition_dim]``; by
            default the identity.
        :param condition_dim: number of features.
        :raises ValueError: if the widths of the networks do not match these.
        """
        self.condition_dim = int(condition_dim)
        self._condition = Condition(condition, condition_dim)
        guide = ConditionalGuide(as_gaussian_encoder(encoder), self._condition)
        super().__init__(StandardNormal(latent_dim), decoder, guide, likelihood)

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Return likelihood parameters at codes and input features."""
        return self.decoder(self._condition.join(latents, X))
