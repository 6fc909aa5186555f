"""What predictions are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["JointLatentSamples", "LatentSamples", "Prediction"]


class Prediction(NamedTuple):
    """Predicted observations, with the two sources of their variance apart."""

    mean: np.ndarray  # [T, N, P]
    noise_variance: np.ndarray  # [T, N, P], of the likelihood, averaged over samples
    epistemic_variance: np.ndarray  # [T, N, P], spread of the mean over samples and codes

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance: noise plus epistemic."""
        return self.noise_variance + self.epistemic_variance


class LatentSamples(NamedTuple):
    """Gaussian conditionals of the latent function, one for each posterior sample."""

    mean: np.ndarray  # [S, T, N, L]
    variance: np.ndarray  # [S, T, N, L]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over the posterior [T, N, L], by the law of total variance."""
        return self.mean.mean(0), self.variance.mean(0) + self.mean.var(0)


class JointLatentSamples(NamedTuple):
    """The same where the channels of a code depend on each other."""

    mean: np.ndarray  # [S, T, N, L]
    covariance: np.ndarray  # [S, T, N, L, L]

    @property
    def variance(self) -> np.ndarray:
        """Of each channel [S, T, N, L]."""
        return np.einsum("...ll->...l", self.covariance)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over the posterior [T, N, L], by the law of total variance."""
        return self.mean.mean(0), self.variance.mean(0) + self.mean.var(0)

    def joint_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean [T, N, L] and covariance [T, N, L, L] over the posterior, by the same law."""
        mean = self.mean.mean(0)
        away = self.mean - mean
        between = np.einsum("s...l,s...k->...lk", away, away) / len(away)
        return mean, self.covariance.mean(0) + between
