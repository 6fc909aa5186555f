"""The exact GP prior against GPflow's own regression model, and its error."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_bae.latent_priors import GP

NOISE, JITTER = 0.05, 1e-6


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(lengthscales=[0.7, 1.4], variance=1.3)


def test_reduces_to_gpr() -> None:
    """Equal pseudo-noise everywhere is GP regression: GPR.predict_f, GPR's evidence.

    GPR's noise is the pseudo-noise and the code noise together (and our jitter). Both solve the
    same well-conditioned 8 x 8 system in float64.
    """
    rng = np.random.default_rng(0)
    X, Xnew, Y = rng.normal(size=(8, 2)), rng.normal(size=(5, 2)), rng.normal(size=(8, 3))
    model = gpflow.models.GPR((X, Y), _kernel(), noise_variance=0.2 + NOISE + JITTER)
    prior = GP(_kernel(), latent_dim=3, code_noise_variance=NOISE)
    pseudo_noise = np.full_like(Y, 0.2)
    mean, variance = prior.predict(Xnew, X, Y, pseudo_noise)
    expected_mean, expected_variance = model.predict_f(Xnew)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        prior.condition(X, Y, pseudo_noise).log_marginal,
        model.log_marginal_likelihood(),
        rtol=1e-10,
    )


def test_log_prob_is_gprs_evidence() -> None:
    """Codes are noisy observations of the function: GPR with noise sigma^2 + jitter."""
    rng = np.random.default_rng(1)
    X, latents = rng.normal(size=(8, 2)), rng.normal(size=(8, 3))
    model = gpflow.models.GPR((X, latents), _kernel(), noise_variance=NOISE + JITTER)
    prior = GP(_kernel(), latent_dim=3, code_noise_variance=NOISE)
    np.testing.assert_allclose(
        prior.log_prob(X, latents), model.log_marginal_likelihood(), rtol=1e-10
    )


def test_a_new_task_shape_at_prediction() -> None:
    """Inputs without a batch pair with new inputs of several tasks: each task on its own."""
    rng = np.random.default_rng(2)
    X, Xnew, Y = rng.normal(size=(6, 2)), rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 6, 2))
    prior = GP(_kernel(), latent_dim=2, code_noise_variance=NOISE)
    together = prior.predict(Xnew, X, Y, np.full_like(Y, 0.2))
    for task in range(3):
        alone = prior.predict(Xnew[task], X, Y[task], np.full((6, 2), 0.2))
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[task], b, rtol=1e-10, atol=1e-12)


def test_cholesky_failure_names_kernel_jitter_and_task() -> None:
    """NaN in the inputs of task 1 (kernel 0) of three: the other two are fine."""
    X = np.random.default_rng(0).normal(size=(3, 4, 2))
    X[1, 2, 0] = np.nan
    prior = GP(_kernel(), latent_dim=2)
    message = r"latent GP \(Matern52\) failed .*\[\[1, 0\]\] with jitter 1e-06.*NaN"
    with pytest.raises(ValueError, match=message):
        prior.log_prob(X, np.zeros((3, 4, 2)))
