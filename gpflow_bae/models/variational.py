"""Variational autoencoders whose encoder emits pseudo-observations of the codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gpflow
import keras
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType

from ..base import Batch, LatentPosterior, Snapshot, VariationalTerms
from ..decoders import KerasDecoder
from ..encoders import BaseGaussianEncoder, GaussianEncoder, side_inputs
from ..latent_priors import StandardNormal
from ..latent_priors.base import LOG_2PI, GaussianLatentPrior
from ..likelihoods import MaskedLikelihood
from ..mcmc.noise import standard_noise
from .autoencoder import BayesianAutoencoder, uninformative_where_empty

__all__ = ["CVAE", "VAE", "MeanFieldAutoencoder", "VariationalAutoencoder"]

Network: TypeAlias = keras.Model | tf.Module
LikelihoodLike: TypeAlias = gpflow.likelihoods.Likelihood | MaskedLikelihood


def as_decoder(decoder: Network) -> tf.Module:
    """A Keras model as a decoder; a module stays as it is."""
    return decoder if isinstance(decoder, gpflow.Module) else KerasDecoder(decoder)


def as_encoder(encoder: Network) -> tf.Module:
    """A Keras model with 2 L outputs as a Gaussian encoder; a module stays as it is."""
    return encoder if isinstance(encoder, gpflow.Module) else GaussianEncoder(encoder)


class VariationalAutoencoder(BayesianAutoencoder):
    r"""q(latents) is the prior conditioned on the encoder's Gaussian pseudo-observations.

    With encoder outputs :math:`(\mu_n, s_n^2)`, prior p and evidence
    :math:`Z = \int p(latents) \prod_n N(\mu_n | latent_n, s_n^2)` (Pearce 2019, eq. 5-6),

    .. math:: ELBO = E_q[\log p(Y | latents)] - E_q[\log N(\mu | latents, s^2)] + \log Z .

    For the standard normal prior this is the plain VAE: q(latent_n) is a Gaussian whose moments
    are the encoder's, reparameterised. Decoder weights and hyperparameters have point estimates;
    their priors join the bound where the settings of the fit say so.

    A point without any observation, such as the padding of a task that is shorter than others, has
    a pseudo-observation that says nothing: the posterior of the other points is what it would be
    without that point, its own is the prior given the others, and its terms of the bound cancel.
    """

    encoder: BaseGaussianEncoder

    def __init__(
        self,
        latent_prior: GaussianLatentPrior,
        decoder: Network,
        encoder: Network,
        likelihood: LikelihoodLike,
    ):
        """Arguments as in :class:`BayesianAutoencoder`; the encoder must be Gaussian."""
        encoder = as_encoder(encoder)
        if not isinstance(encoder, BaseGaussianEncoder):
            raise TypeError(
                "A variational model needs the density of its codes: encoder must be a "
                f"gpflow_bae.encoders.GaussianEncoder, got {type(encoder).__name__}."
            )
        super().__init__(latent_prior, as_decoder(decoder), encoder, likelihood)

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Parameters whose log prior density may join the bound."""
        return self.sampled_parameters

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Trainable variables of the prior over codes."""
        return tuple(self.latent_prior.trainable_variables)

    def encoder_moments(
        self,
        X: TensorType | None,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means and variances as it emits them; ``X`` matters to subclasses."""
        return self.encoder(Y, **side_inputs(self.encoder, mask, indices))

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]")
    def encode(
        self,
        X: TensorType | None,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [batch..., N, L] of the pseudo-observations.

        :param mask: True where ``Y`` is observed; None where nothing is missing. A point without
            any observation says nothing of its code, whatever the encoder makes of it.
        :param indices: which items of the training data these are, for encoders that hold codes.
        """
        return uninformative_where_empty(*self.encoder_moments(X, Y, mask, indices), mask)

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]")
    def posterior(
        self, X: TensorType | None, Y: TensorType, mask: TensorType | None = None
    ) -> LatentPosterior:
        """Marginal moments of q(latents | X, Y); missing entries of ``Y`` must be zeros."""
        return self.latent_prior.condition(X, *self.encode(X, Y, mask))

    def pseudo_observations(
        self,
        X: TensorType | None,
        Y: TensorType,
        seed: TensorType,
        num_draws: int = 16,
        mask: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's output as it is: it is trained to be a pseudo-observation."""
        return self.encode(X, Y, mask)

    def snapshot(self, data: Any) -> Snapshot | None:
        """None: the bound of a batch needs nothing of other points."""
        return None

    def approximate_posterior(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean and variance [T, N, L] of q(latents), and the batch's share of KL[q || prior]."""
        mean, variance = self.encode(batch.X, batch.Y, batch.mask, batch.indices)
        q = self.latent_prior.condition_batch(batch.X, mean, variance, batch.point_scale)
        pseudo = tfp.distributions.Normal(mean, tf.sqrt(variance)).log_prob(q.mean)
        pseudo -= 0.5 * q.variance / variance  # the expectation over q of the quadratic
        return q.mean, q.variance, tf.reduce_sum(pseudo) - tf.reduce_sum(q.log_marginal)

    def terms(self, batch: Batch, seed: TensorType) -> VariationalTerms:
        """The bound's two terms for a batch, with one draw of the codes."""
        mean, variance, divergence = self.approximate_posterior(batch)
        noise = standard_noise(tf.shape(mean), seed, mean.dtype)
        F = self.decode(batch.X, mean + tf.sqrt(variance) * noise)
        observed = tf.reduce_sum(self.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        return VariationalTerms(tf.cast(observed, mean.dtype), divergence, F)

    def elbo(self, batch: Batch, seed: TensorType) -> tf.Tensor:
        """Evidence lower bound of a batch of tasks or points, one draw of the codes, in nats.

        The engine scales it by N/B, in one place.
        """
        terms = self.terms(batch, seed)
        return terms.expected_log_likelihood - terms.divergence


class MeanFieldAutoencoder(VariationalAutoencoder):
    r"""q(latents) is the encoder's Gaussian itself, independent over points (Casale et al. 2018).

    .. math:: ELBO = E_q[\log p(Y | latents)] + E_q[\log p(latents | X)] + H[q] .

    A prior that couples the points of a task needs all of their codes. In a minibatch of points
    only the batch's are fresh; of the others a snapshot is taken, as often as the engine takes
    one, where Casale et al. (section 3.3) take a Taylor expansion of that term once an epoch.

    A point without any observation keeps the Gaussian that the encoder gives it, and is part of
    the bound: a mean-field q cannot say nothing. So leave such points out instead of padding.
    """

    def encode(
        self,
        X: TensorType | None,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [batch..., N, L] of q(latents) itself."""
        return self.encoder_moments(X, Y, mask, indices)

    @property
    def splits_over_points(self) -> bool:
        """True: the other points' codes are in the snapshot."""
        return True

    def snapshot(self, data: Any) -> Snapshot | None:
        """The codes of all points as they are now; None where minibatches are of whole tasks."""
        if data.axis == 0:
            return None
        mean, _ = self.encode(data.X, data.Y, data.mask)
        return Snapshot(data.X, tf.stop_gradient(mean))

    def pseudo_observations(
        self,
        X: TensorType | None,
        Y: TensorType,
        seed: TensorType,
        num_draws: int = 16,
        mask: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means as codes: the prior has noise of its own (Casale et al., eq. 10).

        A point without any observation has none.
        """
        mean, _ = self.encode(X, Y, mask)
        return uninformative_where_empty(mean, tf.zeros_like(mean), mask)

    def approximate_posterior(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The encoder's moments, and -E_q[log p(latents | X)] - H[q]."""
        mean, variance = self.encode(batch.X, batch.Y, batch.mask, batch.indices)
        entropy = 0.5 * tf.reduce_sum(tf.math.log(variance) + 1.0 + LOG_2PI)
        if batch.snapshot is None or batch.indices is None:
            expected = self.latent_prior.expected_log_prob(batch.X, mean, variance)
        else:
            expected = self._expected_given_snapshot(
                batch.snapshot, batch.indices, batch.point_scale, mean, variance
            )
        return mean, variance, -tf.reduce_sum(expected) - entropy

    def _expected_given_snapshot(
        self,
        whole: Snapshot,
        indices: tf.Tensor,
        scale: float,
        mean: tf.Tensor,
        variance: tf.Tensor,
    ) -> tf.Tensor:
        """The batch's share of E_q[log p(latents | X)], given the codes of all other points.

        Times N/B it has the gradient of the whole term in the prior's parameters, and N/B of it in
        the batch's codes, whose gradient stands for that of all codes.
        """
        amplified = scale * mean - tf.stop_gradient((scale - 1.0) * mean)  # the value is the mean
        where = indices[:, None]
        codes = tf.tensor_scatter_nd_update(whole.codes[0], where, amplified[0])[None]
        precision = self.latent_prior.precision_diagonal(whole.X, tf.shape(codes))
        precision = tf.broadcast_to(precision, tf.shape(codes))
        quadratic = tf.gather(precision, indices, axis=1) * variance
        log_prob = tf.reduce_sum(self.latent_prior.log_prob(whole.X, codes))
        return log_prob / scale - 0.5 * tf.reduce_sum(quadratic)


class VAE(VariationalAutoencoder):
    """Variational autoencoder with a standard normal prior (Kingma and Welling 2014)."""

    def __init__(
        self, decoder: Network, encoder: Network, likelihood: LikelihoodLike, latent_dim: int
    ):
        """Keras models are wrapped: the encoder has ``2 latent_dim`` outputs."""
        super().__init__(StandardNormal(latent_dim), decoder, encoder, likelihood)


class CVAE(VariationalAutoencoder):
    """Conditional VAE (Sohn et al. 2015): encoder and decoder see features of the inputs.

    The codes have a standard normal prior, whatever the inputs.
    """

    needs_inputs = True

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
        super().__init__(StandardNormal(latent_dim), decoder, encoder, likelihood)
        self._condition = condition or (lambda X: X)

    def _join(self, values: TensorType, X: TensorType | None) -> tf.Tensor:
        if X is None:
            raise ValueError("A CVAE's networks see features of the inputs: X is needed, got None.")
        values = tf.convert_to_tensor(values)
        features = tf.cast(self._condition(tf.convert_to_tensor(X)), values.dtype)
        if features.shape[-1] != self.condition_dim:
            raise ValueError(
                f"condition returned {features.shape[-1]} features per point, but condition_dim is "
                f"{self.condition_dim}."
            )
        shape = tf.concat([tf.shape(values)[:-1], [self.condition_dim]], 0)
        return tf.concat([values, tf.broadcast_to(features, shape)], -1)

    def encoder_moments(
        self,
        X: TensorType | None,
        Y: TensorType,
        mask: TensorType | None = None,
        indices: TensorType | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means and variances given observations and features of the inputs.

        The features are always observed: an encoder that takes the mask sees it with ones for them.
        """
        joined = self._join(Y, X)
        if mask is not None:
            features = tf.ones_like(joined[..., tf.shape(Y)[-1] :], tf.bool)
            mask = tf.concat([tf.cast(mask, tf.bool), features], -1)
        return self.encoder(joined, **side_inputs(self.encoder, mask, indices))

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Likelihood parameters at codes and features of the inputs."""
        return self.decoder(self._join(latents, X))
