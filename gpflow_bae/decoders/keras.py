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

from ..core.keras_module import KerasModule, WeightPrior
from ..mcmc.types import is_number

__all__ = ["KerasDecoder", "fan_in_prior", "normal_prior"]

tfd = tfp.distributions


def normal_prior(scale: float = 1.0) -> WeightPrior:
    """N(0, scale^2) on every weight and bias (Tran et al. 2023 use scale 1)."""
    if not is_number(scale) or not 0 < scale < np.inf:
        raise ValueError(f"scale of a weight prior must be positive, got {scale}.")
    return functools.partial(_normal, scale)


def fan_in_prior(scale: float = 1.0) -> WeightPrior:
    """N(0, scale^2 / fan_in) on kernels and N(0, scale^2) on biases.

    The output of a layer then has the same prior spread whatever its width (Neal 1996), so wide
    networks are smooth functions under the prior instead of nearly discontinuous ones.
    """
    if not is_number(scale) or not 0 < scale < np.inf:
        raise ValueError(f"scale of a weight prior must be positive, got {scale}.")
    return functools.partial(_fan_in, scale)


# Functions of the module, so that what is made of them can be pickled.
def _normal(scale: float, shape: tuple[int, ...]) -> Any:
    return tfd.Normal(np.float32(0.0), np.float32(scale))


def _fan_in(scale: float, shape: tuple[int, ...]) -> Any:
    fan_in = math.prod(shape[:-1]) if len(shape) > 1 else 1
    return tfd.Normal(np.float32(0.0), np.float32(scale / math.sqrt(fan_in)))


class KerasDecoder(KerasModule):
    """A built Keras 3 model from codes to the likelihood's parameters (e.g. Bernoulli logits)."""

    def __init__(self, model: keras.Model, weight_prior: WeightPrior | None = None):
        """
        :param model: maps ``[rows, L]`` to ``[rows, P]`` (image outputs are flattened to P).
        :param weight_prior: prior per weight tensor, given its shape; default N(0, 1) on each
            weight (Tran et al. 2023). See :func:`normal_prior` and :func:`fan_in_prior`. Or a list
            of such priors, one for each layer that has weights: a layer's own says how far its
            outputs spread, which for the last layer is how far the likelihood's parameters do, and
            for the others how sharply the network bends.
        """
        prior = normal_prior() if weight_prior is None else weight_prior
        super().__init__(model, prior, argument="decoder")

    @property
    def latent_dim(self) -> int:
        """Number of code channels L that the network takes."""
        return self.num_inputs

    @property
    def output_dim(self) -> int:
        """Number of likelihood parameters P that it returns per point."""
        return self.num_outputs

    @check_shapes("latents: [batch..., N, L]", "return: [batch..., N, P]")
    def __call__(self, latents: TensorType) -> tf.Tensor:
        """Likelihood parameters at ``latents``, in the network's precision."""
        return self.apply_to_rows(latents)
