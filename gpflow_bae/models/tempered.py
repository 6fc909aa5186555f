"""Bayesian autoencoders with all weights sampled by tempered MCMC (Chandra et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import keras
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from ..base import Batch
from ..core import functional
from ..core.annotations import check_arguments
from ..core.keras_module import KerasModule, WeightPrior
from ..core.parameter_set import ParameterSet
from ..decoders import KerasDecoder, normal_prior
from ..encoders import RowCodes
from ..likelihoods import Gaussian

__all__ = ["TemperedBAE"]

tfd = tfp.distributions

# With more weights than this, one replica already uses all cores and fills the caches.
_VECTORISE_UP_TO = 100_000


class TemperedBAE(gpflow.Module):
    r"""A deterministic encoder and decoder, with all their weights and the noise variance sampled.

    .. math:: y_n \sim N(g(f(y_n; w_e); w_d), \tau^2), \quad w \sim N(0, 25), \quad
              \tau^2 \sim InverseGamma

    (Chandra et al. 2022, eqs. 3 and 4, where the prior variance of weights has no number; 25 is
    ours). Codes f(y) have neither prior nor noise: their uncertainty is that of the encoder's
    weights. Missing entries (NaN) enter the encoder as zeros and drop out of
    the likelihood.

    Sample it with :func:`gpflow_bae.inference.sample_tempered`, or in minibatches with
    :func:`gpflow_bae.inference.sample_amortized`. The scikit-learn estimator is
    :class:`gpflow_bae.estimators.TemperedAutoencoder`.
    """

    @check_arguments()
    def __init__(
        self,
        encoder: keras.Model,
        decoder: keras.Model,
        *,
        weight_prior: WeightPrior | None = None,
        noise_variance: float = 0.01,
        noise_prior: Any | None = None,
    ):
        """
        :param encoder: built Keras 3 model from ``[rows, P]`` to ``[rows, L]``.
        :param decoder: built Keras 3 model from ``[rows, L]`` to ``[rows, P]``.
        :param weight_prior: prior per weight tensor, given its shape; default N(0, 25) on each
            weight and bias.
        :param noise_variance: initial tau^2.
        :param noise_prior: prior of tau^2; default InverseGamma(0.01, 3). The published
            concentration, 0, is not a density.
        :raises ValueError: if the networks do not fit together.
        """
        super().__init__(name=None)
        prior = weight_prior or normal_prior(5.0)
        self.encoder = KerasModule(encoder, prior, argument="encoder")
        self.decoder = KerasDecoder(decoder, prior)
        if self.encoder.num_outputs != self.decoder.latent_dim:
            raise ValueError(
                f"encoder returns {self.encoder.num_outputs} codes per row and decoder takes "
                f"{self.decoder.latent_dim}; the two must be equal."
            )
        if self.encoder.num_inputs != self.decoder.output_dim:
            raise ValueError(
                f"encoder takes rows of {self.encoder.num_inputs} numbers and decoder returns rows "
                f"of {self.decoder.output_dim}; an autoencoder's must be equal."
            )
        if noise_prior is None:
            noise_prior = tfd.InverseGamma(*gpflow.utilities.to_default_float([0.01, 3.0]))
        self.likelihood = Gaussian(noise_variance, prior=noise_prior)

    needs_inputs = False
    splits_over_points = True
    latent_prior_name = "TemperedBAE"
    condition_dim = 0
    decoder_needs_inputs = False

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return self.decoder.latent_dim

    @property
    def sampled(self) -> ParameterSet:
        """The sampled parameters: all that are trainable."""
        return ParameterSet(self, lambda p: p.trainable)

    @property
    def amortized(self) -> ParameterSet:
        """An empty set, because the encoder is sampled too."""
        return ParameterSet(self, lambda _: False)

    def bind(self, values: Sequence[TensorType]) -> TemperedBAE:
        """Return a copy of this model with other unconstrained ``values``."""
        return functional.functional_copy(self, self.sampled.constrained(values))

    def decode(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Return the means of rows ``[..., N, P]`` at codes; ``X`` is ignored."""
        return self.decoder(latents)

    def codes_of_rows(
        self, rows: Batch, noise: Any, num_draws: int, prior_variance: tf.Tensor | None = None
    ) -> RowCodes:
        """Encode each row, for serving; all draws are equal."""
        mean = tf.cast(self.encode(rows.Y), gpflow.default_float())
        return RowCodes(mean, tf.zeros_like(mean), tf.repeat(mean[None], num_draws, 0))

    def encode(self, Y: TensorType) -> tf.Tensor:
        """Return codes ``[..., N, L]`` of complete rows ``Y [..., N, P]``."""
        return self.encoder.apply_to_rows(Y)

    def reconstruct(self, Y: TensorType) -> tf.Tensor:
        """Return reconstructed means [..., N, P] of complete rows ``Y [..., N, P]``."""
        return self.decoder(self.encode(Y))

    def map_samples(self, function: Any, values: Sequence[TensorType]) -> tf.Tensor:
        """Map ``function(model)`` over parameter values along their first axis, and stack results.

        Vectorised for small dense networks. Convolutions cannot be vectorised (TensorFlow takes
        one filter for all), and large networks are as fast one by one.
        """

        def one(values: tuple[tf.Tensor, ...]) -> tf.Tensor:
            return function(self.bind(values))

        dense = all(len(w.shape) <= 2 for w in self.encoder.weights + self.decoder.weights)
        values = tuple(tf.convert_to_tensor(v) for v in values)
        if dense and self.sampled.num_scalars <= _VECTORISE_UP_TO:
            return tf.vectorized_map(one, values, fallback_to_while_loop=False)
        results = [one(v) for v in zip(*(tf.unstack(v) for v in values), strict=True)]
        return tf.stack(results)

    def log_prior(self, values: Sequence[TensorType]) -> tf.Tensor:
        """Return the log prior [R] of unconstrained ``values`` [R, ...], Jacobians included."""
        return self.sampled.log_prior(values, chain_ndims=1)

    def data_log_likelihood(self, batch: Batch) -> tf.Tensor:
        """Return log p(Y | parameters) at their present values, summed over the batch."""
        F = self.reconstruct(batch.Y)
        rows = self.likelihood.masked_log_prob(F, batch.Y, batch.mask)
        # Summing a million float32 terms would add 0.1 nats of rounding to acceptance ratios.
        return tf.reduce_sum(tf.cast(rows, gpflow.default_float()))

    def log_likelihood(self, values: Sequence[TensorType], batch: Batch) -> tf.Tensor:
        """Return log p(Y | values) [R], summed over the batch."""
        return self.map_samples(lambda bound: bound.data_log_likelihood(batch), values)
