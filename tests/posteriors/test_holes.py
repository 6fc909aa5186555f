"""What is predicted of rows and cells that were not observed, of codes that were sampled.

The decoder is linear and all is Gaussian, so the posterior of every cell has a closed form. Samples
are exact draws of the codes of observed rows; those of hidden rows are wrong, as of a chain in
which they have not moved yet.
"""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import scipy.stats

from gpflow_bae import latent_priors, likelihoods, models
from gpflow_bae.data import memory
from gpflow_bae.posteriors import Bank, Posterior

N, P, L = 8, 3, 1
X = np.linspace(0.0, 2.0, N)[:, None]
HIDDEN = np.array([2, 3, 7])
W, B, NOISE, CODE_NOISE = np.array([[1.0, -0.7, 0.4]]), np.array([0.2, 0.0, -0.5]), 0.1, 0.2
STUCK = 30.0  # where codes of hidden rows are in the bank

PRIORS: dict[str, Any] = {
    "GP": lambda: latent_priors.GP(gpflow.kernels.Matern32(), L, CODE_NOISE),
    "SparseGP": lambda: latent_priors.SparseGP(
        gpflow.kernels.Matern32(), gpflow.inducing_variables.InducingPoints(X), L, CODE_NOISE
    ),
    "StandardNormal": lambda: latent_priors.StandardNormal(L),
}


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


class Case:
    """A model, data with a hole in two rows and three rows hidden, and the closed form."""

    def __init__(self, name: str, draws: np.ndarray | None = None):
        """
        :param draws: standard normals [S, rows seen] of the codes; by default such that their
            mean is 0 and their covariance is the identity.
        """
        rng = np.random.default_rng(0)
        prior = PRIORS[name]()
        self.X = None if name == "StandardNormal" else X
        covariance = np.eye(N)
        if self.X is not None:
            covariance = gpflow.kernels.Matern32()(X).numpy() + CODE_NOISE * np.eye(N)
        codes = np.linalg.cholesky(covariance) @ rng.normal(size=(N, 1))
        self.truth = codes @ W + B + np.sqrt(NOISE) * rng.normal(size=(N, P))
        self.Y = self.truth.copy()
        self.Y[HIDDEN] = np.nan
        self.Y[0, :2] = self.Y[4, 1] = np.nan
        # All cells are Gaussian: condition them, and the codes, on those that were seen.
        decode = np.kron(np.eye(N), W.T)  # [N P, N]
        seen = np.isfinite(self.Y).ravel()
        joint = decode @ covariance @ decode.T + NOISE * np.eye(N * P)
        gain = covariance @ decode[seen].T @ np.linalg.inv(joint[np.ix_(seen, seen)])
        mean = gain @ (self.Y - B).ravel()[seen]
        spread = covariance - gain @ decode[seen] @ covariance
        self.mean = (decode @ mean).reshape(N, P) + B
        self.variance = np.diag(decode @ spread @ decode.T).reshape(N, P)
        # And a new row at each of the inputs, with a code noise of its own.
        own = np.eye(N) if self.X is None else CODE_NOISE * np.eye(N)
        cross = covariance - own
        new = cross @ decode[seen].T @ np.linalg.inv(joint[np.ix_(seen, seen)])
        self.new_mean = (new @ (self.Y - B).ravel()[seen])[:, None] @ W + B
        new_spread = np.diag(covariance - new @ decode[seen] @ cross)
        self.new_variance = new_spread[:, None] * np.square(W)
        rows = np.setdiff1d(np.arange(N), HIDDEN)
        if draws is None:
            unit = np.sqrt(len(rows)) * np.eye(len(rows))
            draws = np.concatenate([unit, -unit])
        latents = np.full((len(draws), N), STUCK)
        latents[:, rows] = mean[rows] + draws @ np.linalg.cholesky(spread[np.ix_(rows, rows)]).T
        decoder = network(L, P)
        decoder.set_weights([W, B])
        model = models.BayesianAutoencoder(
            prior, decoder, network(2 * P, L), likelihoods.Gaussian(NOISE)
        )
        count = len(draws)

        def copies(paths: Any, values: Any) -> dict[str, np.ndarray]:
            pairs = zip(paths, values, strict=True)
            return {path: np.repeat(v.numpy()[None, None], count, 1) for path, v in pairs}

        bank = Bank(
            copies(model.sampled.paths, model.sampled.values()),
            copies(model.amortized.paths, model.amortized.values()),
            latents[None, :, None, :, None],
            type(model).__name__,
        )
        self.posterior = Posterior(model, bank, (self.X, self.Y))


@pytest.fixture(scope="module", name="case", params=PRIORS)
def _case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


CLOSE: dict[str, float] = {"rtol": 1e-4, "atol": 1e-4}


def test_rows_are_predicted_from_what_is_observed_of_them(case: Case) -> None:
    """Rows with a hole by their own codes, hidden rows by those of the others."""
    found = case.posterior.predict(num_codes=400)
    np.testing.assert_allclose(found.mean, case.mean, **CLOSE)
    np.testing.assert_allclose(found.epistemic_variance, case.variance, rtol=0.1, atol=1e-4)
    np.testing.assert_allclose(found.noise_variance, NOISE, rtol=1e-5)
    mean, variance = case.posterior.predict_latent()  # without draws of the codes
    np.testing.assert_allclose(mean @ W + B, case.mean, **CLOSE)
    np.testing.assert_allclose(variance @ W**2, case.variance, **CLOSE)


def test_hidden_rows_are_new_rows_at_their_inputs(case: Case) -> None:
    """``predict()`` and ``predict(X)`` agree there, and elsewhere each is what it says."""
    new = case.posterior.predict(X, num_codes=400)
    np.testing.assert_allclose(new.mean, case.new_mean, **CLOSE)
    np.testing.assert_allclose(new.epistemic_variance, case.new_variance, rtol=0.1)
    for one, other in zip(case.posterior.predict(num_codes=400), new, strict=True):
        np.testing.assert_allclose(one[HIDDEN], other[HIDDEN], rtol=1e-5, atol=1e-6)


def test_functions_do_not_see_codes_of_hidden_rows(case: Case) -> None:
    """The latent function, its covariances and its draws."""
    if case.X is None:
        pytest.skip("a prior without inputs has no function")
    mean, variance = case.posterior.predict_f(X)
    full, covariance = case.posterior.predict_f(X, full_cov=True)
    weight = W[0, 0]
    np.testing.assert_allclose(mean[:, 0] * weight + B[0], case.new_mean[:, 0], **CLOSE)
    expected = case.new_variance[:, 0] / weight**2 - CODE_NOISE
    np.testing.assert_allclose(variance[:, 0], expected, **CLOSE)
    np.testing.assert_allclose(full, mean, **CLOSE)
    np.testing.assert_allclose(np.diagonal(covariance[0]), expected, **CLOSE)
    assert np.abs(case.posterior.predict_f_samples(X, 20)).max() < 0.5 * STUCK


def test_covariances_that_no_memory_holds_are_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they are begun: 2 of 60,000 x 60,000 numbers are 57.6 GB."""
    monkeypatch.setattr(memory, "total_memory", lambda: 57e9)
    many = np.linspace(0.0, 1.0, 60_000)[:, None]
    words = "full_cov=True of 60000 points needs.* at least 58 GB, and there are 57 GB"
    with pytest.raises(ValueError, match=words):
        case.posterior.predict_f(many, full_cov=True)
    with pytest.raises(ValueError, match=words):
        case.posterior.predict_f_samples(many)


def test_held_out_cells_are_scored_by_the_density_of_what_predict_says() -> None:
    """Of the rows themselves, by ``(None, Y)``: the closed form, that of new rows by ``(X, Y)``."""
    draws = np.random.default_rng(1).normal(size=(500, N - len(HIDDEN)))
    case = Case("GP", np.concatenate([draws, -draws]))
    hidden = np.where(np.isnan(case.Y), case.truth, np.nan)
    moments = {None: (case.mean, case.variance), 0: (case.new_mean, case.new_variance)}
    found = {}
    for key, (mean, variance) in moments.items():
        at = None if key is None else X
        found[key] = case.posterior.predict_cell_log_density((at, hidden), num_codes=8)
        density = scipy.stats.norm.logpdf(hidden, mean, np.sqrt(variance + NOISE))
        np.testing.assert_allclose(found[key], density, atol=0.1)
    np.testing.assert_allclose(found[None][HIDDEN], found[0][HIDDEN], atol=1e-4)
    assert np.nansum(found[None]) > np.nansum(found[0])
