"""Encoders that return a Gaussian over the codes of each point."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.logdensities import gaussian

from ..core.annotations import check_arguments
from ..core.keras_module import KerasModule
from ..mcmc.noise import item_noise
from .base import DensityEncoder, Noise, RowCodes, append_mask

__all__ = ["BaseGaussianEncoder", "GaussianEncoder"]


class BaseGaussianEncoder(DensityEncoder):
    """Base class of encoders whose call returns mean and variance of Gaussian codes."""

    min_variance: float
    max_variance: float

    @abstractmethod
    def __call__(
        self, Y: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance [batch..., N, L] of the codes of ``Y [batch..., N, P]``."""

    def _clipped_variance(self, log_scale: tf.Tensor) -> tf.Tensor:
        bounds = 0.5 * np.log([self.min_variance, self.max_variance])
        return tf.exp(2.0 * tf.clip_by_value(log_scale, *bounds))

    @check_shapes(
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return: [batch..., N, L]",
    )
    def sample(
        self, Y: TensorType, seed: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tf.Tensor:
        """Draw the codes once; equal seeds (two integers) give equal draws."""
        mean, variance = self(Y, mask=mask, **side)
        noise = item_noise(tf.shape(mean), seed, mean.dtype)
        return mean + tf.sqrt(variance) * noise

    @check_shapes(
        "Y: [batch..., N, P]",
        "latents: [batch..., N, L]",
        "mask: [batch..., N, P]",
        "return: [batch..., N]",
    )
    def log_prob(
        self, Y: TensorType, latents: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tf.Tensor:
        """Return the log density of ``latents``, as used by ``EncoderSettings(loss="nll")``."""
        mean, variance = self(Y, mask=mask, **side)
        return tf.reduce_sum(gaussian(latents, mean, variance), -1)

    def codes_of_rows(
        self, Y: tf.Tensor, mask: tf.Tensor | None, noise: Noise, num_draws: int
    ) -> RowCodes:
        return RowCodes.gaussian(*self(Y, **self.side_inputs(mask)), noise, num_draws)


class GaussianEncoder(KerasModule, BaseGaussianEncoder):
    """A Keras network with 2L outputs: means and log standard deviations of L code channels.

    In variational inference the Gaussian is a pseudo-observation of the codes, on which the latent
    prior is conditioned (Pearce 2019; Jazbec et al. 2021); as an amortised sampler
    (Algorithm 1 of Tran et al. 2023 with the loss ``"nll"``) it is the codes' distribution.
    """

    @check_arguments()
    def __init__(
        self,
        model: keras.Model,
        min_variance: float = 1e-6,
        max_variance: float = 1e3,
        takes_mask: bool = False,
    ):
        """
        :param model: network ``[rows, P]`` to ``[rows, 2 L]``; missing inputs are zeros.
        :param min_variance, max_variance: the variance is clipped to this range; the default is
            that of Jazbec et al. (2021) for the moving ball.
        :param takes_mask: whether the network's inputs are ``[rows, 2 P]``, observations and then
            the mask with 1 where observed, to distinguish zeros from missing values; see
            :func:`~gpflow_bae.encoders.partial_encoder`.
        :raises ValueError: for an odd number of outputs, or of inputs if ``takes_mask``.
        """
        super().__init__(model, prior=None, argument="encoder")
        width = self.num_outputs
        if width % 2:
            raise ValueError(
                f"A GaussianEncoder needs 2 L outputs (means and log standard deviations), but "
                f"the network has {width}; give its last layer an even number of units."
            )
        if takes_mask and self.num_inputs % 2:
            raise ValueError(
                "With takes_mask=True the network's inputs are observations and mask, 2 P of them, "
                f"but it takes {self.num_inputs}; give keras.Input an even width."
            )
        self.latent_dim = width // 2
        self.takes_mask = bool(takes_mask)
        self.min_variance = float(min_variance)
        self.max_variance = float(max_variance)

    @check_shapes(
        "Y: [batch..., N, P]",
        "mask: [batch..., N, P]",
        "return[0]: [batch..., N, L]",
        "return[1]: [batch..., N, L]",
    )
    def __call__(
        self, Y: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and variance of the codes, in ``default_float()``.

        :param mask: True where observed; None if nothing is missing. Ignored unless
            ``takes_mask``.
        """
        inputs = append_mask(Y, mask, self.num_inputs // 2) if self.takes_mask else Y
        outputs = tf.cast(self.apply_to_rows(inputs), gpflow.default_float())
        mean, log_scale = tf.split(outputs, 2, axis=-1)
        return mean, self._clipped_variance(log_scale)
