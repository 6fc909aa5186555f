"""Target densities whose moments and distributions are known exactly, at any temperature.

A density's ``log_prob`` takes x [..., 2] and returns [...]. ``standardise`` maps draws from
density ** (1 / temperature) to independent standard normals.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf


class Gaussian:
    """N(mean, covariance) in two dimensions; its precision has eigenvalues 0.48 and 2.45."""

    mean = np.array([1.0, -0.5])
    covariance = np.array([[1.0, 0.8], [0.8, 1.5]])
    precision = np.linalg.inv(covariance)

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        centred = x - tf.cast(self.mean, x.dtype)
        product = tf.linalg.matmul(centred, tf.cast(self.precision, x.dtype))
        return -0.5 * tf.reduce_sum(centred * product, axis=-1)


class Banana:
    """x_0 ~ N(0, 1), x_1 | x_0 ~ N((x_0^2 - 1) / 2, 1): as Rosenbrock's, with an exact sampler."""

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        return -0.5 * (x[..., 0] ** 2 + (x[..., 1] - 0.5 * (x[..., 0] ** 2 - 1)) ** 2)

    def standardise(self, x: np.ndarray, temperature: float) -> np.ndarray:
        ridge = 0.5 * (x[:, 0] ** 2 - 1)
        return np.stack([x[:, 0], x[:, 1] - ridge], axis=-1) / np.sqrt(temperature)

    def mean(self, temperature: float) -> np.ndarray:
        return np.array([0.0, 0.5 * (temperature - 1)])

    def covariance(self, temperature: float) -> np.ndarray:
        """Var x_1 = T + Var(x_0^2) / 4 = T + T^2 / 2; x_0 and x_0^2 are uncorrelated."""
        return np.diag([temperature, temperature + temperature**2 / 2])

    def curvature(self, temperature: float) -> float:
        """The mean over the density of the largest eigenvalue of minus the Hessian."""
        x, residual = np.random.default_rng(0).normal(size=[2, 20_000]) * np.sqrt(temperature)
        hessian = np.empty([x.size, 2, 2])
        hessian[:, 0, 0], hessian[:, 1, 1] = 1 + x**2 - residual, 1
        hessian[:, 0, 1] = hessian[:, 1, 0] = -x
        return float(np.linalg.eigvalsh(hessian)[:, 1].mean())


class TwoModes:
    """0.3 N((-5, 0), I) + 0.7 N((5, 0), I): 12.5 nats deep between the modes."""

    centre = 5.0
    right_weight = 0.7

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        log_left = -0.5 * (x[..., 0] + self.centre) ** 2 + np.log(1 - self.right_weight)
        log_right = -0.5 * (x[..., 0] - self.centre) ** 2 + np.log(self.right_weight)
        return tf.reduce_logsumexp([log_left, log_right], axis=0) - 0.5 * x[..., 1] ** 2


class Anharmonic:
    """exp(-x^2 / 4 - 2 log cosh x) in each coordinate: curvature from 0.5 to 2.5, never more."""

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        # log cosh x = |x| + softplus(-2 |x|) - log 2, without overflow.
        log_cosh = tf.abs(x) + tf.math.softplus(-2 * tf.abs(x))
        return -tf.reduce_sum(x**2 / 4 + 2 * log_cosh, axis=-1)

    @functools.cached_property
    def second_moment(self) -> float:
        """E[x^2] of a coordinate, by the trapezoidal rule (spectrally accurate here)."""
        x = np.linspace(-14, 14, 4001)
        weights = np.exp(-(x**2) / 4) / np.cosh(x) ** 2
        return float(np.sum(weights * x**2) / np.sum(weights))


GAUSSIAN, BANANA, TWO_MODES, ANHARMONIC = Gaussian(), Banana(), TwoModes(), Anharmonic()


def lyapunov_covariance(
    step_size: float,
    momentum_decay: float,
    noise_temperature: float | np.ndarray,
    preconditioner: float | np.ndarray = 1.0,
) -> np.ndarray:
    """Exact stationary covariance of (adaptive) SGHMC's positions on the Gaussian, [2, 2].

    With K = h^2 P A the chain is linear: r' = (1 - a) r - K q + s xi, q' = q + r', and Cov(q)
    solves the discrete Lyapunov equation; solved here as the linear system it is, independently of
    the closed form in the docstrings. ``noise_temperature`` may differ between the two scalars.
    """
    h, a, eye, p = step_size, momentum_decay, np.eye(2), np.ones(2) * preconditioner
    k = h**2 * p[:, None] * GAUSSIAN.precision
    transition = np.block([[eye - k, (1 - a) * eye], [-k, (1 - a) * eye]])
    s2 = np.diag(2 * a * noise_temperature * h**2 * p)
    noise = np.block([[s2, s2], [s2, s2]])
    solution = np.linalg.solve(np.eye(16) - np.kron(transition, transition), noise.reshape(-1))
    return solution.reshape(4, 4)[:2, :2]
