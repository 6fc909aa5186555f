"""Losses that fit an encoder to sampled codes (line 10 of Algorithm 1, Tran et al. 2023).

``energy`` and ``nll`` are proper scoring rules, minimised by the distribution of the sampled codes
given y. ``mse`` is the paper's loss; it is minimised by the conditional mean, so that over the
iterations of Algorithm 1 the encoder's variance collapses.
"""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType

from ...encoders import DensityEncoder, Encoder
from ...mcmc.noise import fold_in

__all__ = ["check_encoder_loss", "encoder_loss"]


def check_encoder_loss(kind: str, encoder: Encoder) -> None:
    """Refuse ``nll`` for an encoder without a density, and encoders of indices."""
    if kind == "nll" and not isinstance(encoder, DensityEncoder):
        raise ValueError(
            f'encoder_loss="nll" needs an encoder with a density, and {type(encoder).__name__} '
            'has none; use "energy".'
        )
    if encoder.takes_indices:
        raise ValueError(
            f"{type(encoder).__name__} holds codes of the training data, which this model samples "
            "itself; give it an encoder of observations."
        )


def _norm(difference: tf.Tensor) -> tf.Tensor:
    # A small constant in the root, because the gradient of a norm at 0 is NaN.
    tiny = tf.cast(1e-12, difference.dtype)
    return tf.sqrt(tf.reduce_sum(tf.square(difference), -1) + tiny)


def encoder_loss(
    encoder: Encoder,
    Y: TensorType,
    latents: TensorType,
    seed: TensorType,
    kind: str = "energy",
    mask: TensorType | None = None,
) -> tf.Tensor:
    """Return the mean loss of the encoder on pairs of observations and sampled codes.

    * ``energy``: ``E|z' - z| - E|z' - z''| / 2``, with z', z'' two draws of the encoder and z the
      code (Gneiting and Raftery 2007, eq. 21): strictly proper, without a density;
    * ``nll``: -log q(z | y), for encoders with a density;
    * ``mse``: ``|z' - z|^2``, z' drawn with ``seed`` (in the paper that of z's initial draw).

    :param Y: observations [batch..., N, P], zeros where missing.
    :param latents: sampled codes [batch..., N, L].
    :param mask: [batch..., N, P], True where observed, for an encoder that takes it; None if
        nothing is missing.
    """
    side = encoder.side_inputs(mask)
    if kind == "nll":
        assert isinstance(encoder, DensityEncoder)
        return -tf.reduce_mean(encoder.log_prob(Y, latents, **side))
    first = encoder.sample(Y, seed, **side)
    latents = tf.cast(latents, first.dtype)
    if kind == "mse":
        return tf.reduce_mean(tf.reduce_sum(tf.square(first - latents), -1))
    second = encoder.sample(Y, fold_in(seed, 1), **side)
    accuracy = 0.5 * (_norm(first - latents) + _norm(second - latents))
    return tf.reduce_mean(accuracy - 0.5 * _norm(first - second))
