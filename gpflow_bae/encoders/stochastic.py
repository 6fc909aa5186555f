"""Implicit encoders: networks of observations and noise, whose outputs are draws of the codes."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.keras_module import KerasModule
from ..mcmc.noise import item_noise
from .base import Encoder, Noise, RowCodes, append_mask

__all__ = ["StochasticEncoder"]


class StochasticEncoder(KerasModule, Encoder):
    """An implicit distribution over codes: latents = f([y, epsilon]) with epsilon ~ N(0, I).

    In Tran et al. (2023), appendix E, epsilon has the shape of y; here its width is free. The
    density is unknown, so the encoder is fitted with a scoring rule that needs only draws
    (``EncoderSettings(loss="energy")``; the paper's ``"mse"`` collapses to the posterior mean).
    """

    @check_arguments()
    def __init__(self, model: keras.Model, noise_dim: int | None = None, takes_mask: bool = False):
        """
        :param model: network ``[rows, P + noise_dim]``, observations first, to ``[rows, L]``.
        :param noise_dim: width of epsilon; by default that of y, as in the paper: half of the
            network's inputs, or a third if ``takes_mask``.
        :param takes_mask: whether the network's inputs are ``[rows, 2 P + noise_dim]``:
            observations, the mask with 1 where observed, and then noise.
        :raises ValueError: if the number of network inputs does not fit.
        """
        super().__init__(model, prior=None, argument="encoder")
        width = self.num_inputs
        parts = 3 if takes_mask else 2
        if noise_dim is None:
            if width % parts:
                what = "not divisible by 3" if takes_mask else "odd"
                raise ValueError(
                    f"The encoder takes {width} inputs, which is {what}, so noise of the shape of "
                    "y is impossible; give it 2 P inputs, the last half noise, or pass noise_dim."
                )
            noise_dim = width // parts
        if not 0 < noise_dim < width:
            raise ValueError(
                f"noise_dim must lie between 1 and {width - 1} (the network takes {width} "
                f"inputs, features and noise together), got {noise_dim}."
            )
        if takes_mask and (width - noise_dim) % 2:
            raise ValueError(
                "With takes_mask=True the network's inputs are observations, mask and noise, "
                f"2 P + noise_dim, but it takes {width} and noise_dim is {noise_dim}."
            )
        self.noise_dim = int(noise_dim)
        self.takes_mask = bool(takes_mask)
        self.latent_dim = self.num_outputs

    @check_shapes(
        "Y: [batch..., N, P]",
        "noise: [batch..., N, E]",
        "mask: [batch..., N, P]",
        "return: [batch..., N, L]",
    )
    def __call__(
        self, Y: TensorType, noise: TensorType, mask: TensorType | None = None
    ) -> tf.Tensor:
        """Return the codes of ``Y`` and ``noise``, in ``default_float()``.

        :param mask: True where observed; None if nothing is missing. Ignored unless
            ``takes_mask``.
        """
        Y = tf.convert_to_tensor(Y)
        num_outputs = (self.num_inputs - self.noise_dim) // 2
        features = append_mask(Y, mask, num_outputs) if self.takes_mask else Y
        inputs = tf.concat([features, tf.cast(noise, Y.dtype)], axis=-1)
        return tf.cast(self.apply_to_rows(inputs), gpflow.default_float())

    @check_shapes("Y: [batch..., N, P]", "mask: [batch..., N, P]", "return: [batch..., N, L]")
    def sample(
        self, Y: TensorType, seed: TensorType, mask: TensorType | None = None, **side: Any
    ) -> tf.Tensor:
        """Draw the codes once; equal seeds (two integers) give equal draws."""
        Y = tf.convert_to_tensor(Y)
        shape = tf.concat([tf.shape(Y)[:-1], [self.noise_dim]], 0)
        return self(Y, item_noise(shape, seed, Y.dtype), mask)

    def codes_of_rows(
        self, Y: tf.Tensor, mask: tf.Tensor | None, noise: Noise, num_draws: int
    ) -> RowCodes:
        shape = tf.stack([num_draws, tf.shape(Y)[0], self.noise_dim])
        shared = tf.broadcast_to(noise((num_draws, 1, self.noise_dim), Y.dtype), shape)
        seen = mask if mask is None else tf.repeat(mask[None], num_draws, 0)
        draws = self(tf.repeat(Y[None], num_draws, 0), shared, seen)
        mean, variance = tf.nn.moments(draws, axes=[0])
        return RowCodes(mean, variance, draws)
