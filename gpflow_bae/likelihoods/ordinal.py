"""Answers in order, such as ratings: GPflow's ordinal likelihood, with edges from data."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import scipy.stats
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType

from ..core.arguments import as_numbers, check_integer

__all__ = ["Ordinal"]

# In place of infinity, of which TensorFlow 2.21's erf in float64 makes NaN, and with it GPflow's
# likelihood in its outer levels.
_FAR = 1e4
_MOST = 1000  # levels


class Ordinal(gpflow.likelihoods.Ordinal):
    r"""P(y <= k | f) = Phi((a_k - f) / sigma): levels between edges a_k (Chu and Ghahramani 2005).

    GPflow's likelihood, finite in its outer levels, and with its floor under a probability at the
    smallest float instead of 1e-6: thirty sigma from an observed level there still is a gradient.
    """

    # A parameter, so that a saved fit brings its edges; GPflow's constructor assigns an array.
    @property
    def bin_edges(self) -> np.ndarray:
        """a_k, [K - 1]."""
        return self._edges.numpy()

    @bin_edges.setter
    def bin_edges(self, edges: TensorType) -> None:
        self._edges = gpflow.Parameter(edges, trainable=False)

    @classmethod
    def from_levels(cls, Y: TensorType, num_levels: int | None = None) -> Ordinal:
        """With edges for which levels, where f = 0, are as frequent as in ``Y``.

        They are normal quantiles of the levels' shares, and stay: sigma, which starts at 1, the
        kernel's variance and a mean function are fitted.

        :param Y: levels 0, 1, ..., K - 1 in an array of any shape; NaN where missing.
        :param num_levels: K; by default the largest level and one.
        :raises ValueError: for what is no level, or fewer than two levels.
        """
        values = np.asarray(as_numbers(Y, "Y"), dtype=np.float64)
        values = values[~np.isnan(values)]
        if values.size == 0:
            raise ValueError("Y has no observed entry, from which edges between levels are made.")
        if num_levels is not None:
            check_integer("num_levels", num_levels, 2, _MOST)
        largest = num_levels - 1 if num_levels is not None else values.max()
        if (values != np.round(values)).any() or not 0 <= values.min() <= values.max() <= largest:
            to = "" if num_levels is None else f" to {num_levels - 1}"
            raise ValueError(
                f"Y has values from {values.min():g} to {values.max():g}; expected levels, "
                f"integers from 0{to}. Stars from 1 to 5 are levels after subtracting 1."
            )
        if not 1 <= largest < _MOST:
            raise ValueError(f"Y has {largest + 1:g} levels; expected 2 to {_MOST}.")
        # Half an answer more of each level, so that one that nobody gave has two edges.
        counts = np.bincount(values.astype(int), minlength=int(largest) + 1) + 0.5
        shares = np.cumsum(counts)[:-1] / counts.sum()
        return cls(scipy.stats.norm.ppf(shares))

    def _scaled_edges(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The lower and the upper one of each level [K], in units of sigma."""
        far = np.array([_FAR], gpflow.default_float())
        inner = self._edges / self.sigma
        return tf.concat([-far, inner], 0), tf.concat([inner, far], 0)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        levels, f = gpflow.utilities.to_default_int(Y), F / self.sigma
        low, high = (tf.gather(edges, levels) - f for edges in self._scaled_edges())
        # In the tail below, where a distribution function keeps its digits.
        flipped = low > 0
        low, high = tf.where(flipped, -high, low), tf.where(flipped, -low, high)
        smallest = np.finfo(f.dtype.as_numpy_dtype).tiny
        return tf.math.log(tf.maximum(_below(high) - _below(low), smallest))

    def _make_phi(self, F: TensorType) -> tf.Tensor:
        f = tf.reshape(F, [-1, 1]) / self.sigma
        low, high = (_below(edges - f) for edges in self._scaled_edges())
        return high - low


def _below(x: tf.Tensor) -> tf.Tensor:
    """Phi(x): in float64 exact to 37 standard deviations below, where it ends."""
    return 0.5 * tf.math.erfc(x * -math.sqrt(0.5))
