"""Radial maps (Rezende and Mohamed 2015), invertible for all parameters."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from tensorflow_probability import bijectors as tfb

__all__ = ["Radial"]


class Radial(tfb.Bijector):
    r"""A radial map (Rezende and Mohamed 2015, eq. 14):

    .. math:: f(x) = x + \beta (x - c) / (\alpha + |x - c|), \qquad \beta > -\alpha .

    :math:`\alpha` is the softplus of one unconstrained number and :math:`\beta = -\alpha +
    softplus` of another (their appendix A.2). The inverse solves a quadratic equation for the
    radius.
    """

    def __init__(
        self,
        centre: TensorType,
        unconstrained_alpha: TensorType,
        unconstrained_beta: TensorType,
        validate_args: bool = False,
        name: str = "radial",
    ):
        """
        :param centre: c, [batch..., D].
        :param unconstrained_alpha, unconstrained_beta: [batch...].
        """
        parameters = dict(locals())
        self.centre, self.unconstrained_alpha, self.unconstrained_beta = (
            v if isinstance(v, Parameter) else tf.convert_to_tensor(v)
            for v in (centre, unconstrained_alpha, unconstrained_beta)
        )
        super().__init__(
            forward_min_event_ndims=1,
            dtype=self.centre.dtype,
            parameters=parameters,
            validate_args=validate_args,
            name=name,
        )

    @classmethod
    def random(cls, event_dim: int, rng: np.random.Generator, scale: float = 0.1) -> Radial:
        """Return a trainable map near the identity of R^event_dim, with a centre ~ N(0, I).

        :param scale: standard deviation of the two scalars around those of the identity.
        """
        float_type = gpflow.default_float()
        alpha, beta = scale * rng.standard_normal(2)
        return cls(
            Parameter(rng.standard_normal(event_dim), dtype=float_type),
            Parameter(alpha, dtype=float_type),
            Parameter(alpha + beta, dtype=float_type),  # equal ones make beta zero: the identity
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        properties = tfp.util.ParameterProperties
        return {
            "centre": properties(event_ndims=1),
            "unconstrained_alpha": properties(event_ndims=0),
            "unconstrained_beta": properties(event_ndims=0),
        }

    def _constrained(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        alpha = tf.nn.softplus(tf.convert_to_tensor(self.unconstrained_alpha))
        beta = tf.nn.softplus(tf.convert_to_tensor(self.unconstrained_beta)) - alpha
        return tf.convert_to_tensor(self.centre), alpha, beta

    def _offset(self, x: tf.Tensor, centre: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return x - c and its length, whose gradient at c is zero instead of NaN."""
        if x.shape[-1] != self.centre.shape[-1]:
            raise ValueError(
                f"This radial map acts on vectors of {self.centre.shape[-1]} components, got "
                f"{x.shape[-1]}; build the flow with that event_dim."
            )
        offset = x - centre
        squared = tf.reduce_sum(tf.square(offset), -1)
        positive = squared > 0.0
        length = tf.sqrt(tf.where(positive, squared, tf.ones_like(squared)))
        return offset, tf.where(positive, length, tf.zeros_like(length))

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        centre, alpha, beta = self._constrained()
        offset, r = self._offset(x, centre)
        return x + (beta / (alpha + r))[..., None] * offset

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        centre, alpha, beta = self._constrained()
        offset, r = self._offset(x, centre)
        across = beta / (alpha + r)
        along = beta * alpha / tf.square(alpha + r)  # d (beta r / (alpha + r)) / dr
        return (offset.shape[-1] - 1) * tf.math.log1p(across) + tf.math.log1p(along)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        centre, alpha, beta = self._constrained()
        offset, length = self._offset(y, centre)
        # Solve r + beta r / (alpha + r) = length, in the form without cancellation.
        half = 0.5 * (length - alpha - beta)
        root = tf.sqrt(tf.square(half) + alpha * length)
        r = tf.where(half >= 0.0, half + root, alpha * length / (root + tf.abs(half)))
        return y - (beta / (alpha + r + beta))[..., None] * offset
