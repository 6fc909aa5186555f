"""A Gaussian latent process seen through a linear map: everything is jointly Gaussian.

One task, one channel: ``codes ~ N(0, covariance)`` and ``Y = codes weights^T + bias + noise``.
"""

from __future__ import annotations

import numpy as np

from .latent_gaussian import log_density

__all__ = ["code_posterior", "kl_divergence", "log_evidence"]


def log_evidence(
    covariance: np.ndarray, weights: np.ndarray, bias: np.ndarray, noise: float, Y: np.ndarray
) -> float:
    """log p(Y [N, P]) with codes integrated out: an [N P, N P] multivariate normal.

    :param covariance: [N, N] of the codes. :param weights: [P]. :param bias: [P].
    """
    joint = np.kron(covariance, np.outer(weights, weights)) + noise * np.eye(Y.size)
    return log_density((Y - bias).ravel(), joint)


def code_posterior(
    covariance: np.ndarray, weights: np.ndarray, bias: np.ndarray, noise: float, Y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N] and covariance [N, N] of the codes given Y."""
    num_data = len(covariance)
    joint = np.kron(covariance, np.outer(weights, weights)) + noise * np.eye(Y.size)
    cross = np.kron(covariance, weights[None, :])  # Cov(codes, vec Y)
    gain = np.linalg.solve(joint, cross.T).T
    assert gain.shape == (num_data, Y.size)
    return gain @ (Y - bias).ravel(), covariance - gain @ cross.T


def kl_divergence(
    mean_q: np.ndarray, covariance_q: np.ndarray, mean_p: np.ndarray, covariance_p: np.ndarray
) -> float:
    """KL(N(mean_q, covariance_q) || N(mean_p, covariance_p))."""
    difference = mean_p - mean_q
    return float(
        0.5
        * (
            np.trace(np.linalg.solve(covariance_p, covariance_q))
            + difference @ np.linalg.solve(covariance_p, difference)
            - len(mean_q)
            + np.linalg.slogdet(covariance_p)[1]
            - np.linalg.slogdet(covariance_q)[1]
        )
    )
