"""Holes of a table drawn from the model itself: intervals cover as often as they say."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

from gpflow_bae import encoders, inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.decoders import KerasDecoder
from gpflow_bae.models import set_default_kernel_priors
from gpflow_bae.posteriors import Posterior

N, P = 12, 3
WEIGHTS, BIASES, NOISE = np.array([1.0, -0.7, 0.4]), np.array([0.2, 0.0, -0.5]), 0.3
LENGTHSCALE = 1.0


def draw_table(num_tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X [N, 1], complete tables [T, N, P] of the linear model, and which cells are seen."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0.0, 4.0, N)[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2 / LENGTHSCALE**2) + 1e-8 * np.eye(N)
    codes = rng.standard_normal((num_tasks, N)) @ np.linalg.cholesky(K).T
    Y = codes[..., None] * WEIGHTS + BIASES
    Y += np.sqrt(NOISE) * rng.standard_normal(Y.shape)
    seen = rng.random(Y.shape) < 0.6
    seen[:, 0, 0] = True  # no task without any observation
    return X, Y, seen


def linear_network() -> keras.Model:
    network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(P)])
    network.set_weights([WEIGHTS[None], BIASES])
    return network


def coverage(posterior: Posterior, Y: np.ndarray, seen: np.ndarray, num_codes: int) -> float:
    prediction = posterior.predict(None, num_codes=num_codes, seed=1)
    inside = np.abs(Y - prediction.mean) < 1.6448536 * np.sqrt(prediction.variance)
    return float(inside[~seen].mean())


def test_exact_pseudo_observations_cover_as_they_should() -> None:
    """One linear channel: the sum of the outputs' natural parameters is the exact likelihood."""
    T = 300
    X, Y, seen = draw_table(T, 0)
    precision = (seen * WEIGHTS**2 / NOISE).sum(-1, keepdims=True)
    evidence = (seen * (Y - BIASES) * WEIGHTS / NOISE).sum(-1, keepdims=True)
    safe = np.where(precision > 0, precision, 1.0)
    encoder = encoders.FreeFormEncoder(T, N, 1, evidence / safe)
    encoder.log_scale.assign(-0.5 * np.log(safe))
    model = models.GPVAE(
        gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE),
        linear_network(),
        encoder,
        likelihoods.Gaussian(np.full(P, NOISE)),
        latent_dim=1,
    )
    data = prepare_data(model, (X, np.where(seen, Y, np.nan)))
    found = coverage(Posterior.from_point(model, data), Y, seen, num_codes=30)
    # About 4300 hidden cells; those of a task share its code, so count each task's 14 as 4: 1200
    # cells, a standard error of 0.0087. Three of them.
    assert abs(found - 0.9) < 0.026, found


@pytest.mark.parametrize("scale, expected", [(1.0, True), (3.0, False)])
def test_sampled_codes_cover_as_they_should(scale: float, expected: bool) -> None:
    """SGP-BAE with its parameters at the truth: only codes and encoder move.

    With the noise said to be three times as large the intervals cover too much, so that this test
    would notice a variance that is wrong by that much.
    """
    T = 60
    X, Y, seen = draw_table(T, 1)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=LENGTHSCALE)
    set_default_kernel_priors(kernel, LENGTHSCALE, variance=1.0)
    model = models.GPBAE(
        kernel,
        KerasDecoder(linear_network()),
        encoders.partial_encoder("indexnet", P, 1, (8,), stochastic=True),
        likelihoods.Gaussian(np.full(P, scale * NOISE)),
        latent_dim=1,
        code_noise_variance=1e-2,
    )
    for parameter in model.sampled.parameters:
        gpflow.set_trainable(parameter, False)
    settings = inference.AmortizedSettings(burnin=300, num_samples=40, thinning=50)
    sampler = mcmc.adaptive_sghmc.build(step_size=0.05, momentum_decay=0.1)
    posterior = inference.sample_amortized(
        model,
        (X, np.where(seen, Y, np.nan)),
        settings,
        sampler=sampler,
        seed=0,
        progress=False,
        warm_start=None,
    )
    found = coverage(posterior, Y, seen, num_codes=4)
    # 860 cells of 60 tasks, four independent ones each: a standard error of 0.019.
    assert (abs(found - 0.9) < 0.045) == expected, found
