"""Partial inference networks: encoders of partly observed rows.

Ashman et al. (2020), "Sparse Gaussian process variational autoencoders", section 2.4. Each kind is
an ordinary Keras model of ``[y, mask]``, for any encoder with ``takes_mask=True``.
Sums over the observed outputs allow any output to be missing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import keras

from ..core.annotations import check_arguments
from .gaussian import GaussianEncoder
from .partial_layers import (
    ObservedValues,
    ProductOfFactors,
    SumOfOutputNetworks,
    SumOfPoints,
    activation_of,
    output_network_size,
)
from .stochastic import StochasticEncoder

__all__ = ["partial_encoder"]

MANY_OUTPUTS = 10_000
_NAMES = {
    "zeros": "zero_imputing",
    "pointnet": "point_net",
    "pointnet_one_hot": "point_net",
    "indexnet": "index_net",
    "factornet": "factor_net",
}

_logger = logging.getLogger(__name__)


def _inputs(num_outputs: int, noise_dim: int) -> tuple[keras.KerasTensor, list[keras.KerasTensor]]:
    """Return the input ``[y, mask, noise]`` and its parts; values are 0 where missing."""
    inputs = keras.Input((2 * num_outputs + noise_dim,))
    return inputs, ObservedValues(num_outputs)(inputs)


def _head(
    features: keras.KerasTensor,
    noise: keras.KerasTensor,
    latent_dim: int,
    hidden: Sequence[int],
    activation: str,
    noise_dim: int,
    initial_variance: float,
) -> keras.KerasTensor:
    """Map features of the observed outputs and noise to codes, or without noise to moments."""
    if noise_dim:
        features = keras.layers.Concatenate()([features, noise])
    for units in hidden:
        features = keras.layers.Dense(int(units), activation_of(activation))(features)
    mean = keras.layers.Dense(int(latent_dim))(features)
    if noise_dim:
        return mean
    log_scale = keras.layers.Dense(
        int(latent_dim),
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(0.5 * math.log(initial_variance)),
    )(features)
    return keras.layers.Concatenate()([mean, log_scale])


def _features(
    kind: str,
    values: keras.KerasTensor,
    mask: keras.KerasTensor,
    hidden: Sequence[int],
    width: int,
    activation: str,
) -> keras.KerasTensor:
    """Return features of the observed outputs."""
    if kind == "zeros":
        return values
    if kind == "indexnet":
        return SumOfOutputNetworks(hidden, width, activation)([values, mask])
    return SumOfPoints(hidden, width, activation, kind == "pointnet_one_hot")([values, mask])


def _network(
    kind: str,
    num_outputs: int,
    latent_dim: int,
    hidden: Sequence[int],
    activation: str,
    noise_dim: int,
    initial_variance: float,
) -> keras.Model:
    """Make the network ``[rows, 2 P + noise_dim] -> [rows, 2 L or L]`` of ``[y, mask, noise]``.

    With noise it returns L codes, and without 2 L numbers, means and log standard deviations.
    """
    width = 2 * latent_dim if kind == "factornet" or not hidden else hidden[-1]
    if kind in ("indexnet", "factornet"):
        _warn_of_size(kind, num_outputs, hidden, width)
    inputs, (values, mask, noise) = _inputs(num_outputs, noise_dim)
    if kind == "factornet":
        layer = ProductOfFactors(hidden, latent_dim, activation, initial_variance)
        return keras.Model(inputs, layer([values, mask]), name=_NAMES[kind])
    features = _features(kind, values, mask, hidden, width, activation)
    outputs = _head(features, noise, latent_dim, hidden, activation, noise_dim, initial_variance)
    return keras.Model(inputs, outputs, name=_NAMES[kind])


def _warn_of_size(kind: str, num_outputs: int, hidden: Sequence[int], width: int) -> None:
    if num_outputs > MANY_OUTPUTS:
        count = num_outputs * output_network_size(hidden, width)
        _logger.warning(
            "%s makes a network for each of %d outputs, %d parameters together; a PointNet "
            "(kind 'pointnet_one_hot') shares one among them.",
            _NAMES[kind],
            num_outputs,
            count,
        )


@check_arguments(num_outputs=1, latent_dim=1, hidden=1, noise_dim=0)
def partial_encoder(
    kind: str,
    num_outputs: int,
    latent_dim: int,
    hidden: Sequence[int] = (20,),
    activation: str = "relu",
    stochastic: bool = False,
    *,
    noise_dim: int | None = None,
    initial_variance: float = 0.1,
    min_variance: float = 1e-6,
    max_variance: float = 1e3,
) -> GaussianEncoder | StochasticEncoder:
    r"""Make an encoder of partly observed rows (Ashman et al. 2020, section 2.4).

    Masked values have no effect, and masking an output is equivalent to a model without it
    (but for ``"zeros"``, where it is equivalent to a zero).

    The kinds are

    - ``"zeros"``, a dense network of y with zeros where missing, which does not use the mask;
    - ``"pointnet"`` (Qi et al. 2017), a network of (p, y_p), summed over observed p, then another.
      Outputs with close numbers p are taken to be similar. Its size hardly grows with P, but a row
      costs P passes through the first network;
    - ``"pointnet_one_hot"``, the same with a one-hot vector in the place of p, which is a learnt
      vector for each output (Ma et al. 2019), for outputs whose order means nothing;
    - ``"indexnet"``, a network for each output, summed over observed ones, then another;
    - ``"factornet"``, a product of Gaussian factors :math:`N(\mu_p(y_p), \sigma_p^2(y_p))`, one for
      each observed output. Their natural parameters are summed, so the variance decreases with the
      number of observed outputs. Without any, the precision is 1e-6, and the encoder clips the
      variance to ``max_variance``. Every factor's log standard deviation is clipped to [-10, 10].

    The last two have P networks: above 10,000 outputs a warning states their number of parameters
    before they are made.

    :param num_outputs: P.
    :param hidden: widths of the hidden layers, of both networks; the sum is as wide as the last.
    :param stochastic: make an implicit encoder for sampled models, with noise inputs after the sum
        over outputs. A ``"factornet"`` remains a Gaussian encoder: it has draws and a
        density, so sampled models fit it with the loss ``"energy"`` or ``"nll"``.
    :param noise_dim: width of that noise; L by default.
    :param initial_variance: variance of the codes given a complete row, before training, for the
        Gaussian encoders. The default is a tenth of a unit prior variance: codes are informative
        for the decoder, and not too narrow for the prior.
    :param min_variance, max_variance: as in :class:`GaussianEncoder`.
    :raises ValueError: for an unknown kind, and sizes that are not positive.
    """
    if kind not in _NAMES:
        hint = "; codes of their own for the training data are FreeFormEncoder's"
        raise ValueError(
            f"kind must be one of {tuple(_NAMES)}, got {kind!r}{hint if kind == 'free' else ''}."
        )
    sizes = {"num_outputs": num_outputs, "latent_dim": latent_dim}
    sizes |= {f"hidden[{i}]": units for i, units in enumerate(hidden)}
    gaussian = kind == "factornet" or not stochastic
    if noise_dim is not None:
        if gaussian:
            raise ValueError(
                f"noise_dim is {noise_dim}, but this encoder has no noise to feed: it is Gaussian; "
                "leave noise_dim out, or set stochastic=True with another kind than 'factornet'."
            )
        sizes["noise_dim"] = noise_dim
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}.")
    if not min_variance <= initial_variance <= max_variance:
        raise ValueError(
            f"initial_variance must lie between min_variance = {min_variance:g} and max_variance = "
            f"{max_variance:g}, got {initial_variance:g}."
        )
    common = (kind, num_outputs, latent_dim, tuple(hidden), activation)
    if gaussian:
        model = _network(*common, 0, initial_variance)
        return GaussianEncoder(model, min_variance, max_variance, takes_mask=True)
    noise_dim = latent_dim if noise_dim is None else noise_dim
    model = _network(*common, noise_dim, initial_variance)
    return StochasticEncoder(model, noise_dim, takes_mask=True)
