"""Titsias's approximation: its optimum, its minibatch estimate, and what its bounds bound."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.latent_priors import (
    GP,
    GaussianLatentPrior,
    InducingPosterior,
    LatentProcess,
    SparseGP,
    TitsiasGP,
)
from gpflow_bae.latent_priors.base import expected_log_prob

L = 2
Z = np.array([[-1.5], [-0.2], [0.6], [1.8]])


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.8, variance=1.3)


def _pseudo(num_points: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, means and variances of smooth pseudo-observations."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (1, num_points, 1))
    mean = np.sin(2.0 * X + np.arange(L)) + 0.3 * rng.normal(size=(1, num_points, L))
    return X, mean, rng.uniform(0.05, 0.5, (1, num_points, L))


@pytest.fixture(autouse=True)
def small_jitter() -> Iterator[None]:
    """A jitter far below the tolerances."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


def test_evidence_and_predictions_are_those_of_gpflow_sgpr() -> None:
    """One channel, one noise: the collapsed bound of ``gpflow.models.SGPR`` (Titsias 2009)."""
    X, mean, _ = _pseudo(30)
    model = gpflow.models.SGPR((X[0], mean[0, :, :1]), _kernel(), Z, noise_variance=0.2)
    prior = TitsiasGP(_kernel(), Z, 1)
    variance = np.full((1, 30, 1), 0.2)
    bound = prior.condition(X, mean[..., :1], variance).log_marginal
    np.testing.assert_allclose(bound[0], model.elbo(), rtol=1e-8)
    Xnew = np.linspace(-2.5, 2.5, 7)[:, None]
    expected = model.predict_f(Xnew)
    found = prior.predict(Xnew[None], X, mean[..., :1], variance)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=1e-7)


def test_inducing_inputs_at_the_data_give_the_exact_gp() -> None:
    """Then nothing is approximated: moments and evidence are the exact GP's, to 1e-6."""
    X = np.linspace(-3.0, 3.0, 7)[None, :, None]  # spacing near the lengthscale
    _, mean, variance = _pseudo(7)
    found = TitsiasGP(_kernel(), X[0], L).condition(X, mean, variance)
    exact = GP(_kernel(), L, code_noise_variance=None).condition(X, mean, variance)
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_minibatch_estimates_converge_to_titsias_optimum() -> None:
    """Eq. 9 with b points of N: root mean square error of the mean falls as 1/sqrt(b), bias as 1/b.

    The relative error at b = N is zero; from b = 100 to b = 1600, sixteen times as many, it must
    fall fourfold, up to a factor of 1.5 for the 40 random batches; and the average of the
    estimates, whose noise is sqrt(40) times smaller, must be nearer than a single one.
    """
    N = 6400
    X, mean, variance = _pseudo(N)
    prior = TitsiasGP(_kernel(), Z, L)
    whole = prior.inducing_posterior(X, mean, variance).mean[0].numpy()
    rng = np.random.default_rng(1)
    errors, biases = [], []
    for b in (100, 1600):
        estimates = []
        for _ in range(40):
            rows = rng.choice(N, b, replace=False)
            parts = (v[:, rows] for v in (X, mean, variance))
            estimates.append(prior.inducing_posterior(*parts, point_scale=N / b).mean[0].numpy())
        deviations = np.stack(estimates) - whole
        errors.append(np.sqrt(np.mean(deviations**2)))
        biases.append(np.sqrt(np.mean(np.mean(deviations, 0) ** 2)))
    ratio = errors[0] / errors[1]
    assert 4.0 / 1.5 < ratio < 4.0 * 1.5 * np.sqrt(N / (N - 1600))
    assert biases[0] < 0.5 * errors[0] and biases[1] < 0.5 * errors[1]


def test_batches_share_out_the_bound_where_the_posterior_is_the_full_datas() -> None:
    """With q(u) of all points, Hensman's bounds of a partition average to Titsias's (eq. 10)."""
    X, mean, variance = _pseudo(24)
    prior = TitsiasGP(_kernel(), Z, L)
    inducing = prior.inducing_posterior(X, mean, variance)
    parts = [
        prior.hensman_bound(*(v[:, i::4] for v in (X, mean, variance)), inducing, 4.0).log_marginal
        for i in range(4)
    ]
    whole = prior.condition(X, mean, variance).log_marginal
    np.testing.assert_allclose(np.sum(parts), whole[0], rtol=1e-9)


def test_any_other_posterior_of_the_inducing_outputs_has_a_lower_bound() -> None:
    """Eq. 9 is the maximum of eq. 10, and that is below the exact evidence."""
    X, mean, variance = _pseudo(24)
    prior = TitsiasGP(_kernel(), Z, L)
    best = prior.inducing_posterior(X, mean, variance)
    top = prior.hensman_bound(X, mean, variance, best).log_marginal.numpy()[0]
    rng = np.random.default_rng(2)
    for _ in range(5):
        other = InducingPosterior(
            best.mean + 0.1 * rng.normal(size=best.mean.shape),
            best.factor * np.exp(0.1 * rng.normal()),
            best.log_marginal,
        )
        assert prior.hensman_bound(X, mean, variance, other).log_marginal.numpy()[0] < top
    exact = GP(_kernel(), L, code_noise_variance=None).condition(X, mean, variance)
    assert top < exact.log_marginal.numpy()[0]


@pytest.mark.parametrize("prior", ["gp", "sparse", "sampled", "standard"])
def test_expected_log_prob_is_the_average_over_draws(prior: str) -> None:
    """E[log p(latents)] in closed form against draws: within 4 standard errors of 20000 of them.

    And against the trace formula with a dense precision, which has no such error, for the GPs.
    """
    from gpflow_bae.latent_priors import StandardNormal

    made = {
        "gp": GP(_kernel(), L, 0.3),
        "sparse": SparseGP(_kernel(), Z, L, 0.3),
        "sampled": SparseGP(_kernel(), Z, L, 0.3, inducing_outputs="sampled"),
        "standard": StandardNormal(L),
    }[prior]
    X, mean, variance = _pseudo(9)
    found = expected_log_prob(made, X, mean, variance).numpy()[0]
    noise = np.random.default_rng(3).normal(size=(20_000, 9, L))
    draws = made.log_prob(X, mean + np.sqrt(variance) * noise).numpy()
    error = draws.std() / np.sqrt(len(draws))
    assert abs(found - draws.mean()) < 4.0 * error
    if prior != "standard":
        codes = tf.constant(mean)
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(codes)
            with tf.GradientTape() as inner:
                inner.watch(codes)
                value = tf.reduce_sum(made.log_prob(X, codes))
            gradient = inner.gradient(value, codes)
        hessian = outer.jacobian(gradient, codes).numpy().reshape(9 * L, 9 * L)
        diagonal = np.broadcast_to(made.precision_diagonal(X, mean.shape), mean.shape)
        np.testing.assert_allclose(diagonal.ravel(), -np.diag(hessian), rtol=1e-6)
    # Codes with huge noise around them are left out, but for the density of that noise.
    kept, huge = slice(0, 6), 1e10
    noise = np.zeros((*mean.shape[:-1], 1))
    noise[:, 6:] = huge
    of_some = expected_log_prob(made, X[:, kept], mean[:, kept], variance[:, kept])
    of_some -= 0.5 * 3 * L * np.log(2 * np.pi * huge)
    found = expected_log_prob(made, X, mean, variance, noise)
    np.testing.assert_allclose(found, of_some, rtol=1e-7)


def test_it_has_no_density() -> None:
    """A sampler must not get a bound for a density: the type says that there is none."""
    prior = TitsiasGP(_kernel(), Z, L)
    assert isinstance(prior, LatentProcess) and not isinstance(prior, GaussianLatentPrior)
    assert not hasattr(prior, "log_prob")


def test_draws_of_codes_are_joint() -> None:
    """Their moments are those of q: means and covariances between points of ``predict_full_cov`` at
    the data's inputs, the residuals of different points left out, which are independent given
    inducing outputs. Five standard errors of 4000 draws.
    """
    X, mean, variance = _pseudo(9)
    prior = TitsiasGP(_kernel(), Z, L)
    rows, count = [7, 0, 3], 4000
    draws = prior.draw_codes(X, mean, variance, [1, 2], count, rows).numpy()[:, 0]
    assert draws.shape == (count, 3, L)
    expected, covariance = (v[0].numpy() for v in prior.predict_full_cov(X, X, mean, variance))
    expected, covariance = expected[rows], covariance[:, rows][:, :, rows]
    Kzx, Kzz = _kernel()(Z, X[0, rows]).numpy(), _kernel()(Z).numpy()
    left = _kernel()(X[0, rows]).numpy() - Kzx.T @ np.linalg.solve(Kzz, Kzx)
    covariance = covariance - left + np.diag(np.diag(left))
    for channel in range(L):
        found = np.cov(draws[..., channel].T)
        spread = np.sqrt(np.diag(covariance[channel]))
        error = np.abs(draws[..., channel].mean(0) - expected[:, channel])
        np.testing.assert_array_less(error, 5.0 * spread / np.sqrt(count))
        bound = 5.0 * np.sqrt(2.0) * np.outer(spread, spread) / np.sqrt(count)
        np.testing.assert_array_less(np.abs(found - covariance[channel]), bound)
