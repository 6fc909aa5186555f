"""A decoder that sees features of the inputs and multiplies rates by sizes."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import Posterior, decoders, encoders, guides, inference, inputs, likelihoods, models
from gpflow_bae.latent_priors import SparseGP, StandardNormal, TitsiasGP

L, P = 2, 4
NUMBER = 300


def network(num_inputs: int, num_outputs: int, seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def batch_of(X: tf.Tensor) -> tf.Tensor:
    """The batch in column 2 of three, as a pair of zeros and ones."""
    return tf.one_hot(tf.cast(X[..., 2], tf.int32), 2)


def made(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts of sizes in column 1, from two batches in column 2, of which the second has outputs of
    another level.
    """
    rng = np.random.default_rng(0)
    x, size = rng.uniform(0.0, 5.0, number), rng.uniform(0.5, 4.0, number)
    batch = np.arange(number) % 2
    f = 1.0 + np.sin(x[:, None] + np.arange(P)) + 1.5 * batch[:, None] * (np.arange(P) < 2)
    Y = rng.poisson(size[:, None] * np.exp(f))
    return np.stack([x, size, batch], 1), Y.astype(np.float32)


def test_features_and_sizes() -> None:
    """Against the network itself, with codes first; inputs broadcast over draws."""
    inner = network(L + 2, P)
    decoder = decoders.ConditionalDecoder(inner, batch_of, 2, size_column=1)
    assert (decoder.latent_dim, decoder.output_dim) == (L, P)
    X, _ = made(5)
    codes = np.random.default_rng(1).normal(size=(3, 5, L)).astype(np.float32)
    seen = np.concatenate([codes, np.broadcast_to(batch_of(X), (3, 5, 2))], -1)
    expected = inner(seen.reshape(15, L + 2)).numpy().reshape(3, 5, P) + np.log(X[:, 1:2])
    np.testing.assert_allclose(decoder(codes, X), expected, rtol=1e-5)
    only_sizes = decoders.ConditionalDecoder(network(L, P), size_column=1)
    plain = decoders.KerasDecoder(network(L, P))
    np.testing.assert_allclose(
        only_sizes(codes, X) - plain(codes), np.broadcast_to(np.log(X[:, 1:2]), (3, 5, P)), 1e-5
    )


def conditional(prior: object) -> models.VariationalAutoencoder:
    decoder = decoders.ConditionalDecoder(network(L + 2, P), batch_of, 2, size_column=1)
    condition = inputs.Condition(
        lambda X: tf.concat([batch_of(X), tf.cast(X[..., 1:2], tf.float32)], -1), 3
    )
    seen = keras.Input((P + 3,))
    hidden = keras.layers.Dense(20, "tanh")(keras.ops.log1p(seen))
    of_logs = keras.Model(seen, keras.layers.Dense(2 * L)(hidden))
    guide = guides.ConditionalGuide(encoders.GaussianEncoder(of_logs), condition)
    return models.VariationalAutoencoder(
        prior, decoder, guide, likelihoods.Poisson(), num_data=NUMBER
    )


def test_predictions_at_other_sizes_and_batches() -> None:
    """After a fit means grow in proportion to sizes, and batches differ as they were made to."""
    X, Y = made(NUMBER)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    Z = np.stack([np.linspace(0, 5, 12), np.ones(12), np.zeros(12)], 1)
    model = conditional(TitsiasGP(kernel, Z, L))
    gpflow.set_trainable(model.latent_prior.inducing_variable, False)
    settings = inference.VariationalSettings(num_steps=2000, learning_rate=2e-2)
    inference.fit_variational(model, (X, Y), settings, progress=False)
    posterior = Posterior.from_point(model, (X, Y))
    places = np.stack([np.linspace(0.5, 4.5, 9), np.ones(9), np.zeros(9)], 1)
    at_one = posterior.predict(places).mean
    doubled = posterior.predict(places * [1, 2, 1] + 0.0).mean
    np.testing.assert_allclose(doubled, 2.0 * at_one, rtol=1e-4)
    other = np.log(posterior.predict(places + [0, 0, 1]).mean / at_one).mean(0)
    # By exp(1.5) in the first two outputs, which 150 counts of each batch tell to some percent.
    np.testing.assert_allclose(other, [1.5, 1.5, 0.0, 0.0], atol=0.2)
    f = np.exp(1.0 + np.sin(places[:, :1] + np.arange(P)))
    np.testing.assert_allclose(at_one, f, rtol=0.3)


def test_without_a_prior_over_inputs_they_are_needed_all_the_same() -> None:
    model = conditional(StandardNormal(L))
    assert model.needs_inputs
    X, Y = made(10)
    with pytest.raises(ValueError, match="X"):
        Posterior.from_point(model, (None, Y))
    with pytest.raises(ValueError, match="X is needed, got None"):
        model.decoder(np.zeros((5, L), np.float32))


def test_a_chain_under_a_conditional_decoder() -> None:
    """Starts, samples and predicts, in counts."""
    X, Y = made(30)
    decoder = decoders.ConditionalDecoder(network(L + 2, P), batch_of, 2, size_column=1)
    kernel = gpflow.kernels.SquaredExponential(active_dims=[0])
    Z = np.stack([np.linspace(0, 5, 8), np.ones(8), np.zeros(8)], 1)
    prior = SparseGP(kernel, Z, L, 1e-2)
    model = models.BayesianAutoencoder(prior, decoder, network(2 * P, L), likelihoods.Poisson())
    settings = inference.AmortizedSettings(burnin=100, num_samples=5, thinning=10)
    posterior = inference.sample_amortized(model, (X, Y), settings, seed=0, progress=False)
    found = posterior.predict(X)
    assert np.isfinite(found.mean).all() and (found.mean > 0).all()
    assert np.mean(np.square(found.mean - Y)) < np.mean(np.square(Y - Y.mean(0)))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="give both"):
        decoders.ConditionalDecoder(network(3, P), batch_of)
    with pytest.raises(ValueError, match="neither"):
        decoders.ConditionalDecoder(network(3, P))
    with pytest.raises(ValueError, match="none are codes"):
        decoders.ConditionalDecoder(network(2, P), batch_of, 2)
