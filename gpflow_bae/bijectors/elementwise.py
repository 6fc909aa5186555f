"""Monotone maps of single components, whose parameters a network supplies."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf

__all__ = ["AffineMap", "ElementwiseMap", "SplineMap"]

_MIN_SHARE = 1e-3  # least share of the box that a bin of a spline has, and least slope of a knot
_SLOPE_OF_ONE = float(np.log(np.expm1(1.0 - _MIN_SHARE)))


class ElementwiseMap(abc.ABC):
    """A monotone map of each component, with ``num_parameters`` unconstrained parameters.

    Both directions take components [batch..., K] and parameters [batch..., K, num_parameters], and
    return the images and the log derivative of the forward map there, both [batch..., K].
    """

    num_parameters: int

    @abc.abstractmethod
    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the images of ``x`` and the log derivatives at ``x``."""

    @abc.abstractmethod
    def inverse(self, y: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the points whose images are ``y``, and the log derivatives at these points."""


class AffineMap(ElementwiseMap):
    """x exp(s) + t, with a log scale s within (-limit, limit)."""

    num_parameters = 2

    def __init__(self, limit: float = 5.0):
        self.limit = limit

    def _shift_and_log_scale(self, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shift, raw = tf.unstack(parameters, axis=-1)
        return shift, self.limit * tf.tanh(raw / self.limit)

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return x exp(s) + t, and s."""
        shift, log_scale = self._shift_and_log_scale(parameters)
        return x * tf.exp(log_scale) + shift, log_scale

    def inverse(self, y: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return (y - t) exp(-s), and s."""
        shift, log_scale = self._shift_and_log_scale(parameters)
        return (y - shift) * tf.exp(-log_scale), log_scale


class SplineMap(ElementwiseMap):
    """A monotone rational-quadratic spline on [-bound, bound]; the identity outside.

    Durkan et al. (2019), "Neural spline flows", eqs. 4 to 8. Slopes at both ends are 1.
    """

    def __init__(self, num_bins: int, bound: float):
        """
        :param num_bins: number of bins, K of the paper.
        """
        self.num_bins, self.bound = num_bins, bound
        self.num_parameters = 3 * num_bins - 1

    def _bins(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return sizes of bins [..., K], which sum to 2 bound, and inner knots [..., K - 1]."""
        share = tf.nn.softmax(values, -1) * (1.0 - _MIN_SHARE * self.num_bins) + _MIN_SHARE
        sizes = share * (2.0 * self.bound)
        return sizes, tf.cumsum(sizes, axis=-1)[..., :-1] - self.bound

    def _bin(
        self, at: tf.Tensor, parameters: tf.Tensor, by_image: bool
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Find the bins of points, or of images.

        :return: whether the points are inside of the box, and left ends, widths, lower ends,
            heights, and slopes at the left and right ends of their bins, all [batch..., K].
        """
        K = self.num_bins
        widths, heights, slopes = tf.split(parameters, [K, K, K - 1], -1)
        (widths, x_knots), (heights, y_knots) = self._bins(widths), self._bins(heights)
        slopes = tf.nn.softplus(slopes + _SLOPE_OF_ONE) + _MIN_SHARE  # 1 where the network has 0
        end = tf.ones_like(widths[..., :1])
        inside = tf.abs(at) < self.bound
        knots = y_knots if by_image else x_knots
        found = tf.reduce_sum(tf.cast(at[..., None] >= knots, tf.int32), -1)
        chosen = tf.one_hot(found, K, dtype=at.dtype)

        def of_bin(values: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(chosen * values, -1)

        corner = -self.bound * end
        return inside, [
            of_bin(tf.concat([corner, x_knots], -1)),
            of_bin(widths),
            of_bin(tf.concat([corner, y_knots], -1)),
            of_bin(heights),
            of_bin(tf.concat([end, slopes], -1)),
            of_bin(tf.concat([slopes, end], -1)),
        ]

    def forward(self, x: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Evaluate the spline (eq. 4) and the log of its derivative (eq. 5)."""
        inside, (left, width, low, height, before, after) = self._bin(x, parameters, False)
        share = tf.where(inside, (x - left) / width, 0.5)
        rise = height * (_quadratic(share, height / width, before))
        y = low + rise / _denominator(share, height / width, before, after)
        slope = _log_slope(share, height / width, before, after)
        return tf.where(inside, y, x), tf.where(inside, slope, 0.0)

    def inverse(self, y: tf.Tensor, parameters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Solve eq. 4 for its argument by eqs. 6 to 8."""
        inside, (left, width, low, height, before, after) = self._bin(y, parameters, True)
        mean = height / width
        above = tf.where(inside, y - low, 0.5 * height)
        excess = before + after - 2.0 * mean
        a = height * (mean - before) + above * excess
        b = height * before - above * excess
        c = -mean * above
        root = tf.sqrt(tf.maximum(tf.square(b) - 4.0 * a * c, 0.0))
        share = 2.0 * c / (-b - root)
        slope = _log_slope(share, mean, before, after)
        return tf.where(inside, left + share * width, y), tf.where(inside, slope, 0.0)


def _quadratic(share: tf.Tensor, mean: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    return mean * tf.square(share) + before * share * (1.0 - share)


def _denominator(
    share: tf.Tensor, mean: tf.Tensor, before: tf.Tensor, after: tf.Tensor
) -> tf.Tensor:
    return mean + (before + after - 2.0 * mean) * share * (1.0 - share)


def _log_slope(share: tf.Tensor, mean: tf.Tensor, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Return the log of eq. 5 at a share of the bin, given its mean slope and those at its ends."""
    rest = 1.0 - share
    rise = after * tf.square(share) + 2.0 * mean * share * rest + before * tf.square(rest)
    denominator = _denominator(share, mean, before, after)
    return 2.0 * (tf.math.log(mean) - tf.math.log(denominator)) + tf.math.log(rise)
