"""Free sites moved by natural gradients: exact where the model is linear, stationary elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, guides, latent_priors, likelihoods, models
from gpflow_bae.base import Batch
from tests.models.site_models import (
    NOISE,
    SEED,
    TASKS,
    Data,
    L,
    Linear,
    N,
    batch_of,
    built,
    kernels,
    made_data,
    mixture,
    nonlinear,
)


@pytest.fixture(scope="module")
def data() -> Data:
    return made_data()


def updates(model: models.VariationalAutoencoder, batch: Batch) -> Callable[[int, float], None]:
    """Compiled natural gradient steps; one trace serves all step sizes."""
    step = tf.function(lambda rho: model.update_sites(batch, SEED, rho))

    def run(count: int, rho: float) -> None:
        for _ in range(count):
            step(tf.constant(rho, tf.float64))
        assert step.experimental_get_tracing_count() == 1

    return run


def of_the_model(model: models.VariationalAutoencoder, data: Data) -> np.ndarray:
    """Observations with the holes of ``data``, of codes that the prior may have drawn."""
    rng = np.random.default_rng(5)
    codes = []
    for X in data[0]:
        root = np.linalg.cholesky(code_covariance(model.latent_prior, X))
        codes.append((root @ rng.standard_normal(N * L)).reshape(N, L))
    outputs = model.decode(None, tf.constant(np.stack(codes))).numpy()
    drawn = outputs + np.sqrt(NOISE) * rng.standard_normal(outputs.shape)
    return np.where(np.isfinite(data[1]), drawn, np.nan).astype(np.float32)


def code_covariance(prior: Any, X: np.ndarray) -> np.ndarray:
    """Prior covariance [N L, N L] of the codes of a task whose points are the inducing points."""
    if isinstance(prior, latent_priors.StandardNormal):
        return np.eye(N)
    if isinstance(prior, latent_priors.LinearMixture):
        total = np.kron(np.eye(N), prior.nugget)
        for kernel, w in zip(prior.kernels, prior.mixing.numpy().T, strict=True):
            total += np.kron(kernel(X).numpy(), np.outer(w, w))
        return total
    noise = prior.code_noise.numpy() + (
        gpflow.default_jitter() if isinstance(prior, latent_priors.GP) else 0.0
    )
    return prior.kernels[0](X).numpy() + noise * np.eye(N)


def dense(prior: Any, decoder: Linear, X: np.ndarray, Y: np.ndarray) -> tuple[Any, Any, float]:
    """Codes given a task [N, P] by one matrix of all that is observed; and the evidence."""
    size = decoder.latent_dim
    seen = np.isfinite(Y.ravel())
    A = np.kron(np.eye(N), decoder.W.T)[seen]
    K = code_covariance(prior, X)
    residual = (Y - decoder.bias).ravel()[seen]
    S = A @ K @ A.T + np.diag(np.tile(NOISE, N)[seen])
    gain = K @ A.T @ np.linalg.inv(S)
    left = (K - gain @ A @ K).reshape(N, size, N, size)
    evidence = residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(2 * np.pi * S)[1]
    return (gain @ residual).reshape(N, size), np.einsum("nlnk->nlk", left), -0.5 * evidence


def exact_priors(X: np.ndarray) -> dict[str, Any]:
    kernel = kernels(1)[0]
    return {
        "mixture": mixture(X),
        "one channel of a mixture": mixture(X, 1),
        "GP": latent_priors.GP(kernel, 1, 0.2),
        "MarkovGP": latent_priors.MarkovGP(kernel, 1, 0.2),
        "SparseGP": latent_priors.SparseGP(kernel, X, 1, 0.2),
        "StandardNormal": latent_priors.StandardNormal(1),
    }


@pytest.fixture
def small_jitter() -> Any:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-11)):
        yield


@pytest.mark.parametrize("kind", exact_priors(np.linspace(0.0, 1.0, N)[:, None]))
def test_one_step_of_a_linear_model_is_exact(kind: str, data: Data, small_jitter: None) -> None:
    """Posterior and evidence by dense matrices, with holes, from any start; to 1e-7."""
    X, Y = data[0][:1], data[1]
    prior = exact_priors(X[0])[kind]
    decoder = Linear(prior.latent_dim)
    model = built(prior, decoder, full=isinstance(prior, latent_priors.LinearMixture))
    batch = batch_of((X, Y))
    for encoder_value in model.guide.sites:  # whatever was there before
        start = np.random.default_rng(4).uniform(0.5, 1.0, encoder_value.shape)
        encoder_value.assign(start)
    model.update_sites(batch, SEED, 1.0)
    q = model.approximate_posterior(batch)
    covariance = getattr(q, "covariance", None)
    covariance = tf.linalg.diag(q.variance) if covariance is None else covariance
    expected_log_prob, evidence = 0.0, 0.0
    for t in range(TASKS):
        mean, spread, log_marginal = dense(prior, decoder, X[0], Y[t])
        np.testing.assert_allclose(q.mean[t], mean, atol=1e-7)
        np.testing.assert_allclose(covariance[t], spread, atol=1e-7)
        outputs = mean @ decoder.W + decoder.bias
        variance = np.einsum("lp,nlk,kp->np", decoder.W, spread, decoder.W)
        cells = np.square(Y[t] - outputs) + variance
        expected_log_prob += np.nansum(-0.5 * (np.log(2 * np.pi * NOISE) + cells / NOISE))
        evidence += log_marginal
    np.testing.assert_allclose(expected_log_prob - q.divergence, evidence, atol=1e-6)


def test_a_row_without_observations_has_a_site_that_says_nothing(data: Data) -> None:
    model = built(mixture(data[0][0]), nonlinear())
    for _ in range(3):
        model.update_sites(batch_of(data), SEED, 0.7)
    linear, precision = model.encoder.natural_parameters()
    np.testing.assert_allclose(precision[0, 2], 1e-10 * np.eye(L), atol=1e-12)
    np.testing.assert_allclose(linear[0, 2], 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(precision[0, 1]).max() > 1.0  # others say something
    # What is under the mask is not looked at.
    other = batch_of(data)
    other = other._replace(Y=tf.where(other.mask, other.Y, 7.0))
    again = built(mixture(data[0][0]), nonlinear())
    again.update_sites(other, SEED, 0.7)
    first = built(mixture(data[0][0]), nonlinear())
    first.update_sites(batch_of(data), SEED, 0.7)
    np.testing.assert_array_equal(again.encoder.target, first.encoder.target)


def test_a_step_is_the_natural_gradient(data: Data) -> None:
    """By automatic derivatives of the whole network, averaged over the same points."""
    model = built(mixture(data[0][0]), nonlinear(), likelihoods.Bernoulli())
    batch = batch_of((data[0], np.where(np.isnan(data[1]), np.nan, data[1] > 0.0)))
    for _ in range(2):
        model.update_sites(batch, SEED, 0.5)
    q = model.approximate_posterior(batch)
    before = [v.numpy() for v in model.encoder.natural_parameters()]
    model.update_sites(batch, SEED, 0.3)
    after = [v.numpy() for v in model.encoder.natural_parameters()]
    gradient, curvature = np.zeros((TASKS, N, L)), np.zeros((TASKS, N, L, L))
    root = np.linalg.cholesky(q.covariance)
    for axis in range(L):
        for sign in (1.0, -1.0):
            codes = tf.constant(q.mean + sign * np.sqrt(L) * root[..., axis])
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(codes)
                F = tf.cast(model.decode(None, codes), tf.float64)
                each = tf.unstack(F, axis=-1)
            J = np.stack([tape.gradient(f, codes) for f in each], -2)
            p = tf.sigmoid(F).numpy()
            seen = batch.mask.numpy()
            gradient += np.einsum("tnp,tnpl->tnl", seen * (batch.Y - p), J) / (2 * L)
            curvature += np.einsum("tnp,tnpl,tnpk->tnlk", seen * p * (1 - p), J, J) / (2 * L)
    linear = gradient + np.einsum("tnlk,tnk->tnl", curvature, q.mean)
    np.testing.assert_allclose(after[0], 0.7 * before[0] + 0.3 * linear, atol=1e-6)
    np.testing.assert_allclose(after[1], 0.7 * before[1] + 0.3 * curvature, atol=1e-6)


def test_at_the_fixed_point_the_bound_is_stationary_and_highest(data: Data) -> None:
    """In the means of q, by cubature; and above what Adam finds for sites of channels."""
    model = built(mixture(data[0][0]), nonlinear())
    root = model.latent_prior.nugget_root
    root.assign(0.5 * root.numpy())
    data = data[0], of_the_model(model, data)
    gpflow.set_trainable(model.latent_prior, False)
    gpflow.set_trainable(model.decoder, False)
    gpflow.set_trainable(model.likelihood, False)
    batch = batch_of(data)
    run = updates(model, batch)
    run(100, 0.2)
    before = model.encoder.natural_parameters()[1]
    run(1, 0.2)
    np.testing.assert_allclose(model.encoder.natural_parameters()[1], before, atol=1e-4)
    # d bound / d mean = E[gradient of log p(y | z)] - E_prior's pull: the sites' own at the mean.
    q = model.approximate_posterior(batch)
    latents = q.draws(model.guide._standard_points(q, SEED))
    with tf.GradientTape() as tape:
        shift = tf.zeros_like(q.mean)
        tape.watch(shift)
        rows = model.log_prob_of_draws(batch.X, latents + shift, batch.Y, batch.mask)
        expected = tf.reduce_sum(tf.reduce_mean(rows, 0))
    linear, precision = model.encoder.natural_parameters()
    pull = linear - tf.linalg.matvec(precision, q.mean)
    np.testing.assert_allclose(tape.gradient(expected, shift), pull, atol=1e-4)

    free = encoders.FreeFormEncoder(TASKS, N, L, initial_variance=1.0)
    diagonal = models.VariationalAutoencoder(
        model.latent_prior, model.decoder, free, model.likelihood
    )
    loss = diagonal.training_loss_closure(data)
    adam = keras.optimizers.Adam(0.1)
    variables = [free.mean.unconstrained_variable, free.log_scale.unconstrained_variable]

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        adam.apply(tape.gradient(value, variables), variables)

    adam.build(variables)
    for _ in range(200):
        step()
    assert model.elbo(data, num_draws=400) > diagonal.elbo(data, num_draws=400) + 0.5


def test_draws_stand_in_for_cubature(data: Data) -> None:
    """Of a linear decoder both are exact; of another they agree as draws become many."""
    batch = batch_of(data)
    for decoder, count, tolerance in ((Linear(L), 2, 1e-9), (nonlinear(), 200, 0.15)):
        found = []
        for num_draws in (None, count):
            encoder = encoders.SiteEncoder(TASKS, N, L)
            guide = guides.SiteGuide(encoder, num_draws)
            prior, likelihood = mixture(data[0][0]), likelihoods.Gaussian(NOISE)
            prior.nugget_root.assign(0.2 * prior.nugget_root.numpy())
            model = models.VariationalAutoencoder(prior, decoder, guide, likelihood)
            encoder.root.assign(np.broadcast_to(3.0 * np.eye(L), (TASKS, N, L, L)))
            model.update_sites(batch, SEED, 1.0)
            found.append(encoder.natural_parameters()[1].numpy())
        np.testing.assert_allclose(found[1], found[0], rtol=tolerance, atol=tolerance)
