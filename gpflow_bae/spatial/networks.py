"""Encoder and decoder networks for counts."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow import Parameter

__all__ = ["LogCounts", "cell_loadings", "count_encoder", "rate_decoder"]

_CELLS = "cells"  # name of a layer
_MANY_GENES = 400  # above this number inputs of the encoder are scaled down


@keras.saving.register_keras_serializable("gpflow_bae")
class LogCounts(keras.layers.Layer):
    """Layer that computes log(1 + count / size), standardised per gene, zero where missing.

    Inputs are counts, features (the first of them log size), and masks of both; outputs are the
    standardised logarithms and the features.
    """

    def __init__(self, mean: list[float], spread: list[float], gain: float = 1.0, **kwargs: object):
        """
        :param mean, spread: mean and standard deviation of each gene's logarithms [P].
        :param gain: factor of the outputs.
        """
        super().__init__(**kwargs)
        self.mean, self.spread = list(map(float, mean)), list(map(float, spread))
        self.gain = float(gain)

    def call(self, values: tf.Tensor) -> tf.Tensor:
        """Map [rows, 2 (P + F)] to [rows, P + F]."""
        number = len(self.mean)
        both, mask = tf.split(values, 2, axis=-1)
        counts, features = both[:, :number], both[:, number:]
        logs = tf.math.log1p(counts * tf.exp(-features[:, :1]))
        standard = (logs - tf.constant(self.mean)) / tf.constant(self.spread)
        return tf.concat([self.gain * standard * mask[:, :number], features], -1)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return half the width."""
        return (*shape[:-1], None if shape[-1] is None else shape[-1] // 2)

    def get_config(self) -> dict[str, object]:
        """Return the constructor's arguments."""
        return super().get_config() | {
            "mean": self.mean,
            "spread": self.spread,
            "gain": self.gain,
        }


def count_encoder(
    mean: np.ndarray, spread: np.ndarray, num_features: int, latent_dim: int, units: int
) -> keras.Model:
    """Build an encoder to means and log standard deviations, with two hidden layers.

    :param mean, spread: as in :class:`LogCounts`.
    """
    # A step of Adam changes all weights alike, and so a unit by as much as it has inputs: without
    # this, those of thousands of genes would jump, and codes stay uninformed, or diverge.
    gain = min(1.0, _MANY_GENES / len(mean))
    inputs = keras.Input((2 * (len(mean) + num_features),))
    hidden = LogCounts(mean.tolist(), spread.tolist(), gain)(inputs)
    for scale in (gain**-2, 1.0):
        initial = keras.initializers.VarianceScaling(scale, "fan_avg", "uniform")
        hidden = keras.layers.Dense(units, activation="elu", kernel_initializer=initial)(hidden)
    return keras.Model(inputs, keras.layers.Dense(2 * latent_dim)(hidden))


def rate_decoder(
    rates: np.ndarray,
    num_features: int,
    num_spatial: int,
    num_cell: int,
    units: int | None,
    all_hidden: bool = False,
    num_covariates: int = 0,
) -> keras.Model:
    """Build a decoder from codes and features to log rates, initialised at log ``rates`` [P].

    Spatial channels and features have a hidden layer, because log rates of regions are not linear
    in few channels. Cell channels have one loading per gene, in a separate layer
    (:func:`cell_loadings`): under a prior by fan-in
    (:func:`~gpflow_bae.decoders.fan_in_prior`) loadings of few channels may be larger than those of
    many hidden units. Covariates have one effect per gene, in a layer of their own too: so they
    change a gene by the same factor in all cells, and codes have one meaning in all batches.

    :param num_spatial, num_cell: number of spatial channels, which come first, and cell channels.
    :param units: units of the hidden layer; None for no hidden layer, so that each channel has one
        loading per gene.
    :param all_hidden: whether cell channels use the hidden layer too.
    :param num_covariates: number of covariates, which come last, after the features.
    """
    codes = num_spatial + num_cell
    inputs = keras.Input((codes + num_features + num_covariates,))
    parts = inputs[:, : codes + num_features] if num_covariates else inputs
    features = inputs[:, codes : codes + num_features]
    loaded = num_spatial and num_cell and not (all_hidden and units is not None)
    if loaded:
        parts = keras.ops.concatenate([inputs[:, :num_spatial], features], -1)
    if units is not None and (num_spatial or all_hidden):
        bent = keras.layers.Dense(units, activation="elu")(parts)
        # Features also have a linear effect.
        parts = keras.ops.concatenate([features, bent], -1)
    last = keras.layers.Dense(len(rates))
    outputs = last(parts)
    if loaded:
        loadings = keras.layers.Dense(len(rates), use_bias=False, name=_CELLS)
        outputs = outputs + loadings(inputs[:, num_spatial:codes])
    if num_covariates:
        effects = keras.layers.Dense(
            len(rates), use_bias=False, kernel_initializer="zeros", name="covariates"
        )
        # A cell is of one batch, whatever their number: effects do not get smaller by fan-in.
        outputs = outputs + effects(inputs[:, -num_covariates:] * num_covariates**0.5)
    model = keras.Model(inputs, outputs)
    kernel, _ = last.get_weights()
    last.set_weights([0.3 * kernel, np.log(rates).astype(np.float32)])
    return model


def cell_loadings(decoder: Any) -> Parameter | None:
    """Return the loadings [num_cell, P] of cell channels in a decoder of :func:`rate_decoder`.

    None if they have no separate layer.
    """
    network = decoder.decoder
    pairs = zip(network.weights, network.model.trainable_variables, strict=True)
    return next((w for w, variable in pairs if _CELLS in variable.path.split("/")), None)
