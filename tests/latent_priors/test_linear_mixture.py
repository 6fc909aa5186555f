"""Mixed latent GPs: the dense model of coregionalisation, its FITC, and independent channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.latent_priors import LinearMixture, SparseGP

N, N_NEW, F, L, TASKS = 9, 4, 2, 3, 2
HUGE = 1e10  # pseudo-noise of a channel that is not observed


class Case(NamedTuple):
    """Kernels, mixing and nugget, and pseudo-observations of two tasks with holes."""

    kernels: list[gpflow.kernels.Kernel]
    W: np.ndarray  # [L, F]
    C: np.ndarray  # [L, L]
    X: np.ndarray
    Xnew: np.ndarray
    mean: np.ndarray  # [TASKS, N, L]
    variance: np.ndarray

    def prior(self, Z: np.ndarray) -> LinearMixture:
        prior = LinearMixture(self.kernels, Z, self.W)
        prior.nugget_root.assign(np.linalg.cholesky(self.C))
        return prior


@pytest.fixture(autouse=True)
def small_jitter() -> Iterator[None]:
    """A jitter far below the tolerances of comparisons with models that have none."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(0)
    root = np.tril(0.4 * rng.normal(size=(L, L))) + 0.3 * np.eye(L)
    mean, variance = rng.normal(size=(TASKS, N, L)), rng.uniform(0.1, 0.5, (TASKS, N, L))
    holes = np.zeros(mean.shape, bool)
    holes[0, 3, 1] = holes[1, :4, 0] = holes[1, 5] = True  # a channel, many of one, a whole row
    return Case(
        [
            gpflow.kernels.Matern32(lengthscales=0.7, variance=1.3),
            gpflow.kernels.SquaredExponential(lengthscales=0.5),
        ],
        rng.normal(size=(L, F)),
        root @ root.T,
        rng.uniform(0.0, 3.0, (N, 1)),
        rng.uniform(0.0, 3.0, (N_NEW, 1)),
        np.where(holes, 0.0, mean),
        np.where(holes, HUGE, variance),
    )


def mixed(
    case: Case, one: np.ndarray, other: np.ndarray, Z: np.ndarray | None = None
) -> np.ndarray:
    """Prior covariance of codes without nugget [N L, N' L]; FITC's for inducing inputs ``Z``."""
    total = 0.0
    for kernel, w in zip(case.kernels, case.W.T, strict=True):
        K = kernel(one, other).numpy()
        if Z is not None:
            Q = kernel(one, Z).numpy() @ np.linalg.solve(
                kernel(Z).numpy(), kernel(Z, other).numpy()
            )
            K = np.where(np.equal(one, other.T), K, Q)
        total = total + np.kron(K, np.outer(w, w))
    return total


def log_density(y: np.ndarray, covariance: np.ndarray) -> float:
    factor = np.linalg.cholesky(covariance)
    half = np.linalg.solve(factor, y)
    log_det = np.log(np.diag(factor)).sum()
    return float(-0.5 * half @ half - log_det - 0.5 * len(y) * np.log(2.0 * np.pi))


@pytest.mark.parametrize("sparse", [False, True], ids=["all points", "five inducing points"])
def test_it_is_the_dense_model_of_coregionalisation(case: Case, sparse: bool) -> None:
    """Evidence and marginals of all channels together, with holes; to 1e-7 (jitter is 1e-10)."""
    Z = np.linspace(0.2, 2.8, 5)[:, None] if sparse else case.X
    prior = case.prior(Z)
    found = prior.condition(case.X[None], case.mean, case.variance)
    predicted = prior.predict(case.Xnew[None], case.X[None], case.mean, case.variance)
    full = prior.predict_full_cov(case.Xnew[None], case.X[None], case.mean, case.variance)
    inducing = Z if sparse else None
    codes = mixed(case, case.X, case.X, inducing) + np.kron(np.eye(N), case.C)
    cross = mixed(case, case.Xnew, case.X, inducing)
    new = mixed(case, case.Xnew, case.Xnew)
    for t in range(TASKS):
        y, covariance = case.mean[t].ravel(), codes + np.diag(case.variance[t].ravel())
        np.testing.assert_allclose(found.log_marginal[t], log_density(y, covariance), atol=1e-7)
        gain = codes @ np.linalg.inv(covariance)
        left = np.diag(codes - gain @ codes)
        np.testing.assert_allclose(found.mean[t].numpy().ravel(), gain @ y, atol=1e-7)
        np.testing.assert_allclose(found.variance[t].numpy().ravel(), left, atol=1e-7)
        gain = cross @ np.linalg.inv(covariance)
        left = (new - gain @ cross.T).reshape(N_NEW, L, N_NEW, L)
        for mean, _ in (predicted, full):
            np.testing.assert_allclose(mean[t].numpy().ravel(), gain @ y, atol=1e-7)
        np.testing.assert_allclose(predicted[1][t], np.einsum("nlnl->nl", left), atol=1e-7)
        np.testing.assert_allclose(full[1][t], np.einsum("nlml->lnm", left), atol=1e-7)


def test_the_density_of_codes_and_their_variance(case: Case) -> None:
    prior = case.prior(case.X)
    codes = mixed(case, case.X, case.X) + np.kron(np.eye(N), case.C)
    latents = np.random.default_rng(1).normal(size=(TASKS, N, L))
    expected = [log_density(latents[t].ravel(), codes) for t in range(TASKS)]
    np.testing.assert_allclose(
        prior.log_prob(case.X, latents), expected, rtol=1e-5
    )  # C is nearly singular
    marginal = prior.marginal_variance(case.X).numpy()
    np.testing.assert_allclose(marginal.ravel(), np.diag(codes), atol=1e-9)
    np.testing.assert_allclose(prior.code_noise, np.diag(case.C), atol=1e-9)


def test_without_mixing_it_is_the_sparse_gp(case: Case) -> None:
    """W = I and a diagonal nugget: channels are independent, and SparseGP has them, to 1e-9."""
    Z, noise = np.linspace(0.2, 2.8, 5)[:, None], 0.3
    mean, variance = case.mean[..., :F], case.variance[..., :F]
    mixture = LinearMixture(case.kernels, Z, np.eye(F), nugget="diagonal", nugget_variance=noise)
    # The parameter's own lower bound is added to what it is given, the jitter to the nugget.
    sparse = SparseGP(case.kernels, Z, F, noise)
    arguments = case.X[None], mean, variance
    for ours, theirs in zip(
        mixture.condition(*arguments), sparse.condition(*arguments), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-8)
    pairs = zip(
        mixture.predict(case.Xnew, *arguments), sparse.predict(case.Xnew, *arguments), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-8)


def test_the_mean_function_is_of_the_channels(case: Case) -> None:
    """Pseudo-observations of its value are what the prior expects: it predicts the function."""
    slope = gpflow.functions.Linear(np.ones((1, L)), np.arange(L, dtype=float))
    prior = LinearMixture(case.kernels, case.X, case.W, mean_function=slope)
    expected = slope(case.X)[None]
    found = prior.condition(case.X[None], expected, np.full((1, N, L), 0.1))
    np.testing.assert_allclose(found.mean, expected, atol=1e-9)
    mean, _ = prior.predict(case.Xnew[None], case.X[None], expected, np.full((1, N, L), 0.1))
    np.testing.assert_allclose(mean[0], slope(case.Xnew), atol=1e-9)


def test_gradients_are_finite_with_a_whole_row_missing(case: Case) -> None:
    prior = case.prior(case.X[::2])
    with tf.GradientTape() as tape:
        evidence = tf.reduce_sum(
            prior.condition(case.X[None], case.mean, case.variance).log_marginal
        )
    for gradient in tape.gradient(evidence, prior.trainable_variables):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()


def test_bad_arguments_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"mixing must be a finite matrix \[L, F\].*shape \(3,\)"):
        LinearMixture(case.kernels, case.X, np.ones(3))
    with pytest.raises(ValueError, match="nugget must be"):
        LinearMixture(case.kernels, case.X, case.W, nugget="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nugget_variance must be positive, got 0"):
        LinearMixture(case.kernels, case.X, case.W, nugget_variance=0.0)
    with pytest.raises(ValueError, match="one for each of the 3"):
        LinearMixture(case.kernels, case.X, np.ones((4, 3)))
    with pytest.raises(NotImplementedError, match="one posterior together"):
        case.prior(case.X).inducing_posterior(case.X, case.mean[0], case.variance[0])
