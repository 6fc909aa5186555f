"""Kernels as Markov processes, against GPflow's own kernels."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from gpflow_bae.latent_priors.state_space import (
    _scaled_bessel,
    check_state_space,
    harmonics_of,
    state_space,
)

k = gpflow.kernels


def _periodic(lengthscale: float = 1.3) -> k.Kernel:
    return k.Periodic(k.SquaredExponential(variance=1.4, lengthscales=lengthscale), period=2.5)


KERNELS = {
    "matern12": k.Matern12(variance=0.7, lengthscales=1.3),
    "exponential": k.Exponential(lengthscales=0.6),
    "matern32": k.Matern32(variance=2.0, lengthscales=0.8),
    "matern52": k.Matern52(variance=1.7, lengthscales=2.1),
    "cosine": k.Cosine(variance=0.4, lengthscales=3.0),
    "constant": k.Constant(0.5),
    "periodic": _periodic(),
    "sum": k.Matern52() + k.Matern12(lengthscales=3.0) + k.Constant(0.2),
    "quasi-periodic": _periodic() * k.Matern32(lengthscales=5.0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_process_has_the_kernels_covariance(name: str) -> None:
    """H A(r) P H^T; GPflow's distances are exact to 1e-12, a Fourier series to 1e-9."""
    kernel = KERNELS[name]
    process = state_space(kernel, harmonics_of(kernel))
    t = np.r_[0.0, np.random.default_rng(0).uniform(0.0, 8.0, 20)]
    A, P, H = process.transition(tf.constant(t)), process.covariance, process.projection
    found = np.einsum("d,nde,ef,f->n", H, A, P, H)
    np.testing.assert_allclose(found, kernel(t[:, None], np.zeros((1, 1)))[:, 0], atol=2e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_steps_compose_and_what_they_add_is_a_covariance(name: str) -> None:
    """A(r + s) = A(s) A(r); the noise of both steps is that of one."""
    kernel = KERNELS[name]
    process = state_space(kernel, harmonics_of(kernel))
    A, B, both = process.transition(tf.constant([0.3, 1.1, 1.4], tf.float64))
    np.testing.assert_allclose(B @ A, both, atol=1e-12)
    Q, R, total = process.noise(tf.stack([A, B, both]))
    np.testing.assert_allclose(B @ Q @ tf.transpose(B) + R, total, atol=1e-12)
    assert np.linalg.eigvalsh(total).min() > -1e-12


def test_a_periodic_kernel_may_shrink_to_half_its_lengthscale() -> None:
    """The number of harmonics is fixed when a prior is made; its kernel changes in a fit."""
    made = harmonics_of(_periodic(1.0))
    kernel, t = _periodic(0.5), np.linspace(0.0, 2.5, 30)
    process = state_space(kernel, made)
    found = np.einsum(
        "d,nde,ef,f->n",
        process.projection,
        process.transition(tf.constant(t)),
        process.covariance,
        process.projection,
    )
    np.testing.assert_allclose(found, kernel(t[:, None], np.zeros((1, 1)))[:, 0], atol=2e-9)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (k.SquaredExponential(), "SquaredExponential has no state-space form.*Matern52"),
        (k.Matern32() + k.Linear(), "Linear has no state-space form"),
        (k.Periodic(k.Matern32()), "Periodic over Matern32 has no state-space form"),
        (k.Matern32(lengthscales=[1.0, 2.0]), "Matern32 has 2 lengthscales"),
        (_periodic(0.05), "lengthscale of 0.05.*more than 30 harmonics"),
    ],
)
def test_kernels_without_a_form_are_refused_by_name(kernel: k.Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_state_space(kernel)
        harmonics_of(kernel)


@pytest.mark.parametrize("highest", [0, 3, 30])
def test_bessel_functions_are_scipys(highest: int) -> None:
    """For all lengthscales with at most thirty harmonics, and half of them; 1e-12 for rounding."""
    a = np.geomspace(1e-5, 100.0, 40)
    found = np.stack(_scaled_bessel(tf.constant(a), highest))
    expected = special.ive(np.arange(highest + 1)[:, None], a)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
