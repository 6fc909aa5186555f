"""Dense linear algebra of one task and one channel of a Gaussian latent prior.

Everything is formed as full matrices and solved with ``numpy.linalg``: no Cholesky factors, no
matrix-inversion lemma, no batching.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["LatentGaussian", "log_density", "squared_exponential"]

Covariance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def squared_exponential(lengthscale: float, variance: float) -> Covariance:
    """k(x, x') = variance exp(-|x - x'|^2 / (2 lengthscale^2)), [N, D] and [M, D] to [N, M]."""

    def k(X: np.ndarray, X2: np.ndarray) -> np.ndarray:
        distance = ((X[:, None, :] - X2[None, :, :]) ** 2).sum(-1)
        return variance * np.exp(-0.5 * distance / lengthscale**2)

    return k


def log_density(residual: np.ndarray, covariance: np.ndarray) -> float:
    """log N(residual; 0, covariance)."""
    sign, log_det = np.linalg.slogdet(covariance)
    assert sign > 0
    mahalanobis = residual @ np.linalg.solve(covariance, residual)
    return float(-0.5 * (len(residual) * np.log(2.0 * np.pi) + log_det + mahalanobis))


@dataclass(frozen=True)
class LatentGaussian:
    """Joint Gaussian of N codes and of the noise-free latent function at Nnew inputs."""

    mean: np.ndarray  # [N]
    covariance: np.ndarray  # [N, N], of the codes: their own noise included
    cross: np.ndarray  # [N, Nnew], codes with the function at new inputs
    new_mean: np.ndarray  # [Nnew]
    new_variance: np.ndarray  # [Nnew], before anything is observed

    @staticmethod
    def standard(num_data: int, num_new: int) -> LatentGaussian:
        """Codes N(0, I); "the function" at a new input is the code there."""
        return LatentGaussian(
            np.zeros(num_data),
            np.eye(num_data),
            np.zeros((num_data, num_new)),
            np.zeros(num_new),
            np.ones(num_new),
        )

    @staticmethod
    def exact(k: Covariance, X: np.ndarray, Xnew: np.ndarray, noise: float) -> LatentGaussian:
        """Codes N(0, K + noise I)."""
        return LatentGaussian(
            np.zeros(len(X)),
            k(X, X) + noise * np.eye(len(X)),
            k(X, Xnew),
            np.zeros(len(Xnew)),
            np.diag(k(Xnew, Xnew)),
        )

    @staticmethod
    def fitc(
        k: Covariance, X: np.ndarray, Xnew: np.ndarray, Z: np.ndarray, noise: float, jitter: float
    ) -> LatentGaussian:
        """Codes N(0, Q + diag(K - Q) + noise I), Q = K_XZ (K_ZZ + jitter I)^-1 K_ZX.

        Snelson and Ghahramani (2006). A function value at a new input shares with the codes only
        what goes through the inducing points, but its own prior variance is that of the GP.
        """
        Kzz = k(Z, Z) + jitter * np.eye(len(Z))
        Q = k(X, Z) @ np.linalg.solve(Kzz, k(Z, X))
        return LatentGaussian(
            np.zeros(len(X)),
            Q + np.diag(np.diag(k(X, X) - Q)) + noise * np.eye(len(X)),
            k(X, Z) @ np.linalg.solve(Kzz, k(Z, Xnew)),
            np.zeros(len(Xnew)),
            np.diag(k(Xnew, Xnew)),
        )

    @staticmethod
    def fitc_given_outputs(
        k: Covariance,
        X: np.ndarray,
        Xnew: np.ndarray,
        Z: np.ndarray,
        noise: float,
        jitter: float,
        whitened: np.ndarray,
    ) -> LatentGaussian:
        """FITC with known inducing outputs u = chol(K_ZZ) whitened: codes are independent."""
        Kzz = k(Z, Z) + jitter * np.eye(len(Z))
        outputs = np.linalg.cholesky(Kzz) @ whitened

        def moments(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            mean = k(inputs, Z) @ np.linalg.solve(Kzz, outputs)
            Q = k(inputs, Z) @ np.linalg.solve(Kzz, k(Z, inputs))
            return mean, np.diag(k(inputs, inputs) - Q)

        mean, variance = moments(X)
        new_mean, new_variance = moments(Xnew)
        return LatentGaussian(
            mean,
            np.diag(variance + noise),
            np.zeros((len(X), len(Xnew))),
            new_mean,
            new_variance,
        )

    def log_prob(self, codes: np.ndarray) -> float:
        """Log density of the N codes."""
        return log_density(codes - self.mean, self.covariance)

    def condition(
        self, target: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean [N] and covariance [N, N] of the codes, and log evidence of ``target``.

        ``target ~ N(codes, diag(variance))`` are the pseudo-observations.
        """
        total = self.covariance + np.diag(variance)
        gain = np.linalg.solve(total, self.covariance).T
        residual = target - self.mean
        return (
            self.mean + gain @ residual,
            self.covariance - gain @ self.covariance,
            log_density(residual, total),
        )

    def predict(self, target: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance [Nnew] of the function at the new inputs."""
        total = self.covariance + np.diag(variance)
        gain = np.linalg.solve(total, self.cross).T
        return (
            self.new_mean + gain @ (target - self.mean),
            self.new_variance - np.sum(gain * self.cross.T, axis=-1),
        )
