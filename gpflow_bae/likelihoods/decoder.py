"""A decoder and its observation likelihood as one GPflow likelihood of the codes."""

from __future__ import annotations

import math

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..mcmc.noise import standard_noise
from .masked import MaskedLikelihood, masked

__all__ = ["DecoderLikelihood"]


class DecoderLikelihood(gpflow.likelihoods.Likelihood):
    """The likelihood p(y | decoder(latents)), for any GPflow model of vector-valued functions.

    ``F [batch..., L]`` are codes and ``Y [batch..., P]`` observations, NaN where missing.
    Expectations over Gaussian codes are averages over ``num_draws`` reparameterised draws, the same
    in each call (common random numbers). If ``seed`` is a variable, assignments to it change the
    draws, as fits in minibatches need.

    A decoder may also take inputs (:class:`~gpflow_bae.decoders.ConditionalDecoder`, for sizes
    of counts or features); kernels should exclude such columns (``active_dims``).
    """

    @check_arguments(num_draws=1)
    def __init__(
        self,
        decoder: tf.Module,
        likelihood: gpflow.likelihoods.Likelihood | MaskedLikelihood,
        num_draws: int = 10,
        seed: int | tf.Variable = 0,
    ):
        """
        :param decoder: a :class:`~gpflow_bae.decoders.KerasDecoder`, or any decoder.
        :param likelihood: likelihood of the observations given the decoder's outputs.
        :param seed: an integer, or a scalar integer variable that is not trainable.
        """
        if not hasattr(decoder, "latent_dim") or not hasattr(decoder, "output_dim"):
            raise TypeError(
                "decoder must be one of gpflow_bae.decoders, with a latent_dim and an output_dim, "
                f"got {kind_of(decoder)}."
            )
        super().__init__(
            input_dim=None, latent_dim=decoder.latent_dim, observation_dim=decoder.output_dim
        )
        self.decoder = decoder
        self.observation = masked(likelihood)
        self.observation.check_outputs(decoder.output_dim)
        self.num_draws = int(num_draws)
        self.seed = seed if isinstance(seed, tf.Variable) else int(seed)

    def _decoded(self, F: TensorType, X: TensorType | None) -> tf.Tensor:
        """Decode codes [batch..., L] as tasks of one point: [batch..., 1, P]."""
        F = tf.convert_to_tensor(F)[..., None, :]
        if not getattr(self.decoder, "needs_inputs", False):
            return self.decoder(F)
        if X is None:
            raise ValueError("The decoder sees inputs: X is needed, got None.")
        return self.decoder(F, tf.convert_to_tensor(X)[..., None, :])

    @check_shapes("F: [batch..., L]", "Y: [batch..., P]", "return: [batch...]")
    def masked_log_prob(
        self, F: TensorType, Y: TensorType, mask: TensorType | None, X: TensorType | None = None
    ) -> tf.Tensor:
        """Return log p(observed y | codes), in the decoder's precision; ``Y`` must be finite.

        :param X: inputs that broadcast to [batch..., D], for a decoder that takes them.
        """
        decoded = self._decoded(F, X)
        Y = tf.convert_to_tensor(Y)[..., None, :]
        mask = None if mask is None else tf.convert_to_tensor(mask)[..., None, :]
        return self.observation.masked_log_prob(decoded, Y, mask)[..., 0]

    def _draws(self, Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([[self.num_draws], tf.shape(Fmu)], 0)
        noise = standard_noise(shape, tf.stack([tf.cast(self.seed, tf.int32), 0xDEC]), Fmu.dtype)
        return Fmu + tf.sqrt(Fvar) * noise

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        Y = tf.convert_to_tensor(Y)
        mask = tf.math.logical_not(tf.math.is_nan(Y))
        observed = tf.where(mask, Y, tf.zeros_like(Y))
        shape = tf.concat(
            [tf.shape(F)[:-1], tf.shape(Y)[-1:]], 0
        )  # F may have a leading axis of draws
        observed, mask = tf.broadcast_to(observed, shape), tf.broadcast_to(mask, shape)
        return tf.cast(self.masked_log_prob(F, observed, mask, X), gpflow.default_float())

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, X)[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, X)[1]

    def _moments(self, F: TensorType, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = self.observation.moments(self._decoded(F, X)[..., 0, :])
        return tf.cast(mean, gpflow.default_float()), tf.cast(variance, gpflow.default_float())

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = self._moments(self._draws(Fmu, Fvar), X)
        total = tf.reduce_mean(mean, 0)
        spread = tf.reduce_mean(tf.square(mean), 0) - tf.square(total)
        return total, tf.reduce_mean(variance, 0) + tf.maximum(spread, 0.0)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        log_prob = self._log_prob(X, self._draws(Fmu, Fvar), Y)
        return tf.reduce_logsumexp(log_prob, 0) - math.log(self.num_draws)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_mean(self._log_prob(X, self._draws(Fmu, Fvar), Y), 0)
