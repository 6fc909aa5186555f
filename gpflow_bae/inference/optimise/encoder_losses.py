"""Losses that fit an encoder to sampled codes (line 10 of Algorithm 1, Tran et al. 2023).

``energy`` and ``nll`` are proper scoring rules, minimised by the distribution of the sampled codes
given y. ``mse`` is the paper's loss; it is minimised by the conditional mean, so that over the
iterations of Algorithm 1 the encoder's variance collapses.
"""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import TensorType

from ...encoders import DensityEncoder, Encoder
from ...mcmc.noise import fold_in

__all__ = [
    "check_encoder_loss",
    "count_seen",
    "draw_seen_rows",
    "encoder_loss",
    "weights_of_seen",
]


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
    weights: TensorType | None = None,
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
    :param weights: of each row [batch..., N], with a mean of 1 over all rows
        (:func:`weights_of_seen`); None for equal ones.
    """
    losses = _losses(encoder, Y, latents, seed, kind, encoder.side_inputs(mask))
    return tf.reduce_mean(losses if weights is None else tf.cast(weights, losses.dtype) * losses)


def _losses(
    encoder: Encoder,
    Y: TensorType,
    latents: TensorType,
    seed: TensorType,
    kind: str,
    side: dict[str, Any],
) -> tf.Tensor:
    """Return the loss of each row [batch..., N]."""
    if kind == "nll":
        assert isinstance(encoder, DensityEncoder)
        return -encoder.log_prob(Y, latents, **side)
    first = encoder.sample(Y, seed, **side)
    latents = tf.cast(latents, first.dtype)
    if kind == "mse":
        return tf.reduce_sum(tf.square(first - latents), -1)
    second = encoder.sample(Y, fold_in(seed, 1), **side)
    accuracy = 0.5 * (_norm(first - latents) + _norm(second - latents))
    return accuracy - 0.5 * _norm(first - second)


def weights_of_seen(mask: tf.Tensor | None) -> tf.Tensor | None:
    """Return weights of rows [rows] with a mean of 1, and 0 for rows without any observation.

    Such a row, which may pad a task that is shorter than others, says nothing of its code: an
    encoder that does not take the mask would learn what a row of zeros says.

    :param mask: [rows, P], True where observed; None if nothing is missing, which gives None.
    """
    if mask is None:
        return None
    seen = tf.cast(tf.reduce_any(mask, -1), gpflow.default_float())
    return tf.math.divide_no_nan(seen, tf.reduce_mean(seen))


def count_seen(mask: tf.Tensor | None) -> tf.Tensor | None:
    """Return numbers of rows with an observation up to each row [rows], or None without a mask."""
    return None if mask is None else tf.cumsum(tf.cast(tf.reduce_any(mask, -1), tf.int32))


def draw_seen_rows(
    size: int, num_rows: int, counts: tf.Tensor | None, seed: TensorType
) -> tf.Tensor:
    """Draw indices [size] of rows with an observation, with replacement.

    :param counts: of :func:`count_seen`.
    """
    most = num_rows if counts is None else tf.maximum(counts[-1], 1)
    drawn = tf.random.stateless_uniform([size], seed, 0, most, tf.int32, alg="philox")
    if counts is None:
        return drawn
    return tf.minimum(tf.searchsorted(counts, drawn, side="right"), num_rows - 1)
