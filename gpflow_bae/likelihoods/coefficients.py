"""The binomial coefficient in the density of negative binomial counts, fast and with its digits."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["log_coefficient"]

_FEW = 8  # from here on Stirling's series has all digits of float64


def log_coefficient(number: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    r"""log of :math:`\Gamma(r + y) / (\Gamma(r) y!)`, of r = ``number``; broadcasts.

    Up to 8 it is a product of y ratios, which takes two logarithms; above, what is left of it by
    Stirling's series, at those counts alone. Log gamma functions, and their derivatives in the
    gradient, took five times as long, and have no digits of the gradient where r is large.

    :param number: above 0; its gradient is known, and that of counts is not.
    :param Y: whole numbers from 0, of the same type.
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(number), tf.shape(Y))
    found: tf.Tensor = _coefficient(tf.broadcast_to(number, shape), tf.broadcast_to(Y, shape))
    return found


@tf.custom_gradient
def _coefficient(r: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """:func:`log_coefficient` of tensors of one shape."""
    many = tf.where(Y > _FEW)
    of_many = tf.gather_nd(r, many), tf.gather_nd(Y, many)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        few = tf.add_n([tf.where(Y > k, 1.0 / (r + k), tf.zeros_like(r)) for k in _steps(0, r)])
        rest = _slope_beyond_few(*of_many)
        return upstream * tf.tensor_scatter_nd_add(few, many, rest), None

    # In two parts, of which neither leaves the range of float32.
    half = _FEW // 2
    few = tf.math.log(_ratios(r, Y, 0)) + tf.math.log(_ratios(r, Y, half))
    return tf.tensor_scatter_nd_add(few, many, _beyond_few(*of_many)), gradient


def _steps(start: int, like: tf.Tensor, count: int = _FEW) -> list[tf.Tensor]:
    return [tf.constant(k, like.dtype) for k in range(start, start + count)]


def _ratios(r: tf.Tensor, Y: tf.Tensor, start: int) -> tf.Tensor:
    """Product of (r + k) / (k + 1) over four k below y, from ``start`` on."""
    one = tf.ones_like(r)
    product = one
    for k in _steps(start, r, _FEW // 2):
        product *= tf.where(Y > k, (r + k) / (k + 1.0), one)
    return product


def _beyond_few(r: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """What the ratios from the eighth on add, of counts above that."""
    rest, first, whole = Y - _FEW, r + _FEW, tf.constant(_FEW + 1, Y.dtype)
    # rest * log(first + rest) and the like, the parts that are large, are put together first.
    together = rest * tf.math.log1p((r - 1.0) / (whole + rest))
    return together + _rise(first, rest) - _rise(whole, rest)


def _rise(z: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """log of gamma(z + n) / gamma(z), without n log(z + n) - n; of z from 8 on."""
    correction = tfp.math.log_gamma_correction
    return (z - 0.5) * tf.math.log1p(n / z) + correction(z + n) - correction(z)


def _slope_beyond_few(r: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Derivative of :func:`_beyond_few` by r: a difference of digamma functions."""
    z = r + _FEW
    return tf.math.log1p((Y - _FEW) / z) + _digamma_correction(r + Y) - _digamma_correction(z)


def _digamma_correction(z: tf.Tensor) -> tf.Tensor:
    """digamma(z) - log(z), of z from 8 on (Abramowitz and Stegun 1964, 6.3.18)."""
    inverse = 1.0 / z
    square = tf.square(inverse)
    series = 1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square / 240.0))
    return -0.5 * inverse - square * series
