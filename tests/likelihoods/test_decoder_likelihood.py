"""A decoder as a GPflow likelihood: decoders that see inputs, and draws that change."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae.decoders import ConditionalDecoder, KerasDecoder
from gpflow_bae.likelihoods import DecoderLikelihood, Poisson


def linear(inputs: int, outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs)])


@pytest.fixture(scope="module")
def of_sizes() -> DecoderLikelihood:
    """Poisson counts at exp(codes times loadings + bias) times the second column of X."""
    return DecoderLikelihood(ConditionalDecoder(linear(2, 3), size_column=1), Poisson(), 400)


def test_sizes_are_seen(of_sizes: DecoderLikelihood) -> None:
    """Densities and moments against SciPy, with a missing count; draws of F in front, too."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=5), rng.uniform(0.5, 3.0, 5)], 1)
    F, Y = rng.normal(size=(4, 5, 2)), rng.poisson(2.0, (5, 3)).astype(float)
    Y[1, 2] = np.nan
    kernel, bias = (w.numpy().astype(float) for w in of_sizes.decoder.decoder.weights)
    rate = X[:, 1:] * np.exp(F @ kernel + bias)
    expected = np.nansum(stats.poisson(rate).logpmf(Y), -1)
    found = of_sizes.log_prob(X, F, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # a float32 network
    np.testing.assert_allclose(of_sizes.conditional_mean(X, F[0]), rate[0], rtol=1e-5)
    mean, variance = of_sizes.predict_mean_and_var(X, F[0], np.full((5, 2), 1e-12))
    np.testing.assert_allclose(mean, rate[0], rtol=1e-4)
    np.testing.assert_allclose(variance, rate[0], rtol=1e-3)
    with pytest.raises(ValueError, match="X is needed"):
        of_sizes.masked_log_prob(F[0], np.nan_to_num(Y), None)


def test_a_gpflow_model_of_counts_takes_it(of_sizes: DecoderLikelihood) -> None:
    """The bound of an SVGP whose q(u) is the prior is the likelihood's expectation there."""
    rng = np.random.default_rng(1)
    X = np.stack([rng.normal(size=6), rng.uniform(0.5, 3.0, 6)], 1)
    Y = rng.poisson(2.0, (6, 3)).astype(float)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    model = gpflow.models.SVGP(kernel, of_sizes, X[:3], num_latent_gps=2)
    expected = of_sizes.variational_expectations(X, np.zeros((6, 2)), np.ones((6, 2)), Y)
    # Whitened, q(u) = p(u): nothing is subtracted.
    np.testing.assert_allclose(model.elbo((X, Y)), np.sum(expected), rtol=1e-6)


def test_a_variable_seed_gives_other_draws() -> None:
    seed = tf.Variable(0)
    one = DecoderLikelihood(KerasDecoder(linear(2, 3)), Poisson(), 3, seed)
    mean, variance, Y = np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 3))
    expected = tf.function(
        lambda: one.variational_expectations(mean, mean, variance, Y), autograph=False
    )
    before = expected().numpy()
    np.testing.assert_array_equal(expected(), before)
    seed.assign_add(1)
    assert (expected().numpy() != before).all()
