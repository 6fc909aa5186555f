"""GPflow's ordinal likelihood, for data such as ratings, with edges from data."""

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

# Used for infinity, for which TensorFlow 2.21's erf in float64 is NaN, and with it GPflow's
# likelihood of the outer levels.
_LARGE = 1e4
_MAX_LEVELS = 1000  # levels


class Ordinal(gpflow.likelihoods.Ordinal):
    r"""An ordinal likelihood P(y <= k | f) = Phi((a_k - f) / sigma) (Chu and Ghahramani 2005).

    It is GPflow's likelihood, made finite in its outer levels, with the smallest float instead of
    1e-6 as the lower bound of probabilities, so that gradients are not zero thirty sigma from an
    observed level.
    """

    # A parameter, so that edges are saved with a fit; GPflow's constructor assigns an array.
    @property
    def bin_edges(self) -> np.ndarray:
        """Edges a_k between levels, [K - 1]."""
        return self._edges.numpy()

    @bin_edges.setter
    def bin_edges(self, edges: TensorType) -> None:
        self._edges = gpflow.Parameter(edges, trainable=False)

    @classmethod
    def from_levels(cls, Y: TensorType, num_levels: int | None = None) -> Ordinal:
        """Make a likelihood whose levels are as frequent at f = 0 as in ``Y``.

        The edges are normal quantiles of cumulative frequencies, and not trainable; sigma, which
        starts at 1, the kernel's variance and a mean function are fitted.

        :param Y: levels 0, 1, ..., K - 1 in an array of any shape; NaN where missing.
        :param num_levels: K; by default the largest level plus one.
        :raises ValueError: for values that are not levels, or fewer than two levels.
        """
        values = np.asarray(as_numbers(Y, "Y"), dtype=np.float64)
        values = values[~np.isnan(values)]
        if values.size == 0:
            raise ValueError("Y has no observed entry, from which edges between levels are made.")
        if num_levels is not None:
            check_integer("num_levels", num_levels, 2, _MAX_LEVELS)
        largest = num_levels - 1 if num_levels is not None else values.max()
        if (values != np.round(values)).any() or not 0 <= values.min() <= values.max() <= largest:
            to = "" if num_levels is None else f" to {num_levels - 1}"
            raise ValueError(
                f"Y has values from {values.min():g} to {values.max():g}; expected levels, "
                f"integers from 0{to}. Stars from 1 to 5 are levels after subtracting 1."
            )
        if not 1 <= largest < _MAX_LEVELS:
            raise ValueError(f"Y has {largest + 1:g} levels; expected 2 to {_MAX_LEVELS}.")
        # Half a count is added to each level, so that unobserved levels have two distinct edges.
        counts = np.bincount(values.astype(int), minlength=int(largest) + 1) + 0.5
        shares = np.cumsum(counts)[:-1] / counts.sum()
        return cls(scipy.stats.norm.ppf(shares))

    def _scaled_edges(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the lower and the upper edge of each level [K], in units of sigma."""
        far = np.array([_LARGE], gpflow.default_float())
        inner = self._edges / self.sigma
        return tf.concat([-far, inner], 0), tf.concat([inner, far], 0)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        levels, f = gpflow.utilities.to_default_int(Y), F / self.sigma
        low, high = (tf.gather(edges, levels) - f for edges in self._scaled_edges())
        # Reflected to the lower tail, where the distribution function has full precision.
        flipped = low > 0
        low, high = tf.where(flipped, -high, low), tf.where(flipped, -low, high)
        smallest = np.finfo(f.dtype.as_numpy_dtype).tiny
        return tf.math.log(tf.maximum(_normal_cdf(high) - _normal_cdf(low), smallest))

    def _make_phi(self, F: TensorType) -> tf.Tensor:
        f = tf.reshape(F, [-1, 1]) / self.sigma
        low, high = (_normal_cdf(edges - f) for edges in self._scaled_edges())
        return high - low


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    """Return Phi(x), in float64 accurate down to x = -37, where it underflows."""
    return 0.5 * tf.math.erfc(x * -math.sqrt(0.5))
