"""A linear decoder integrated out: a mixture of GPs below no network, and a Gaussian likelihood."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
from scipy import stats

from gpflow_bae import (
    Posterior,
    decoders,
    encoders,
    guides,
    latent_priors,
    likelihoods,
    models,
    serving,
)
from gpflow_bae.base import Batch
from gpflow_bae.impute.coregionalisation import LinearCoregionalisation

N, P = 12, 3
NOISE = np.array([0.1, 0.3, 0.2])


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, Y = np.sort(rng.uniform(0.0, 4.0, (N, 1)), 0), rng.standard_normal((N, P))
    Y[2:6, 1] = Y[8, 0] = Y[10] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def reference() -> LinearCoregionalisation:
    """Exact, cell by cell: two smooth kernels, and noise that channels share at a row."""
    rng = np.random.default_rng(1)
    kernels = [gpflow.kernels.Matern32(lengthscales=0.9), gpflow.kernels.Matern12(lengthscales=0.4)]
    W, scales = rng.standard_normal((P, P)), rng.uniform(0.3, 1.0, (3, P))
    return LinearCoregionalisation(kernels, W, scales, NOISE)


def built(reference: LinearCoregionalisation, Z: np.ndarray) -> models.LinearSGPVAE:
    """The same as an autoencoder: a function for each kernel and channel."""
    *smooth, of_rows = (A.numpy() for A in reference.mixing)
    kernels = [kernel for kernel in reference.kernels for _ in range(P)]
    likelihood = likelihoods.Gaussian(NOISE)
    model = models.LinearSGPVAE(kernels, Z, np.concatenate(smooth, 1), likelihood)
    model.latent_prior.nugget_root.assign(np.linalg.cholesky(of_rows @ of_rows.T))
    return model


def test_the_bound_is_the_evidence(data: Any, reference: LinearCoregionalisation) -> None:
    """Of the observed cells, by one Cholesky factor of them all; to 1e-4 nats.

    Jitter of 1e-6 at the inducing points and on the nugget is all that differs.
    """
    X, Y = data
    row, column = (v.astype(np.int32) for v in np.nonzero(~np.isnan(Y)))
    expected = reference.log_marginal(X, row, column, Y[row, column])
    model = built(reference, X)
    np.testing.assert_allclose(model.elbo(data), expected, rtol=0.0, atol=1e-4)
    # No draws: whatever the number, the bound is the same.
    np.testing.assert_allclose(model.elbo(data, num_draws=2), model.elbo(data), rtol=1e-12)
    assert model.elbo(data) > built(reference, X[::3]).elbo(data) - 5.0  # FITC: no bound, but near


def test_holes_are_filled_as_exactly(data: Any, reference: LinearCoregionalisation) -> None:
    """Moments and log densities of hidden cells, without draws; to 1e-4."""
    X, Y = data
    shown = ~np.isnan(Y)
    row, column = (v.astype(np.int32) for v in np.nonzero(shown))
    to_row, to_column = (v.astype(np.int32) for v in np.nonzero(~shown))
    mean, variance = reference.predict(X, row, column, Y[row, column], to_row, to_column)
    posterior = Posterior.from_point(built(reference, X), data)
    found = posterior.predict()
    np.testing.assert_allclose(found.mean[~shown], mean, atol=1e-4)
    np.testing.assert_allclose(found.variance[~shown], variance, atol=1e-4)
    np.testing.assert_allclose(found.noise_variance, np.broadcast_to(NOISE, Y.shape), rtol=1e-6)
    truth = np.where(shown, np.nan, 0.5)
    density = posterior.predict_cell_log_density((None, truth))
    expected = stats.norm.logpdf(0.5, mean, np.sqrt(variance))
    np.testing.assert_allclose(density[~shown], expected, atol=1e-4)


def test_a_bernoulli_likelihood_has_quadrature() -> None:
    """Independent channels below no network: GPflow's expectations, by its quadrature."""
    rng = np.random.default_rng(2)
    mean, variance = rng.standard_normal((2, 5, P)), rng.uniform(0.1, 1.0, (2, 5, P))
    Y = rng.integers(0, 2, (2, 5, P)).astype(float)
    ours = likelihoods.Bernoulli().expected_log_prob_of_cells(mean, variance, Y)
    grid, weights = np.polynomial.hermite_e.hermegauss(60)
    f = mean[..., None] + np.sqrt(variance)[..., None] * grid
    exact = ((Y[..., None] * f - np.logaddexp(0.0, f)) * weights).sum(-1) / weights.sum()
    np.testing.assert_allclose(ours, exact, atol=1e-5)  # 20 points against 60


def test_a_gaussian_of_several_noises() -> None:
    """-1/2 [log 2 pi s + ((y - m)^2 + v) / s] of each output with its own s."""
    rng = np.random.default_rng(3)
    mean, variance, Y = (rng.uniform(0.1, 1.0, (4, P)) for _ in range(3))
    found = likelihoods.Gaussian(NOISE).expected_log_prob_of_cells(mean, variance, Y)
    expected = -0.5 * (np.log(2 * np.pi * NOISE) + ((Y - mean) ** 2 + variance) / NOISE)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_does_not_go_together_is_refused(
    data: Any, reference: LinearCoregionalisation
) -> None:
    X, _ = data
    network = keras.Sequential([keras.Input((P,)), keras.layers.Dense(P)])
    likelihood = likelihoods.Gaussian(NOISE)
    prior = latent_priors.LinearMixture(gpflow.kernels.Matern12(), X, np.ones((P, 1)))
    encoder = encoders.LikelihoodEncoder(likelihood.variance, P)
    for guide in (guides.GaussianGuide(encoder), guides.MeanFieldGuide(encoder)):
        with pytest.raises(ValueError, match="LinearMixture couples .*Identity"):
            models.VariationalAutoencoder(prior, network, guide, likelihood)
    with pytest.raises(ValueError, match=r"shape \[P\] = \[2\], got shape \[3\]"):
        encoders.LikelihoodEncoder(likelihood.variance, 2)
    with pytest.raises(TypeError, match="likelihood must be a gpflow_bae.likelihoods.Gaussian"):
        models.LinearSGPVAE(gpflow.kernels.Matern12(), X, np.ones((P, 1)), likelihoods.Bernoulli())
    with pytest.raises(ValueError, match="num_outputs must be at least 1"):
        decoders.Identity(0)
    posterior = Posterior.from_point(built(reference, X), data)
    model = posterior.model
    for refused in (
        lambda: posterior.predict_f(X, full_cov=True, full_output_cov=True),
        lambda: posterior.predict_f_samples(X),
        lambda: model.predict_f(X, full_cov=True, full_output_cov=True, given=data),
        lambda: model.predict_f_samples(X, given=data),
        lambda: serving.ServedModel(posterior),
        lambda: model.codes_of_rows(Batch(None, np.ones((1, P), np.float32), None), None, 1),
    ):
        with pytest.raises(NotImplementedError, match="channels of a LinearMixture go together"):
            refused()


def test_outputs_of_a_row_are_known_together(data: Any, reference: LinearCoregionalisation) -> None:
    """Covariances of channels at a point, row densities and draws, by dense conditioning; 1e-4.

    Of rows where something is hidden: their density given what is observed elsewhere and there.
    """
    X, Y = data
    shown, noise = ~np.isnan(Y), np.diag(NOISE)
    *smooth, of_rows = (A.numpy() for A in reference.mixing)
    nugget = of_rows @ of_rows.T
    pairs = list(zip(reference.kernels, smooth, strict=True))
    prior = sum(np.kron(k(X).numpy(), A @ A.T) for k, A in pairs)
    codes = prior + np.kron(np.eye(N), nugget)
    seen = shown.ravel()
    given = (codes + np.kron(np.eye(N), noise))[np.ix_(seen, seen)]

    def conditioned(cross: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gain = cross[:, seen] @ np.linalg.inv(given)
        left = (own - gain @ cross[:, seen].T).reshape(N, P, N, P)
        return (gain @ Y[shown]).reshape(N, P), np.einsum("nlnk->nlk", left)

    posterior = Posterior.from_point(built(reference, X), data)
    model = posterior.model
    # Of the codes themselves, and of the function there, as at inputs that are new.
    for Xnew, cross, own in ((None, codes, codes), (X, prior, prior)):
        mean, covariance = conditioned(cross, own)
        ours = posterior.predict_f(Xnew, full_output_cov=True)
        models_own = model.predict_f(Xnew, full_output_cov=True, given=data)
        for found in (ours, models_own):
            np.testing.assert_allclose(found[0], mean, atol=1e-4)
            np.testing.assert_allclose(found[1], covariance, atol=1e-4)
        extra = 0.0 if Xnew is None else nugget
        new = np.where(np.arange(N * P).reshape(N, P) % 5 == 0, np.nan, 0.3)
        density = posterior.predict_log_density((Xnew, new))
        np.testing.assert_allclose(
            model.predict_log_density((Xnew, new), given=data), density, atol=1e-9
        )
        for n in range(N):
            counts = ~np.isnan(new[n])
            row = (covariance[n] + noise + extra)[np.ix_(counts, counts)]
            expected = stats.multivariate_normal.logpdf(new[n, counts], mean[n, counts], row)
            np.testing.assert_allclose(density[n], expected, atol=2e-4)
    mean, covariance = conditioned(prior, prior)
    draws = posterior.predict_f_samples(X, 4000, full_cov=False) - mean
    found = np.einsum("snl,snk->nlk", draws, draws) / len(draws)
    scale = np.sqrt(np.einsum("nll->nl", covariance))
    error = (found - covariance) / (scale[..., :, None] * scale[..., None, :])
    assert np.abs(error).max() < 5.0 * np.sqrt(2.0 / len(draws))
