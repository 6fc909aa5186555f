"""Implicit encoders: a network fed with noise, whose output is a draw of the codes."""

from __future__ import annotations

import gpflow
import keras
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..keras_module import KerasModule
from ..mcmc.noise import standard_noise

__all__ = ["StochasticEncoder"]


class StochasticEncoder(KerasModule):
    """latents = f([y, epsilon]), epsilon ~ N(0, I): an implicit distribution over codes.

    Tran et al. (2023), section 3.2, with epsilon of the shape of y; here its width is free. The
    density is unknown, so the encoder is fitted with a score that needs only draws
    (``encoder_loss="energy"``; the paper's ``"mse"`` collapses to the posterior mean).
    """

    def __init__(self, model: keras.Model, noise_dim: int | None = None):
        """
        :param model: maps ``[rows, P + noise_dim]``, features first, to ``[rows, L]``.
        :param noise_dim: width of epsilon; by default half of the network's inputs, which is
            epsilon of the shape of y, as in the paper.
        """
        super().__init__(model, prior=None, argument="encoder")
        width = self.num_inputs
        if noise_dim is None:
            if width % 2:
                raise ValueError(
                    f"The encoder takes {width} inputs, which is odd, so noise of the shape of y "
                    "is impossible; pass noise_dim."
                )
            noise_dim = width // 2
        if not 0 < noise_dim < width:
            raise ValueError(
                f"noise_dim must lie between 1 and {width - 1} (the network takes {width} "
                f"inputs, features and noise together), got {noise_dim}."
            )
        self.noise_dim = int(noise_dim)
        self.latent_dim = self.num_outputs

    @check_shapes("Y: [batch..., N, P]", "noise: [batch..., N, E]", "return: [batch..., N, L]")
    def __call__(self, Y: TensorType, noise: TensorType) -> tf.Tensor:
        """The codes that the network makes of ``Y`` and ``noise``, in ``default_float()``."""
        Y = tf.convert_to_tensor(Y)
        inputs = tf.concat([Y, tf.cast(noise, Y.dtype)], axis=-1)
        return tf.cast(self.apply_to_rows(inputs), gpflow.default_float())

    @check_shapes("Y: [batch..., N, P]", "return: [batch..., N, L]")
    def sample(self, Y: TensorType, seed: TensorType) -> tf.Tensor:
        """One draw of the codes, the same for the same ``seed`` (two integers)."""
        Y = tf.convert_to_tensor(Y)
        shape = tf.concat([tf.shape(Y)[:-1], [self.noise_dim]], 0)
        return self(Y, standard_noise(shape, seed, Y.dtype))
