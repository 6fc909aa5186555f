"""A Gaussian for every parameter: its KL in closed form, and its limit."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, likelihoods, models
from gpflow_bae.data import prepare_data

T, N, P, L = 4, 3, 2, 1
SEED = tf.constant([3, 4])


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    keras.utils.set_random_seed(0)
    yield


def linear(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def vae() -> models.VAE:
    model = models.VAE(linear(L, P), linear(P, 2 * L), likelihoods.Gaussian(0.3), latent_dim=L)
    gpflow.set_trainable(model.likelihood, False)
    return model


def random_data() -> tuple[None, np.ndarray]:
    return None, np.random.default_rng(0).standard_normal((T, N, P))


def test_divergence_is_kl_in_closed_form() -> None:
    """KL[N(m, s^2) || N(0, 1)] = (s^2 + m^2 - 1) / 2 - log s for each weight.

    The prior's half is estimated by draws: bound of four standard errors over 500 of them.
    """
    q = models.MeanFieldParameters(vae(), num_items=T, initial_scale=0.7)
    rng = np.random.default_rng(1)
    for mean, scale in zip(q.means, q.scales, strict=True):
        mean.assign(rng.normal(size=mean.shape))
        scale.assign(rng.uniform(0.2, 1.5, size=scale.shape))
    m = np.concatenate([p.numpy().ravel() for p in q.means])
    s = np.concatenate([p.numpy().ravel() for p in q.scales])
    exact = np.sum(0.5 * (s**2 + m**2 - 1) - np.log(s))
    estimate = tf.function(lambda seed: q.divergence(q.draw(seed)), autograph=False)
    draws = [float(estimate(tf.random.fold_in(SEED, i, alg="philox"))) for i in range(500)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - exact) < 4 * error
    assert error < 0.1 * abs(exact)


def test_no_spread_is_the_model_itself() -> None:
    """With s = 1e-7 the first term is the model's own; tolerance: float32 networks."""
    model = vae()
    q = models.MeanFieldParameters(model, num_items=T, initial_scale=1e-7)
    data = prepare_data(model, random_data())
    batch = data.gather(None)
    terms = q.terms(batch, SEED)
    own = model.terms(batch, tf.unstack(tf.random.split(SEED, alg="philox"))[1])
    np.testing.assert_allclose(
        terms.expected_log_likelihood, own.expected_log_likelihood, rtol=1e-4
    )


def test_a_batch_has_its_share_of_the_divergence() -> None:
    """B of N items carry B/N of the KL, so that N/B of a batch estimates all of it."""
    model = vae()
    q = models.MeanFieldParameters(model, num_items=T)
    data = prepare_data(model, random_data(), 1)
    values = q.draw(tf.unstack(tf.random.split(SEED, alg="philox"))[0])
    for indices, share in ((None, 1.0), (tf.constant([2]), 1 / T)):
        batch = data.gather(indices)
        seeds = tf.unstack(tf.random.split(SEED, alg="philox"))
        inner = model.bind(values).terms(batch, seeds[1]).divergence
        outer = q.terms(batch, SEED).divergence
        np.testing.assert_allclose(outer - inner, share * q.divergence(values), rtol=1e-6)


def test_fit_finds_the_exact_posterior_of_a_bias() -> None:
    """Only the decoder's bias is free and F is the bias: q's optimum is the Gaussian posterior.

    Tolerance: 0.15 posterior standard deviations for the mean, a tenth for the scale, for
    the noise that Adam leaves.
    """
    model = vae()
    kernel, bias = model.sampled.parameters
    kernel.assign(tf.zeros_like(kernel))
    gpflow.set_trainable(kernel, False)
    q = models.MeanFieldParameters(model, num_items=T, initial_scale=0.3)
    data = random_data()
    settings = inference.VariationalSettings(
        num_steps=1000, learning_rate=0.05, final_learning_rate_fraction=0.001
    )
    inference.fit_variational(q, data, settings, progress=False)
    precision = 1.0 + T * N / 0.3
    mean = data[1].reshape(-1, P).sum(0) / 0.3 / precision
    np.testing.assert_allclose(q.means[0].numpy(), mean, atol=0.15 / np.sqrt(precision))
    np.testing.assert_allclose(q.scales[0].numpy(), precision**-0.5, rtol=0.1)
    (draws,) = q.draws(400, seed=0)
    # Four standard errors of a standard deviation from 400 draws: 4 / sqrt(800).
    np.testing.assert_allclose(draws.std(0), q.scales[0].numpy(), rtol=0.14)


def test_bad_scale() -> None:
    with pytest.raises(ValueError, match="initial_scale and num_items must be positive"):
        models.MeanFieldParameters(vae(), num_items=T, initial_scale=0.0)
