"""Chains of the parameters of a model whose codes are integrated out, against quadrature."""

from __future__ import annotations

import dataclasses
import pathlib

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.tracing import compiled

SETTINGS, SAMPLER = inference.amortized_preset("evidence")


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 5.0, (14, 1)), 0)
    Y = np.sin(X) @ np.array([[1.0, -0.5]]) + 0.3 * rng.standard_normal((14, 2))
    Y[3:6, 0] = Y[9] = np.nan
    return X, Y


def model(*, few: bool = True) -> models.LinearSGPVAE:
    """With ``few``, the noise of one output and the lengthscale are all that is sampled."""
    built = models.LinearSGPVAE(
        gpflow.kernels.Matern32(),
        data()[0][::2],
        np.array([[1.0], [-0.5]]),
        likelihoods.Gaussian(0.1),
        nugget_variance=0.01,
    )
    gpflow.set_trainable(built.kernel.variance, False)
    gpflow.set_trainable(built.latent_prior.inducing_variable, False)
    if few:
        gpflow.set_trainable(built.latent_prior.mixing, False)
        gpflow.set_trainable(built.latent_prior.nugget_root, False)
    return built


def test_evidence_without_codes_is_the_bound() -> None:
    """One route takes the codes' posterior and two terms that cancel, the other neither."""
    built, (X, Y) = model(), data()
    batch = prepare_data(built, (X, Y)).gather(None)
    found = built.batch_elbo(batch, tf.constant([0, 1]))
    np.testing.assert_allclose(found, built.elbo((X, Y)), rtol=1e-9)
    Y = np.nan_to_num(Y)  # no holes: no mask
    batch = prepare_data(built, (X, Y)).gather(None)
    np.testing.assert_allclose(
        built.batch_elbo(batch, tf.constant([0, 1])), built.elbo((X, Y)), rtol=1e-9
    )


def test_the_likelihoods_noise_is_sampled_and_nothing_amortised() -> None:
    built = model()
    assert built.sampled.paths == (".latent_prior.kernels[0].lengthscales", ".likelihood.variance")
    assert built.amortized.paths == ()


@pytest.mark.parametrize("name", ["baoab", "hmc"])
def test_samples_follow_the_posterior_of_quadrature(name: str) -> None:
    """Means and standard deviations of the two unconstrained parameters.

    Tolerances: 0.15, three standard errors of four hundred samples.
    """
    built = model()
    sampler = SAMPLER if name == "baoab" else mcmc.hmc.build(0.5, 8)
    settings = dataclasses.replace(SETTINGS, num_samples=400)
    if name == "hmc":
        settings = dataclasses.replace(settings, num_sampler_steps=2, thinning=2)
        settings = dataclasses.replace(settings, coordinates="none", burnin=50)
    posterior = inference.sample_amortized(
        built, data(), settings, sampler=sampler, seed=1, progress=False
    )
    found = np.stack([np.ravel(v) for v in posterior.parameters], 1)
    assert found.shape == (400, 2) and not posterior.encoder and posterior.latents is None

    axes = [np.linspace(m - 6 * s, m + 6 * s, 31) for m, s in zip(*_moments(found), strict=True)]

    @compiled
    def density(values: tf.Tensor) -> tf.Tensor:
        parts = tuple(tf.unstack(values))
        return built.bind(parts).elbo(data()) + built.sampled.log_prior(parts)

    log = np.array([[float(density(tf.constant([a, b]))) for b in axes[1]] for a in axes[0]])
    weights = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    for axis, marginal, samples in zip(
        axes, (weights.sum(1), weights.sum(0)), found.T, strict=True
    ):
        mean = marginal @ axis
        deviation = np.sqrt(marginal @ (axis - mean) ** 2)
        assert abs(samples.mean() - mean) < 0.15 * deviation
        assert abs(samples.std() / deviation - 1.0) < 0.15
    if name == "baoab":
        assert not inference.blocks_off_temperature(posterior)


def _moments(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return samples.mean(0), samples.std(0)


def test_coordinates_are_those_of_the_hessian() -> None:
    """By automatic differentiation; differences of gradients are good for six digits."""
    built = model(few=False)
    algorithm = inference.EvidenceSampling(built, prepare_data(built, data()), SETTINGS, SAMPLER)
    inference.EvidenceStart().run(built, algorithm.data, seed=0, progress=False)
    chain = algorithm.initial_chain(tf.constant([0, 1]))
    values = built.sampled.values()
    sizes = [int(np.prod(v.shape)) for v in values]
    flat = tf.concat([tf.reshape(v, [-1]) for v in values], 0)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(flat)
        with tf.GradientTape() as inner:
            inner.watch(flat)
            parts = [
                tf.reshape(p, v.shape) for p, v in zip(tf.split(flat, sizes), values, strict=True)
            ]
            density = built.bind(parts).batch_elbo(algorithm._batch, tf.constant([0, 0]))
            density += built.sampled.log_prior(parts)
        gradient = inner.gradient(density, flat)
    precision = -outer.jacobian(gradient, flat, experimental_use_pfor=False).numpy()
    assert np.linalg.eigvalsh(precision).min() > 0.1  # it is a mode
    root, inverse = chain.metric
    np.testing.assert_allclose(root @ tf.transpose(root) @ precision, np.eye(len(root)), atol=1e-5)
    np.testing.assert_allclose(root @ inverse, np.eye(len(root)), atol=1e-10)


def test_resumed_is_uninterrupted(tmp_path: pathlib.Path) -> None:
    settings = dataclasses.replace(SETTINGS, burnin=20, num_samples=4)

    def sample(folder: str, **how: object) -> list[np.ndarray]:
        posterior = inference.sample_amortized(
            model(),
            data(),
            settings,
            sampler=SAMPLER,
            num_chains=2,
            out_dir=tmp_path / folder,
            checkpoint_every=1,
            warm_start=None,
            progress=False,
            **how,
        )
        return posterior.parameters

    whole = sample("whole")
    sample("parts", max_samples=2)
    for one, other in zip(sample("parts", resume=True), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    chains = whole[0].reshape(2, 4)
    assert not np.allclose(*chains)  # each from a draw of its own


def test_what_it_cannot_sample_is_refused() -> None:
    tasks = (data()[0], np.stack([data()[1]] * 3))
    settings = dataclasses.replace(SETTINGS, batch_size=2)
    with pytest.raises(ValueError, match="all data in every step, got batch_size=2 of 3"):
        inference.sample_amortized(model(), tasks, settings, sampler=SAMPLER, progress=False)
    many = models.LinearSGPVAE(
        gpflow.kernels.Matern32(), np.zeros((600, 1)), np.ones((2, 1)), likelihoods.Gaussian(0.1)
    )
    with pytest.raises(ValueError, match="at most 500, and 60.* hold the inducing inputs"):
        inference.sample_amortized(many, data(), "evidence", progress=False)
    with pytest.raises(ValueError, match='coordinates="fisher" are not for a LinearSGPVAE'):
        settings = dataclasses.replace(SETTINGS, coordinates="fisher")
        inference.sample_amortized(model(), data(), settings, progress=False)
