"""Planar maps (Rezende and Mohamed 2015), invertible for all parameters."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from tensorflow_probability import bijectors as tfb

__all__ = ["Planar"]

# Least slope along w, so that the map is invertible in spite of rounding.
_MIN_SLOPE = 1e-3
_LOG_E_MINUS_1 = float(np.log(np.expm1(1.0)))
# Bisections of a bracket of width 2 |slope|, exact to the last bit of float64; their number is
# fixed for compiled graphs.
_NUM_BISECTIONS = 60


class Planar(tfb.Bijector):
    r"""A planar map (Rezende and Mohamed 2015, eq. 10, constrained as in appendix A.1):

    .. math:: f(x) = x + \hat u \tanh(w^T x + b), \qquad w^T \hat u > -1,
        \qquad \log \det f'(x) = \log(1 + w^T \hat u (1 - \tanh^2(w^T x + b))) .

    Here :math:`\hat u = u + (m(w^T u) - w^T u) w / w^T w` with
    m(a) = softplus(a + log(e - 1)) - 1 > -1 and m(0) = 0. The paper's m is not 0 at 0, so that its
    :math:`\hat u` grows without bound as w goes to zero.

    The inverse solves a monotone scalar equation along w by bisection, with the implicit gradient.
    """

    def __init__(
        self,
        u: TensorType,
        w: TensorType,
        b: TensorType,
        validate_args: bool = False,
        name: str = "planar",
    ):
        """
        :param u, w: [batch..., D], unconstrained; :class:`gpflow.Parameter` s if trainable.
        :param b: [batch...].
        :raises ValueError: if the last dimensions of u and w differ.
        """
        parameters = dict(locals())
        u, w, b = (v if isinstance(v, Parameter) else tf.convert_to_tensor(v) for v in (u, w, b))
        if u.shape[-1] != w.shape[-1]:
            raise ValueError(
                f"u and w of a planar map must have the same width, got {u.shape} and {w.shape}."
            )
        self.u, self.w, self.b = u, w, b
        super().__init__(
            forward_min_event_ndims=1,
            dtype=u.dtype,
            parameters=parameters,
            validate_args=validate_args,
            name=name,
        )

    @classmethod
    def random(cls, event_dim: int, rng: np.random.Generator, scale: float = 0.1) -> Planar:
        """Return a trainable map near the identity of R^event_dim.

        :param scale: standard deviation of u; w has unit variance, so that maps start with
            different directions.
        """
        float_type = gpflow.default_float()
        return cls(
            Parameter(scale * rng.standard_normal(event_dim), dtype=float_type),
            Parameter(rng.standard_normal(event_dim), dtype=float_type),
            Parameter(np.zeros(()), dtype=float_type),
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        properties = tfp.util.ParameterProperties
        return {
            "u": properties(event_ndims=1),
            "w": properties(event_ndims=1),
            "b": properties(event_ndims=0),
        }

    def _constrained(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return w, b, u hat [batch..., D] and w^T u hat [batch...]."""
        u, w, b = (tf.convert_to_tensor(v) for v in (self.u, self.w, self.b))
        along = tf.reduce_sum(w * u, -1)
        slope = tf.nn.softplus(along + _LOG_E_MINUS_1) - 1.0
        slope = tf.maximum(slope, _MIN_SLOPE - 1.0)
        # As w goes to zero, slope - along does so as fast as w: ratio * w is bounded, and 0 at 0.
        ratio = tf.math.divide_no_nan(slope - along, tf.reduce_sum(tf.square(w), -1))
        return w, b, u + ratio[..., None] * w, slope

    def _check(self, x: tf.Tensor) -> None:
        if x.shape[-1] != self.w.shape[-1]:
            raise ValueError(
                f"This planar map acts on vectors of {self.w.shape[-1]} components, got "
                f"{x.shape[-1]}; build the flow with that event_dim."
            )

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        self._check(x)
        w, b, u, _ = self._constrained()
        return x + u * tf.tanh(tf.reduce_sum(w * x, -1) + b)[..., None]

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        self._check(x)
        w, b, _, slope = self._constrained()
        t = tf.tanh(tf.reduce_sum(w * x, -1) + b)
        return tf.math.log1p(slope * (1.0 - tf.square(t)))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        self._check(y)
        w, b, u, slope = self._constrained()
        target = tf.reduce_sum(w * y, -1)
        along = _solve(target, b, slope)
        return y - u * tf.tanh(along + b)[..., None]


def _solve(target: tf.Tensor, b: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
    """Solve a + slope tanh(a + b) = target for a, elementwise; differentiable once."""

    def excess(a: tf.Tensor, target: tf.Tensor, b: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        return a + slope * tf.tanh(a + b) - target

    fixed = [tf.stop_gradient(v) for v in (target, b, slope)]
    low, high = fixed[0] - tf.abs(fixed[2]), fixed[0] + tf.abs(fixed[2])
    b_fixed = tf.broadcast_to(fixed[1], tf.shape(low))

    def halve(i: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, ...]:
        middle = 0.5 * (low + high)
        right = excess(middle, fixed[0], b_fixed, fixed[2]) < 0.0
        return i + 1, tf.where(right, middle, low), tf.where(right, high, middle)

    _, low, high = tf.while_loop(
        lambda i, *_: i < _NUM_BISECTIONS,
        halve,
        (tf.constant(0), low, high),
        maximum_iterations=_NUM_BISECTIONS,
    )
    a = tf.stop_gradient(0.5 * (low + high))
    # A Newton step from the solution does not change it, and has the implicit gradient.
    derivative = 1.0 + fixed[2] * (1.0 - tf.square(tf.tanh(a + b_fixed)))
    return a - excess(a, target, b, slope) / derivative
