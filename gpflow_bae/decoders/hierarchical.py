"""Networks whose layers have scales of their own, which are sampled with the weights."""

from __future__ import annotations

import math
from typing import Any

import gpflow
import keras
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType

from ..arguments import check_arguments
from .keras import KerasDecoder

__all__ = ["HierarchicalDecoder", "NormalGivenVariance"]

tfd = tfp.distributions


class NormalGivenVariance:
    """The prior N(0, scale^2 v) of every element of a parameter, where v is a parameter too.

    As much of a TFP distribution as a ``gpflow.Parameter`` asks of its prior, at the present value
    of v; :meth:`given` is the prior at another one, which densities of a sampler's values need.
    """

    name = "NormalGivenVariance"
    batch_shape = event_shape = tf.TensorShape([])

    def __init__(self, scale: float, parent: Parameter, dtype: tf.DType):
        """
        :param scale: the standard deviation at v = 1.
        :param parent: v, a positive scalar.
        """
        self.base_scale, self.parent, self.dtype = float(scale), parent, tf.as_dtype(dtype)

    def given(self, variance: TensorType) -> tfp.distributions.Normal:
        """The prior at a value of v."""
        scale = self.base_scale * tf.sqrt(tf.convert_to_tensor(variance))
        return tfd.Normal(tf.zeros([], self.dtype), tf.cast(scale, self.dtype))

    @property
    def scale(self) -> tf.Tensor:
        """The standard deviation at the present value of v."""
        return self.given(self.parent).scale

    def log_prob(self, value: TensorType) -> tf.Tensor:
        """Log density of each element."""
        return self.given(self.parent).log_prob(value)

    def sample(self, sample_shape: Any = (), seed: Any = None) -> tf.Tensor:
        """Draws of elements."""
        return self.given(self.parent).sample(sample_shape, seed)


class HierarchicalDecoder(KerasDecoder):
    r"""Weights whose spread, tensor by tensor, has a prior (Neal 1996, section 1.2.3).

    .. math:: w_{ij} \sim N(0, s^2 v), \quad 1 / v \sim Gamma(a, b)

    with s = 1 / sqrt(fan_in) for kernels and 1 for biases, so that at v = 1 the output of a layer
    has the same prior spread whatever its width. A prior of fixed scale decides how wiggly the
    network is before any data; here each layer finds its own scale.

    Given the weights, v has a conjugate conditional
    (:class:`gpflow_bae.inference.moves.LayerVariances`). Fits of a mode leave v where it is: there
    is no joint one. It begins at 1 / s^2, where every weight has the prior N(0, 1).
    """

    @check_arguments()
    def __init__(self, model: keras.Model, concentration: float = 1.0, rate: float = 1.0):
        """
        :param model: maps ``[rows, L]`` to ``[rows, P]``.
        :param concentration, rate: a and b. Large values of both fix v at b / a.
        :raises ValueError: if one of them is not positive.
        """
        for name, value in (("concentration", concentration), ("rate", rate)):
            if not value > 0:
                raise ValueError(f"{name} of the layers' precisions must be positive, got {value}.")
        super().__init__(model)
        self.concentration, self.rate = float(concentration), float(rate)
        prior = tfd.InverseGamma(*map(gpflow.utilities.to_default_float, (concentration, rate)))
        #: v of each weight tensor.
        self.layer_variances = []
        for weight in self.weights:
            shape = tuple(weight.shape)
            scale = 1.0 / math.sqrt(math.prod(shape[:-1])) if len(shape) > 1 else 1.0
            parent = Parameter(scale**-2, transform=gpflow.utilities.positive(), prior=prior)
            self.layer_variances.append(parent)
            weight.prior = NormalGivenVariance(scale, parent, weight.dtype)
