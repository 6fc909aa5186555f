"""Return types of predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["LatentSamples", "Prediction"]


class Prediction(NamedTuple):
    """Predicted observations, with separate noise and epistemic variances."""

    mean: np.ndarray  # [T, N, P]
    noise_variance: np.ndarray  # [T, N, P], of the likelihood, averaged over samples and codes
    epistemic_variance: np.ndarray  # [T, N, P], variance of the mean over samples and codes

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance: noise plus epistemic."""
        return self.noise_variance + self.epistemic_variance


class LatentSamples(NamedTuple):
    """Gaussian conditionals of the latent function, one for each posterior sample."""

    mean: np.ndarray  # [S, T, N, L]
    variance: np.ndarray  # [S, T, N, L]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean and variance [T, N, L], by the law of total variance."""
        return self.mean.mean(0), self.variance.mean(0) + self.mean.var(0)
