"""Probabilities of columns of zeros and ones, from Gaussian predictions of their cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from check_shapes import check_shapes
from scipy.special import expit, logit

__all__ = ["Chances"]

_SHARPNESS = np.arange(0.1, 1.55, 0.05)  # values that are tried
_LEAST = 1e-4  # probability, and variance of a standardised cell
_MOST_ODDS = float(logit(1.0 - _LEAST))  # in logarithms


@dataclasses.dataclass(frozen=True)
class Chances:
    """Turns Gaussian predictions of cells that are 0 or 1 into probabilities of 1.

    A Gaussian of zeros and ones together with other columns says that these are Gaussian in either
    class, with one covariance and two means. By Bayes' rule the odds of 1 are then those of the
    column times N(1; m, v) N(0; r, r (1 - r)) / (N(0; m, v) N(1; r, r (1 - r))), for the prediction
    N(m, v) and the share r of ones: linear discriminant analysis (Hastie et al. 2009, section 4.3)
    with any cells missing. The logarithm of the factor is multiplied by a sharpness, which held-out
    cells decide.

    * rates [P]: share of ones in each column; NaN for columns of other kinds.
    * sharpness: of all columns; 1 where the Gaussian is right.
    """

    rates: np.ndarray
    sharpness: float = 1.0

    @property
    def columns(self) -> np.ndarray:
        """Numbers of the columns of zeros and ones."""
        return np.flatnonzero(~np.isnan(self.rates))

    @check_shapes("mean: [batch..., P]", "variance: [batch..., P]")
    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardised moments, those of columns of zeros and ones by their probabilities.

        :param mean, variance: of the Gaussian prediction, standardised.
        """
        mean, variance = mean.copy(), variance.copy()
        for p in self.columns:
            rate, unit = self.rates[p], self._units[p]
            chance = expit(self._logits(mean[..., p], variance[..., p], p, self.sharpness))
            chance = np.clip(chance, _LEAST, 1.0 - _LEAST)
            mean[..., p] = (chance - rate) / unit
            variance[..., p] = chance * (1.0 - chance) / unit**2
        return mean, variance

    def fit(
        self, cells: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    ) -> Chances:
        """The sharpness with the least logarithmic score of hidden cells.

        Their probabilities are limited as those of filled cells are: the only cell of a category,
        which is improbable under any, may not decide.

        :param cells: means, variances and true values [T, N, P], standardised, and which cells were
            hidden, Booleans; of each of several trials.
        """
        losses = np.zeros(len(_SHARPNESS))
        for mean, variance, truth, hidden in cells:
            for p in self.columns:
                own = hidden[..., p]
                sign = np.where(truth[..., p][own] > 0.0, 1.0, -1.0)
                for i, sharpness in enumerate(_SHARPNESS):
                    odds = self._logits(mean[..., p][own], variance[..., p][own], p, sharpness)
                    odds = np.clip(odds, -_MOST_ODDS, _MOST_ODDS)
                    losses[i] += np.logaddexp(0.0, -sign * odds).sum()
        best = float(_SHARPNESS[np.argmin(losses)]) if losses.any() else 1.0
        return dataclasses.replace(self, sharpness=best)

    @property
    def _units(self) -> np.ndarray:
        return np.sqrt(self.rates * (1.0 - self.rates))

    def _logits(
        self, mean: np.ndarray, variance: np.ndarray, p: int, sharpness: float
    ) -> np.ndarray:
        rate, unit = self.rates[p], self._units[p]
        zero, one = -rate / unit, (1.0 - rate) / unit
        variance = np.maximum(variance, _LEAST)
        evidence = (np.square(mean - zero) - np.square(mean - one)) / (2.0 * variance)
        evidence -= (zero**2 - one**2) / 2.0
        return logit(rate) + sharpness * evidence
