"""Posteriors of two-dimensional codes by numerical integration, beside importance sampling."""

from __future__ import annotations

import gpflow
import numpy as np

from experiments.gplvm import exact
from gpflow_bae import encoders, models
from gpflow_bae.data import prepare_data
from gpflow_bae.posteriors import GPLVMPosterior

N, P, M = 6, 5, 8


def fitted() -> tuple[GPLVMPosterior, np.ndarray]:
    """Functions at random, codes anywhere, rows with holes and without."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((N, P))
    Y = np.where(rng.random((N, P)) < 0.4, np.nan, truth)
    Y[0, 0], Y[:, 1] = np.nan, truth[:, 1]
    model = models.StochasticGPLVM(
        encoders.FreeFormEncoder(1, N, 2, rng.standard_normal((1, N, 2)), 0.05),
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.5]),
        rng.standard_normal((M, 2)),
        gpflow.likelihoods.Gaussian(0.5),
        P,
    )
    model.decoder.q_mu.assign(rng.standard_normal((M, P)))
    model.decoder.q_sqrt.assign(np.tile(0.3 * np.eye(M), (P, 1, 1)))
    return GPLVMPosterior(model, prepare_data(model, (None, Y))), truth


def test_the_largest_bound_is_the_integral_that_importance_sampling_finds() -> None:
    posterior, truth = fitted()
    model, batch = posterior.model, posterior.data.gather(None)
    scores = exact.compare(posterior, truth, np.arange(N), side=80)
    draws = np.random.default_rng(1).standard_normal((100_000, 2))
    mean, variance = (v.numpy() for v in model.predict_f(draws))
    Y, noise = posterior.data.to_numpy()[1][0].astype(float), 0.5
    off = (np.square(Y[:, None] - mean) + variance) / noise
    weights = np.exp(np.nansum(-0.5 * np.log(2.0 * np.pi * noise) - 0.5 * off, -1))  # [N, S]
    expected = np.log(weights.mean(1))
    error = np.sqrt(np.square(weights.std(1) / weights.mean(1)).sum() / len(draws)) / N
    assert abs(scores["bound_exact"] - expected.mean()) < 4.0 * error + 1e-4
    assert scores["bound_fitted"] < scores["bound_exact"]
    # And what the exact posterior says of hidden cells, with the draws weighted.
    hidden = np.isnan(Y)
    spread = variance + noise
    densities = np.exp(-0.5 * np.square(truth[:, None] - mean) / spread)
    densities /= np.sqrt(2.0 * np.pi * spread)
    of_cells = np.einsum("ns,nsp->np", weights / weights.sum(1, keepdims=True), densities)
    found = scores["log_density_missing_exact"]
    np.testing.assert_allclose(found, np.log(of_cells[hidden]).mean(), atol=0.01)
    assert batch.mask is not None


def test_a_row_between_two_hills_has_mass_elsewhere() -> None:
    """y = x_1^2 says nothing of the sign of the code: half of the mass is on the other side."""
    cells, log_mass = exact.grid_of_codes(60)
    moments = (np.square(cells[:, :1]), np.full((len(cells), 1), 1e-3))
    posterior, _ = fitted()
    model = posterior.model
    batch = prepare_data(model, (None, np.full((2, P), 1.0))).gather(None)
    moments = tuple(np.repeat(m, P, 1) for m in moments)
    probabilities, _ = exact.posterior_on_grid(model, batch, moments, log_mass)
    left = probabilities[:, cells[:, 0] < 0].sum(1)
    np.testing.assert_allclose(left, 0.5, atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-9)
