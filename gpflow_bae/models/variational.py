"""Variational autoencoders whose encoder emits pseudo-observations of the codes."""

from __future__ import annotations

import gpflow
import keras
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..base import Batch, LatentPosterior
from ..decoders import KerasDecoder
from ..encoders import GaussianEncoder
from ..latent_priors import StandardNormal
from ..latent_priors.base import GaussianLatentPrior
from ..likelihoods import MaskedLikelihood
from ..mcmc.noise import standard_noise
from .autoencoder import BayesianAutoencoder

__all__ = ["VAE", "VariationalAutoencoder"]


class VariationalAutoencoder(BayesianAutoencoder):
    r"""q(latents) is the prior conditioned on the encoder's Gaussian pseudo-observations.

    With encoder outputs :math:`(\mu_n, s_n^2)`, prior p and evidence
    :math:`Z = \int p(latents) \prod_n N(\mu_n | latent_n, s_n^2)` (Pearce 2019, eq. 5-6),

    .. math:: ELBO = E_q[\log p(Y | latents)] - E_q[\log N(\mu | latents, s^2)] + \log Z .

    For the standard normal prior this is the plain VAE: q(latent_n) is a Gaussian whose moments
    are the encoder's, reparameterised.
    """

    encoder: GaussianEncoder

    def __init__(
        self,
        latent_prior: GaussianLatentPrior,
        decoder: tf.Module,
        encoder: tf.Module,
        likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood,
    ):
        """Arguments as in :class:`BayesianAutoencoder`; the encoder must be Gaussian."""
        if not isinstance(encoder, GaussianEncoder):
            raise TypeError(
                "A variational model needs the density of its codes: encoder must be a "
                f"gpflow_bae.encoders.GaussianEncoder, got {type(encoder).__name__}."
            )
        super().__init__(latent_prior, decoder, encoder, likelihood)

    @check_shapes("Y: [batch..., N, P]")
    def posterior(self, X: TensorType | None, Y: TensorType) -> LatentPosterior:
        """Marginal moments of q(latents | X, Y); missing entries of ``Y`` must be zeros."""
        return self.latent_prior.condition(X, *self.encoder(Y))

    def pseudo_observations(
        self, X: TensorType | None, Y: TensorType, seed: TensorType, num_draws: int = 16
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's output as it is: it is trained to be a pseudo-observation."""
        return self.encoder(Y)

    def elbo(self, batch: Batch, seed: TensorType) -> tf.Tensor:
        """Evidence lower bound of a batch of tasks, one draw of the codes, in nats.

        The engine scales it by N/B, in one place.
        """
        mean, variance = self.encoder(batch.Y)
        q = self.latent_prior.condition(batch.X, mean, variance)
        noise = standard_noise(tf.shape(q.mean), seed, q.mean.dtype)
        F = self.decoder(q.mean + tf.sqrt(q.variance) * noise)
        observed = self.likelihood.masked_log_prob(F, batch.Y, batch.mask)
        pseudo = tfp.distributions.Normal(mean, tf.sqrt(variance)).log_prob(q.mean)
        pseudo -= 0.5 * q.variance / variance  # the expectation over q of the quadratic
        return (
            tf.cast(tf.reduce_sum(observed), q.mean.dtype)
            - tf.reduce_sum(pseudo)
            + tf.reduce_sum(q.log_marginal)
        )


class VAE(VariationalAutoencoder):
    """Variational autoencoder with a standard normal prior (Kingma and Welling 2014)."""

    def __init__(
        self,
        decoder: keras.Model | tf.Module,
        encoder: keras.Model | tf.Module,
        likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood,
        latent_dim: int,
    ):
        """Keras models are wrapped: the encoder has ``2 latent_dim`` outputs."""
        super().__init__(
            latent_prior=StandardNormal(latent_dim),
            decoder=decoder if isinstance(decoder, gpflow.Module) else KerasDecoder(decoder),
            encoder=encoder if isinstance(encoder, gpflow.Module) else GaussianEncoder(encoder),
            likelihood=likelihood,
        )
