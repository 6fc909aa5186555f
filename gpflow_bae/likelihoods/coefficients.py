"""A fast and accurate binomial coefficient for the density of negative binomial counts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["log_coefficient"]

_NUM_DIRECT = 8  # from here on Stirling's series is exact in float64


def log_coefficient(number: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    r"""Return the log of :math:`\Gamma(r + y) / (\Gamma(r) y!)`, r being ``number``; broadcasts.

    Up to y = 8 it is a product of y ratios, with two logarithms; for larger counts alone the
    remaining factors are computed by Stirling's series. Log gamma functions and their derivatives
    took five times as long, and their gradient has no correct digits for large r.

    :param number: positive numbers r; differentiable.
    :param Y: counts of the same type; not differentiable.
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(number), tf.shape(Y))
    found: tf.Tensor = _coefficient(tf.broadcast_to(number, shape), tf.broadcast_to(Y, shape))
    return found


@tf.custom_gradient
def _coefficient(r: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Compute :func:`log_coefficient` of tensors of one shape."""
    many = tf.where(Y > _NUM_DIRECT)
    of_many = tf.gather_nd(r, many), tf.gather_nd(Y, many)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        few = tf.add_n([tf.where(Y > k, 1.0 / (r + k), tf.zeros_like(r)) for k in _steps(0, r)])
        rest = _remaining_derivative(*of_many)
        return upstream * tf.tensor_scatter_nd_add(few, many, rest), None

    # In two parts, to stay in the range of float32.
    half = _NUM_DIRECT // 2
    few = tf.math.log(_ratios(r, Y, 0)) + tf.math.log(_ratios(r, Y, half))
    return tf.tensor_scatter_nd_add(few, many, _remaining_log_ratios(*of_many)), gradient


def _steps(start: int, like: tf.Tensor, count: int = _NUM_DIRECT) -> list[tf.Tensor]:
    return [tf.constant(k, like.dtype) for k in range(start, start + count)]


def _ratios(r: tf.Tensor, Y: tf.Tensor, start: int) -> tf.Tensor:
    """Return the product of (r + k) / (k + 1) over those of four k from ``start`` on below y."""
    one = tf.ones_like(r)
    product = one
    for k in _steps(start, r, _NUM_DIRECT // 2):
        product *= tf.where(Y > k, (r + k) / (k + 1.0), one)
    return product


def _remaining_log_ratios(r: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Return the log of the product of the ratios with k from 8 on, for counts above 8."""
    rest, first, whole = Y - _NUM_DIRECT, r + _NUM_DIRECT, tf.constant(_NUM_DIRECT + 1, Y.dtype)
    # Large terms such as rest * log(first + rest) are combined first, to avoid cancellation.
    together = rest * tf.math.log1p((r - 1.0) / (whole + rest))
    return together + _rising_factorial_part(first, rest) - _rising_factorial_part(whole, rest)


def _rising_factorial_part(z: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """Return the log of gamma(z + n) / gamma(z), less n log(z + n) - n, for z >= 8."""
    return (
        (z - 0.5) * tf.math.log1p(n / z) + _log_gamma_correction(z + n) - _log_gamma_correction(z)
    )


def _log_gamma_correction(z: tf.Tensor) -> tf.Tensor:
    """Return log gamma(z) less Stirling's formula, for z >= 8 (Abramowitz and Stegun, 6.1.41)."""
    inverse = 1.0 / z
    square = tf.square(inverse)
    series = 1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0)
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * series))


def _remaining_derivative(r: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Return the derivative of :func:`_remaining_log_ratios` by r."""
    z = r + _NUM_DIRECT
    return (
        tf.math.log1p((Y - _NUM_DIRECT) / z) + _digamma_correction(r + Y) - _digamma_correction(z)
    )


def _digamma_correction(z: tf.Tensor) -> tf.Tensor:
    """Return digamma(z) - log(z) for z >= 8 (Abramowitz and Stegun 1964, 6.3.18)."""
    inverse = 1.0 / z
    square = tf.square(inverse)
    series = 1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square / 240.0))
    return -0.5 * inverse - square * series
