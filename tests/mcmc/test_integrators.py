"""OBABO and BAOAB: the published schemes' positions, and the step-size biases that are claimed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc import adaptive_sghmc, integrators, noise, sghmc

SEED = tf.constant([1, 2])


def gradient(x: Any) -> Any:
    return -x - np.sin(x)


@pytest.mark.parametrize("temperature, decay", [(1.7, 0.3), (0.5, 1.0)])
@pytest.mark.parametrize("scheme", ["obabo", "baoab"])
def test_positions_are_those_of_the_scheme_as_published(
    scheme: str, temperature: float, decay: float
) -> None:
    # The letters one by one, in velocities, beginning between the two kicks that the package joins.
    # OBABO's two halves of O across a border get the halves of the package's xi that make it up.
    h, c = 0.3, 1 - decay
    state = sghmc.init(tf.constant([1.0, -2.0, 0.5], tf.float64))
    x, v = state.position.numpy(), np.zeros(3)
    # The package's first kick is a whole one where BAOAB's is half.
    v = v + (h / 2 * gradient(x) if scheme == "baoab" else 0)
    for step in range(6):
        seed = tf.constant([3, step])
        state = sghmc.update(
            state,
            tf.constant(gradient(state.position.numpy())),
            seed,
            step_size=h,
            momentum_decay=decay,
            temperature=temperature,
            integrator=scheme,
        )
        xi = noise.noise_like(tf.zeros(3, tf.float64), seed).numpy()
        if scheme == "obabo":
            first = 0.25 * xi  # any split: b xi = sqrt(c) b_half first + b_half second
            whole, half = np.sqrt(temperature * np.array([1 - c**2, 1 - c]))
            second = (whole * xi - np.sqrt(c) * half * first) / half
            if step == 0:
                v = v + h / 2 * gradient(x)  # ends the step before
            v = np.sqrt(c) * v + half * first  # O/2, the end of a step
            v = np.sqrt(c) * v + half * second  # O/2, the beginning of the next
            v = v + h / 2 * gradient(x)
            x = x + h * v
            v = v + h / 2 * gradient(x)
        else:
            v = v + h / 2 * gradient(x)
            x = x + h / 2 * v
            v = c * v + np.sqrt((1 - c**2) * temperature) * xi
            x = x + h / 2 * v
            v = v + h / 2 * gradient(x)
        np.testing.assert_allclose(state.position, x, rtol=1e-12)


def linear_map(integrator: str, k: float, a: float) -> tuple[np.ndarray, np.ndarray]:
    """The package's step on a Gaussian: z' = M z + b xi for z = (position, momentum), h^2 A = k."""

    def step(position: float, momentum: float, xi: float) -> list[float]:
        numbers = [tf.constant(value, tf.float64) for value in (position, momentum, -k * position)]
        settings = {"momentum_decay": tf.constant(a, tf.float64), "noise_scale": 1.0}
        xi = tf.constant(xi, tf.float64)
        return [float(n) for n in integrators.splitting_step(integrator, *numbers, xi, **settings)]

    return np.array([step(1, 0, 0), step(0, 1, 0)]).T, np.array(step(0, 0, 1))


@pytest.mark.parametrize("a", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("k", [0.01, 0.5, 3.9])
@pytest.mark.parametrize("integrator", ["obabo", "baoab"])
def test_stationary_covariance_of_a_gaussian_is_the_closed_form(
    integrator: str, k: float, a: float
) -> None:
    # h sqrt(T) = 1, so that Cov = 1 / (k (1 - k / 4)) for OBABO and 1 / k for BAOAB.
    transition, b = linear_map(integrator, k, a)
    assert np.abs(np.linalg.eigvals(transition)).max() < 1  # stable up to k = 4
    lyapunov = np.eye(4) - np.kron(transition, transition)
    covariance = np.linalg.solve(lyapunov, np.outer(b, b).reshape(-1)).reshape(2, 2)
    expected = 1 / (k * (1 - k / 4)) if integrator == "obabo" else 1 / k
    np.testing.assert_allclose(covariance[0, 0], expected, rtol=1e-9)
    if integrator == "baoab":
        np.testing.assert_allclose(covariance[1, 1], 1.0, rtol=1e-9)  # a kinetic temperature of T
    assert np.abs(np.linalg.eigvals(linear_map(integrator, 4.1, a)[0])).max() > 1


class TransferOperator:
    """Steps of a density over (position on a circle, velocity): no Monte Carlo error.

    A and B shift the density (exactly, by its Fourier series), O convolves it with a Gaussian.
    """

    def __init__(self) -> None:
        self.q = np.arange(48) * 2 * np.pi / 48
        self.v = (np.arange(128) - 64) * 20 / 128
        self.frequency_q = np.fft.fftfreq(48, 1 / 48)[:, None]
        self.frequency_v = np.fft.fftfreq(128, 20 / 128) * 2 * np.pi
        density = np.exp(-np.cos(self.q) - 0.6 * np.sin(2 * self.q))
        self.exact = density / density.sum()
        self.force = np.sin(self.q) - 1.2 * np.cos(2 * self.q)

    def move(self, p: np.ndarray, time: float) -> np.ndarray:
        phase = np.exp(-1j * time * self.frequency_q * self.v)
        return np.fft.ifft(np.fft.fft(p, axis=0) * phase, axis=0).real

    def kick(self, p: np.ndarray, time: float) -> np.ndarray:
        phase = np.exp(-1j * time * self.force[:, None] * self.frequency_v)
        return np.fft.ifft(np.fft.fft(p, axis=1) * phase, axis=1).real

    def bias(self, integrator: str, h: float, a: float) -> float:
        """Error of the stationary mean of cos q."""
        variance = 2 * a if integrator == "euler" else a * (2 - a)
        kernel = np.exp(-((self.v[:, None] - (1 - a) * self.v) ** 2) / (2 * variance))
        kernel /= np.sqrt(2 * np.pi * variance) * 128 / 20
        p = self.exact[:, None] * np.exp(-(self.v**2) / 2)
        means = [np.inf]
        while len(means) < 3 or abs(means[-1] - means[-2]) > 1e-9:
            for _ in range(40):
                if integrator == "euler":
                    p = self.move(self.kick(p @ kernel.T, h), h)
                elif integrator == "obabo":
                    p = self.move(self.kick(self.kick(p, h / 2) @ kernel.T, h / 2), h)
                else:
                    p = self.move(self.move(self.kick(p, h), h / 2) @ kernel.T, h / 2)
            p /= p.sum()
            means.append(np.sum(p * np.cos(self.q)[:, None]))
        return means[-1] - self.exact @ np.cos(self.q)


@pytest.mark.parametrize(
    "integrator, friction, order",
    [("euler", 0.5, 2), ("obabo", 0.5, 2), ("baoab", 0.5, 2), ("baoab", None, 4)],
)
def test_order_of_the_bias(integrator: str, friction: float | None, order: int) -> None:
    # A fixed friction a / h, or a = 1: the limit of a large one. The 0.3 is for the next order, as
    # the step sizes are not small.
    operator, step_sizes = TransferOperator(), (0.5, 0.35)
    biases = [
        operator.bias(integrator, h, 1.0 if friction is None else friction * h) for h in step_sizes
    ]
    slope = np.log(biases[0] / biases[1]) / np.log(step_sizes[0] / step_sizes[1])
    assert abs(slope - order) < 0.3, biases
    if (integrator, friction) == ("baoab", 0.5):
        assert abs(biases[0]) < 0.15 * operator.bias("obabo", 0.5, 0.25)


@pytest.mark.parametrize("integrator", ["obabo", "baoab"])
def test_adaptive_sghmc_is_sghmc_in_scaled_coordinates(integrator: str) -> None:
    # With P frozen at 1 / 4, position / sqrt(P) moves as SGHMC under the gradient sqrt(P) g.
    settings = {"step_size": 0.2, "momentum_decay": 0.3, "temperature": 1.5}
    position = tf.constant([1.0, -2.0], tf.float64)
    scaled = adaptive_sghmc.init(position)._replace(
        mean_square_gradient=tf.fill([2], tf.constant(16.0, tf.float64))
    )
    plain = sghmc.init(2 * position)
    for step in range(4):
        seed = tf.constant([5, step])
        scaled = adaptive_sghmc.update(
            scaled,
            tf.constant(gradient(scaled.position.numpy())),
            seed,
            adapt=False,
            jitter=0.0,
            integrator=integrator,
            **settings,
        )
        plain = sghmc.update(
            plain,
            tf.constant(0.5 * gradient(plain.position.numpy() / 2)),
            seed,
            integrator=integrator,
            **settings,
        )
        np.testing.assert_allclose(2 * scaled.position, plain.position, rtol=1e-12)


def test_bad_integrators_are_refused() -> None:
    settings = {"step_size": 0.1, "momentum_decay": 0.1}
    with pytest.raises(ValueError, match=r"integrator must be one of .*got 'leapfrog'"):
        sghmc.update(sghmc.init(tf.ones(2)), tf.ones(2), SEED, integrator="leapfrog", **settings)
    state = adaptive_sghmc.init(tf.ones(2))
    settings |= {"adapt": False, "subtract_gradient_noise": True}
    for integrator in ("obabo", "baoab"):
        with pytest.raises(ValueError, match="subtract_gradient_noise .* integrator='euler'"):
            adaptive_sghmc.update(state, tf.ones(2), SEED, integrator=integrator, **settings)
