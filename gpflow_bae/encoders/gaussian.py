"""Encoders that emit a Gaussian over the codes of each point."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..keras_module import KerasModule
from ..mcmc.noise import standard_noise

__all__ = ["GaussianEncoder"]


class GaussianEncoder(KerasModule):
    """A Keras network with 2L outputs: means, and log standard deviations, of L code channels.

    As a variational family the Gaussian is a pseudo-observation of the codes, which the latent
    prior then conditions on (Pearce 2019; Jazbec et al. 2021); as an amortised sampler
    (Algorithm 1 of Tran et al. 2023 with ``encoder_loss="nll"``) it is the codes' distribution.
    """

    def __init__(self, model: keras.Model, min_variance: float = 1e-6, max_variance: float = 1e3):
        """
        :param model: maps ``[rows, P]`` to ``[rows, 2 L]``; missing inputs arrive as zeros.
        :param min_variance, max_variance: the variance is clipped to this range, which is that of
            Jazbec et al. (2021) for the moving ball.
        """
        super().__init__(model, prior=None, argument="encoder")
        width = self.num_outputs
        if width % 2:
            raise ValueError(
                f"A GaussianEncoder needs 2 L outputs (means and log standard deviations), but "
                f"the network has {width}; give its last layer an even number of units."
            )
        self.latent_dim = width // 2
        self.min_variance = float(min_variance)
        self.max_variance = float(max_variance)

    @check_shapes(
        "Y: [batch..., N, P]", "return[0]: [batch..., N, L]", "return[1]: [batch..., N, L]"
    )
    def __call__(self, Y: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the codes, in ``default_float()``."""
        outputs = tf.cast(self.apply_to_rows(Y), gpflow.default_float())
        mean, log_scale = tf.split(outputs, 2, axis=-1)
        bounds = 0.5 * np.log([self.min_variance, self.max_variance])
        return mean, tf.exp(2.0 * tf.clip_by_value(log_scale, *bounds))

    @check_shapes("Y: [batch..., N, P]", "return: [batch..., N, L]")
    def sample(self, Y: TensorType, seed: TensorType) -> tf.Tensor:
        """One draw of the codes, the same for the same ``seed`` (two integers)."""
        mean, variance = self(Y)
        noise = standard_noise(tf.shape(mean), seed, mean.dtype)
        return mean + tf.sqrt(variance) * noise

    @check_shapes("Y: [batch..., N, P]", "latents: [batch..., N, L]", "return: [batch..., N]")
    def log_prob(self, Y: TensorType, latents: TensorType) -> tf.Tensor:
        """Log density of ``latents`` under the encoder, for ``encoder_loss="nll"``."""
        mean, variance = self(Y)
        density = tfp.distributions.Normal(mean, tf.sqrt(variance)).log_prob(latents)
        return tf.reduce_sum(density, -1)
