"""Models under the Markovian prior are those under the dense one."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import tensorflow as tf

from gpflow_bae import likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.latent_priors import GP, MarkovGP

KERNEL = gpflow.kernels.Matern32(lengthscales=0.7)
N, P, L = 16, 3, 2


def _data() -> tuple[np.ndarray, np.ndarray]:
    """One task with holes, at irregular times out of order."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 5.0, (N, 1))
    Y = np.sin(X + np.arange(P)) + 0.1 * rng.normal(size=(N, P))
    Y[rng.random((N, P)) < 0.1] = np.nan
    return X, Y


def _dense(inputs: int, outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


def _model(kind: type, prior: type) -> models.Autoencoder:
    keras.utils.set_random_seed(0)
    inputs, codes = (P, 2 * L) if kind is models.VariationalAutoencoder else (2 * P, L)
    latent_prior = prior(KERNEL, L, 1e-2)
    return kind(latent_prior, _dense(L, P), _dense(inputs, codes), likelihoods.Gaussian(0.1))


def test_bounds_and_densities_are_equal() -> None:
    """With their gradients by everything that is fitted or sampled."""
    found = []
    for prior in (GP, MarkovGP):
        fitted = _model(models.VariationalAutoencoder, prior)
        sampled = _model(models.BayesianAutoencoder, prior)
        batch = prepare_data(fitted, _data()).gather(None)
        codes = tf.constant(np.random.default_rng(1).normal(size=(1, N, L)))

        values, variables = sampled.sampled.values(), fitted.trainable_variables
        with tf.GradientTape() as tape:
            tape.watch([*values, codes])
            terms = fitted.terms(batch, tf.constant([0, 1]))
            divergence = tf.reduce_sum(terms.divergence)
            bound = tf.reduce_sum(terms.expected_log_likelihood) - divergence
            density = sampled.log_likelihood(models.State(tuple(values), codes), batch)
        gradients = tape.gradient([bound, density], [*variables, *values, codes])
        found.append([v.numpy() for v in (*gradients, bound, density) if v is not None])
    for dense, markov in zip(*found, strict=True):
        # Networks are float32.
        np.testing.assert_allclose(markov, dense, rtol=2e-5, atol=2e-5 * np.abs(dense).max())


def test_it_compiles() -> None:
    """By XLA, as rounds are on a GPU."""
    X, codes = np.linspace(0.0, 1.0, 8)[:, None], np.ones((8, L))
    prior = MarkovGP(KERNEL, L)
    compiled = tf.function(prior.log_prob, jit_compile=True)
    np.testing.assert_allclose(compiled(X, codes), prior.log_prob(X, codes), rtol=1e-10)
