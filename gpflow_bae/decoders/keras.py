"""Keras networks as Bayesian decoders: every weight is a Parameter with a prior."""

from __future__ import annotations

import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.keras_module import KerasModule, WeightPrior, check_keras_model, layers_with_weights
from ..mcmc.types import is_number

__all__ = ["KerasDecoder", "fan_in_prior", "normal_prior"]

tfd = tfp.distributions

_HIDDEN_SCALE = 3.0


def normal_prior(scale: float = 1.0) -> WeightPrior:
    """Return the prior N(0, scale^2) of every weight and bias (Tran et al. 2023 use scale 1)."""
    if not is_number(scale) or not 0 < scale < np.inf:
        raise ValueError(f"scale of a weight prior must be positive, got {scale}.")
    return functools.partial(_normal, scale)


def fan_in_prior(scale: float = 1.0) -> WeightPrior:
    """Return the prior N(0, scale^2 / fan_in) of kernels and N(0, scale^2) of biases.

    The prior variance of a layer's output then does not depend on widths (Neal 1996), so wide
    networks are smooth functions under the prior instead of nearly discontinuous ones. The fan-in
    is the product of all dimensions of a kernel but the last, as in dense layers and convolutions.
    """
    if not is_number(scale) or not 0 < scale < np.inf:
        raise ValueError(f"scale of a weight prior must be positive, got {scale}.")
    return functools.partial(_fan_in, scale)


# Module-level functions, so that priors can be pickled.
def _normal(scale: float, shape: tuple[int, ...]) -> Any:
    return tfd.Normal(np.float32(0.0), np.float32(scale))


def _fan_in(scale: float, shape: tuple[int, ...]) -> Any:
    fan_in = math.prod(shape[:-1]) if len(shape) > 1 else 1
    return tfd.Normal(np.float32(0.0), np.float32(scale / math.sqrt(fan_in)))


def _transposed_fan_in(scale: float, shape: tuple[int, ...]) -> Any:
    """Return the prior of a transposed convolution, whose kernels end in outputs and inputs."""
    return _fan_in(scale, (*shape[:-2], shape[-1], shape[-2]) if len(shape) > 1 else shape)


def _by_layer(model: keras.Model) -> list[Any]:
    """Return the default prior of each layer with weights."""
    transposed = (
        keras.layers.Conv1DTranspose,
        keras.layers.Conv2DTranspose,
        keras.layers.Conv3DTranspose,
    )
    layers = list(layers_with_weights(model))
    kinds = [_transposed_fan_in if isinstance(v, transposed) else _fan_in for v in layers]
    hidden = [functools.partial(kind, _HIDDEN_SCALE) for kind in kinds[:-1]]
    return [*hidden, normal_prior()] if layers else []


class KerasDecoder(KerasModule):
    """A Keras 3 network from codes to likelihood parameters (e.g. Bernoulli logits)."""

    def __init__(self, model: keras.Model, weight_prior: WeightPrior | None = None):
        """
        :param model: built network ``[rows, L]`` to ``[rows, P]`` (images are flattened to P).
        :param weight_prior: function from the shape of a weight tensor to its prior, such as
            :func:`normal_prior` and :func:`fan_in_prior` make, or a list of such functions, one for
            each layer with weights: the scale of the last layer sets the prior variance of the
            likelihood parameters, those of the others the smoothness of the network. By default
            ``fan_in_prior(3.0)`` in all layers but the last, and N(0, 1) in the last, so that the
            prior of a hidden unit does not depend on the width of the layer before it. Tran et al.
            (2023) have N(0, 1) everywhere, which is ``normal_prior()``.
        """
        if weight_prior is None:
            weight_prior = _by_layer(check_keras_model(model, "decoder"))
        super().__init__(model, weight_prior, argument="decoder")

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return self.num_inputs

    @property
    def output_dim(self) -> int:
        """Number of likelihood parameters P per point."""
        return self.num_outputs

    @check_shapes("latents: [batch..., N, L]", "return: [batch..., N, P]")
    def __call__(self, latents: TensorType) -> tf.Tensor:
        """Return likelihood parameters at ``latents``, in the network's precision."""
        return self.apply_to_rows(latents)
