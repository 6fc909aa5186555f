"""Transforms of outputs to the real line for Gaussian models, and of predictions back.

Each transform is an increasing function of one output, in NumPy: quantiles are transformed by it,
moments are those of the transformed Gaussian, and densities include its Jacobian.
"""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
from scipy.special import expit, logit, ndtr

__all__ = ["Identity", "Log", "Logit", "OutputTransform"]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class OutputTransform(abc.ABC):
    """An increasing function from the range of an output to the real line; NaN stays NaN."""

    @property
    def lower(self) -> float:
        """Infimum of ``inverse``."""
        return -np.inf

    @property
    def upper(self) -> float:
        """Supremum of ``inverse``."""
        return np.inf

    @abc.abstractmethod
    def forward(self, y: np.ndarray) -> np.ndarray:
        """Transform outputs to the real line; values outside the range become NaN or infinite."""

    @abc.abstractmethod
    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Transform values on the real line to outputs in their units."""

    @abc.abstractmethod
    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        """Return the logarithm of the derivative of ``forward`` at outputs."""

    @abc.abstractmethod
    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of ``inverse(z)`` for Gaussian z of this mean and variance."""


@dataclasses.dataclass(frozen=True)
class Identity(OutputTransform):
    """The identity transform."""

    def forward(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, dtype=np.float64)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(z, dtype=np.float64)

    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        return np.zeros_like(np.asarray(y, dtype=np.float64))

    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return mean, variance


@dataclasses.dataclass(frozen=True)
class Log(OutputTransform):
    """The transform log(y + shift), for positive outputs, or nonnegative ones if shift > 0.

    With a shift the Gaussian has mass on outputs below zero; there ``inverse`` returns
    zero, and moments and quantiles are those of the censored outputs.
    """

    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.shift < np.inf:
            raise ValueError(f"shift is {self.shift}; it must be finite and not negative.")

    @property
    def lower(self) -> float:
        return 0.0

    def forward(self, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.asarray(y, dtype=np.float64) + self.shift)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return np.maximum(np.exp(z) - self.shift, 0.0)

    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        return -self.forward(y)

    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.exp(mean + 0.5 * variance)
        if self.shift == 0.0:
            return first, np.square(first) * np.expm1(variance)
        # The first two moments of max(exp(z) - shift, 0), as in the price of a call option.
        deviation = np.sqrt(variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = (mean - np.log(self.shift)) / deviation
        part = [ndtr(beyond + k * deviation) for k in range(3)]
        square = np.exp(2.0 * (mean + variance)) * part[2]
        expected = first * part[1] - self.shift * part[0]
        square += self.shift * (self.shift * part[0] - 2.0 * first * part[1])
        certain = deviation == 0.0
        spread = np.maximum(square - np.square(expected), 0.0)
        return np.where(certain, self.inverse(mean), expected), np.where(certain, 0.0, spread)


@dataclasses.dataclass(frozen=True)
class Logit(OutputTransform):
    """The transform log((y - a) / (b - y)), for outputs between two bounds.

    To be finite for outputs at the bounds, a and b lie half of one per cent of the range outside
    of ``low`` and ``high``; ``inverse`` clips its values to ``low`` and ``high``.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise ValueError(
                f"low is {self.low} and high {self.high}; expected two finite numbers, the lower "
                "one first."
            )

    @property
    def lower(self) -> float:
        return self.low

    @property
    def upper(self) -> float:
        return self.high

    @property
    def _margin(self) -> float:
        return 0.005 * (self.high - self.low)

    def _share(self, y: np.ndarray) -> np.ndarray:
        width = self.high - self.low + 2.0 * self._margin
        return (np.asarray(y, dtype=np.float64) - (self.low - self._margin)) / width

    def forward(self, y: np.ndarray) -> np.ndarray:
        return logit(self._share(y))

    def inverse(self, z: np.ndarray) -> np.ndarray:
        width = self.high - self.low + 2.0 * self._margin
        return np.clip(self.low - self._margin + width * expit(z), self.low, self.high)

    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        share = self._share(y)
        width = self.high - self.low + 2.0 * self._margin
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.log(share) - np.log1p(-share) - np.log(width)

    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = np.asarray(mean), np.sqrt(variance)
        values = self.inverse(mean[..., None] + deviation[..., None] * _NODES)
        first = values @ _WEIGHTS
        return first, np.square(values - first[..., None]) @ _WEIGHTS
