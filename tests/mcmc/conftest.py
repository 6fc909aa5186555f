"""One harness for the moments of every sampler: a correlated Gaussian, many independent chains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

UpdateFn = Callable[[Any, tf.Tensor, tf.Tensor], Any]  # state, gradient, seed -> state


@dataclasses.dataclass(frozen=True)
class Moments:
    """Moments per chain, averaged over its path; chains are independent."""

    mean: np.ndarray  # [C, 2]
    second: np.ndarray  # [C, 2, 2], about the target's mean

    @staticmethod
    def assert_near(per_chain: np.ndarray, expected: np.ndarray, bias: float = 0.0) -> None:
        """The average over chains is ``expected``, up to Monte Carlo error and ``bias``.

        The averages over single paths are independent and identically distributed, so their spread
        over chains gives the standard error of the grand mean, whatever the autocorrelation within
        a path. Five standard errors: 6e-7 per number.
        """
        error = per_chain.std(axis=0) / np.sqrt(per_chain.shape[0])
        assert np.all(error < 0.015 * np.abs(expected).max() + 0.02), "not precise enough to tell"
        difference = np.abs(per_chain.mean(axis=0) - expected)
        assert np.all(difference < 5 * error + bias), f"{difference=} {error=}"


class CorrelatedGaussian:
    """N(mean, covariance) in two dimensions; its precision has eigenvalues 0.48 and 2.45."""

    mean = np.array([1.0, -0.5])
    covariance = np.array([[1.0, 0.8], [0.8, 1.5]])
    precision = np.linalg.inv(covariance)

    def gradient(self, x: tf.Tensor) -> tf.Tensor:
        """Gradient of the log density at x [..., 2]."""
        return -tf.linalg.matmul(x - tf.cast(self.mean, x.dtype), tf.cast(self.precision, x.dtype))

    def sghmc_covariance(
        self,
        step_size: float,
        momentum_decay: float,
        temperature: float,
        preconditioner: np.ndarray | float = 1.0,
    ) -> np.ndarray:
        """Exact stationary covariance of the positions, [..., 2, 2], as (P)SGHMC's docstrings say.

        With K = h^2 P A, the chain is linear: r' = (1 - a) r - K q + s xi, q' = q + r', and
        Cov(q) solves the discrete Lyapunov equation; solved here as the linear system it is,
        independently of the closed form in the docstrings.
        """
        p = np.broadcast_to(np.asarray(preconditioner, float), np.shape(preconditioner)[:-1] + (2,))
        h, a, eye = step_size, momentum_decay, np.eye(2)
        out = np.empty(p.shape[:-1] + (2, 2))
        for index in np.ndindex(*p.shape[:-1]):
            k = h**2 * p[index][:, None] * self.precision
            transition = np.block([[eye - k, (1 - a) * eye], [-k, (1 - a) * eye]])
            s2 = np.diag(2 * a * temperature * h**2 * p[index])
            noise = np.block([[s2, s2], [s2, s2]])
            solution = np.linalg.solve(
                np.eye(16) - np.kron(transition, transition), noise.reshape(-1)
            )
            out[index] = solution.reshape(4, 4)[:2, :2]
        return out

    def run(
        self,
        update: UpdateFn,
        state: Any,
        *,
        num_burnin_steps: int,
        num_steps: int,
        gradient_noise: np.ndarray | float = 0.0,
        seed: int = 0,
    ) -> tuple[Any, Moments]:
        """Moments of ``state.position [C, 2]``; ``gradient_noise`` is a standard deviation."""
        base = tf.constant([7, seed])

        def step(i: tf.Tensor, state: Any) -> Any:
            seeds = tf.unstack(tf.random.split(tf.random.fold_in(base, i, alg="philox"), 2))
            x = state.position
            noise = tf.random.stateless_normal(x.shape, seeds[1], dtype=x.dtype)
            return update(
                state, self.gradient(x) + tf.cast(gradient_noise, x.dtype) * noise, seeds[0]
            )

        @tf.function
        def loop() -> tuple[Any, tf.Tensor, tf.Tensor]:
            start = state
            for i in tf.range(num_burnin_steps):
                start = step(i, start)
            first = tf.zeros_like(start.position)
            second = tf.zeros(first.shape + [2], first.dtype)
            last = start
            for i in tf.range(num_burnin_steps, num_burnin_steps + num_steps):
                last = step(i, last)
                x = last.position - tf.cast(self.mean, first.dtype)
                first += x
                second += x[:, :, None] * x[:, None, :]
            return last, first / num_steps, second / num_steps

        last, first, second = loop()
        return last, Moments(first.numpy() + self.mean, second.numpy())


@pytest.fixture(scope="session")
def gaussian() -> CorrelatedGaussian:
    return CorrelatedGaussian()
