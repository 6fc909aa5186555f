"""Channels of several kinds: a product says of its parts' channels what they say alone."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import Posterior, inference, likelihoods, models
from gpflow_bae.latent_priors import (
    GP,
    ProductPrior,
    ProductProcess,
    SparseGP,
    StandardNormal,
    TitsiasGP,
)
from gpflow_bae.latent_priors.base import expected_log_prob

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 3.0, (2, 12, 1))
XNEW = rng.uniform(0.0, 3.0, (2, 5, 1))
Z = np.linspace(0.0, 3.0, 6)[:, None]
MEAN, VARIANCE = rng.normal(size=(2, 12, 5)), rng.uniform(0.1, 1.0, (2, 12, 5))


def kernel(lengthscale: float = 0.7) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(1.3, lengthscale)


PARTS = {
    "gp": lambda: GP(kernel(), 2, 0.1),
    "sparse": lambda: SparseGP([kernel(), kernel(0.3)], Z, 2, 0.1),
    "titsias": lambda: TitsiasGP(kernel(), Z, 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_channels_are_those_of_the_parts(name: str) -> None:
    parts = [PARTS[name](), StandardNormal(3)]
    product = ProductProcess(parts)
    assert product.latent_dim == 5 and product.needs_inputs
    assert product.splits_over_points == parts[0].splits_over_points
    slices = (slice(0, 2), slice(2, 5))
    for method, arguments in (
        ("condition", ((X,), ())),
        ("predict", ((XNEW, X), ())),
        ("predict_full_cov", ((XNEW, X), ())),
        ("condition_batch", ((X,), (1.0,))),
    ):
        before, after = arguments
        found = getattr(product, method)(*before, MEAN, VARIANCE, *after)
        alone = [
            getattr(part, method)(*before, MEAN[..., s], VARIANCE[..., s], *after)
            for part, s in zip(parts, slices, strict=True)
        ]
        channel_axis = -3 if method == "predict_full_cov" else -1
        for number, axis in ((0, -1), (1, channel_axis)):
            expected = np.concatenate([a[number] for a in alone], axis)
            np.testing.assert_allclose(found[number], expected, rtol=1e-12)
        if "condition" in method:
            evidence = sum(a.log_marginal.numpy() for a in alone)
            np.testing.assert_allclose(found.log_marginal, evidence, rtol=1e-12)
    variance = np.broadcast_to(product.marginal_variance(X), MEAN.shape)
    expected = np.concatenate(
        [
            np.broadcast_to(p.marginal_variance(X), MEAN[..., s].shape)
            for p, s in zip(parts, slices, strict=True)
        ],
        -1,
    )
    np.testing.assert_allclose(variance, expected)
    noise = [*np.broadcast_to(parts[0].code_noise, [2]), 0.0, 0.0, 0.0]
    np.testing.assert_allclose(product.code_noise, noise)


@pytest.mark.parametrize("name", ["gp", "sparse"])
def test_the_density_is_the_product(name: str) -> None:
    parts = [PARTS[name](), StandardNormal(3)]
    product = ProductPrior(parts)
    slices = (slice(0, 2), slice(2, 5))

    def of_parts(method: str, *values: np.ndarray) -> np.ndarray:
        return sum(
            getattr(p, method)(X, *(v[..., s] for v in values)).numpy()
            for p, s in zip(parts, slices, strict=True)
        )

    np.testing.assert_allclose(product.log_prob(X, MEAN), of_parts("log_prob", MEAN), rtol=1e-12)
    found = expected_log_prob(product, X, MEAN, VARIANCE)
    expected = sum(
        expected_log_prob(p, X, MEAN[..., s], VARIANCE[..., s]).numpy()
        for p, s in zip(parts, slices, strict=True)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # The covariance gives the same density, and its inverse the precisions.
    covariance = product.code_covariance(X).numpy()
    values = np.swapaxes(MEAN, -1, -2)
    quadratic = np.einsum("tln,tlnm,tlm->t", values, np.linalg.inv(covariance), values)
    _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
    density = -0.5 * (quadratic + log_det.sum(-1))
    np.testing.assert_allclose(product.log_prob(X, MEAN), density, rtol=1e-6)
    if name == "gp":
        precision = np.swapaxes(np.diagonal(np.linalg.inv(covariance), 0, -2, -1), -1, -2)
        found = product.precision_diagonal(X, tf.shape(MEAN))
        np.testing.assert_allclose(found, precision, rtol=1e-6)
        noise = VARIANCE[..., :1]
        total = covariance + tf.linalg.diag(np.swapaxes(noise, -1, -2))
        precision = np.swapaxes(np.diagonal(np.linalg.inv(total), 0, -2, -1), -1, -2)
        found = product.precision_diagonal(X, tf.shape(MEAN), noise)
        np.testing.assert_allclose(found, precision, rtol=1e-6)


def test_sampled_inducing_outputs() -> None:
    """Of a part; the others' codes have their prior."""
    inducing = SparseGP(kernel(), Z, 2, 0.1, inducing_outputs="sampled")
    product = ProductPrior([StandardNormal(1), inducing])
    assert product.whitened_inducing is inducing.whitened_inducing
    mean, variance = product.given_inducing_outputs(X)
    own_mean, own_variance = inducing.given_inducing_outputs(X)
    np.testing.assert_allclose(mean[..., 1:], own_mean)
    np.testing.assert_allclose(variance[..., 1:], np.broadcast_to(own_variance, (2, 12, 2)))
    np.testing.assert_array_equal(mean[..., 0], np.zeros((2, 12)))
    np.testing.assert_array_equal(variance[..., 0], np.ones((2, 12)))


def test_means_are_those_of_the_parts() -> None:
    """And zero where a part has none."""
    trend = gpflow.functions.Linear(np.ones((X.shape[-1], 2)), np.array([1.0, -2.0]))
    product = ProductPrior([StandardNormal(1), SparseGP(kernel(), Z, 2, 0.1, mean_function=trend)])
    found = product.mean(X)
    expected = np.concatenate([np.zeros((*X.shape[:-1], 1)), trend(X)], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def made(number: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Outputs with a smooth part and one of each point alone, on directions of their own."""
    generator = np.random.default_rng(1)
    x = np.sort(generator.uniform(0.0, 6.0, (number, 1)), 0)
    smooth, own = np.sin(2.0 * x), generator.normal(size=(number, 1))
    W = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    Y = smooth * W[:1] * 3.0 + own * W[1:2] * 3.0
    return x, Y + 0.1 * generator.normal(size=Y.shape)


def network(inputs: int, outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


def test_a_fit_finds_which_part_is_whose() -> None:
    """The smooth direction goes to the GP's channel, and the other to the i.i.d. one."""
    x, Y = made()
    keras.utils.set_random_seed(1)
    prior = ProductProcess(
        [TitsiasGP(kernel(), np.linspace(0, 6, 20)[:, None], 1), StandardNormal(1)]
    )
    model = models.VariationalAutoencoder(
        prior, network(2, 8), network(8, 4), likelihoods.Gaussian(0.1), num_data=len(x)
    )
    settings = inference.VariationalSettings(num_steps=1500, learning_rate=2e-2)
    inference.fit_variational(model, (x, Y), settings, progress=False)
    codes = model.posterior(x, Y).mean.numpy()
    smooth = np.sin(2.0 * x[:, 0])
    assert abs(np.corrcoef(codes[:, 0], smooth)[0, 1]) > 0.98
    assert abs(np.corrcoef(codes[:, 1], smooth)[0, 1]) < 0.2
    # Where nothing is observed the smooth part is known, and the other is not.
    found = Posterior.from_point(model, (x[::2], Y[::2])).predict_f(x[1::2])
    assert abs(np.corrcoef(np.squeeze(found[0])[:, 0], smooth[1::2])[0, 1]) > 0.98
    np.testing.assert_allclose(np.squeeze(found[1])[:, 1], 1.0, rtol=1e-6)


def test_a_chain_samples_both_kinds() -> None:
    x, Y = made(40)
    keras.utils.set_random_seed(1)
    prior = ProductPrior([GP(kernel(), 1, 1e-2), StandardNormal(1)])
    model = models.BayesianAutoencoder(
        prior, network(2, 8), network(16, 2), likelihoods.Gaussian(0.1)
    )
    settings = inference.AmortizedSettings(burnin=200, num_samples=10, thinning=10)
    posterior = inference.sample_amortized(model, (x, Y), settings, seed=0, progress=False)
    mean = posterior.predict().mean
    assert np.mean(np.square(mean - Y)) < 0.2 * np.var(Y)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(
        TypeError, match="parts must be a sequence, each entry a gpflow_bae LatentProcess"
    ):
        ProductProcess([kernel()])
    with pytest.raises(ValueError, match="no process"):
        ProductProcess([])
    with pytest.raises(TypeError, match="no density"):
        ProductPrior([TitsiasGP(kernel(), Z, 2), StandardNormal(1)])
    sampled: Any = [SparseGP(kernel(), Z, 1, 0.1, inducing_outputs="sampled") for _ in range(2)]
    with pytest.raises(ValueError, match="sampled inducing outputs"):
        ProductPrior(sampled)


def test_draws_of_codes_are_those_of_the_parts() -> None:
    """Of channels without inputs from marginals, in which the moments of ``condition`` are; five
    standard errors.
    """
    product = ProductProcess([TitsiasGP(kernel(), Z, 2), StandardNormal(3)])
    count = 4000
    draws = product.draw_codes(X, MEAN, VARIANCE, [3, 4], count, [2, 5]).numpy()
    q = product.condition(X, MEAN, VARIANCE)
    mean, spread = q.mean.numpy()[:, [2, 5]], np.sqrt(q.variance.numpy()[:, [2, 5]])
    assert draws.shape == (count, 2, 2, 5)
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5.0 * spread / np.sqrt(count))
    np.testing.assert_allclose(draws.std(0) / spread, 1.0, atol=5.0 / np.sqrt(2.0 * count))
    parts = draws[:, 0, 0, 2:]  # of a point, apart
    correlation = np.corrcoef(parts.T)
    np.testing.assert_allclose(correlation, np.eye(3), atol=5.0 / np.sqrt(count))
