"""Vectors of objects pooled from observations, against NumPy; objects never fitted to."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import softmax

from gpflow_bae import Posterior, inference, inputs, likelihoods, models

P, W = 5, 2
_NUM_OUTPUTS = {"attention": W + 1, "gaussian": 2 * W}

tfd = tfp.distributions


def network(width: int = W) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((P,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(width)]
    )


def observed(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Nine observations of objects 0, 2 and 5: [id, view] and outputs."""
    rng = np.random.default_rng(seed)
    X = np.stack([[2, 0, 5, 5, 2, 2, 0, 5, 5], rng.uniform(size=9)], 1).astype(float)
    return X, rng.standard_normal((9, P)).astype(np.float32)


@pytest.mark.parametrize("pooling", ["mean", "sum", "attention"])
def test_vectors_are_pooled(pooling: str) -> None:
    X, Y = observed()
    found = inputs.RepresentationNetwork(network(W + (pooling == "attention")), pooling)
    outputs = found.network.apply_to_rows(Y).numpy()
    expected = np.full((6, W), np.nan)
    for i in (0, 2, 5):
        own = outputs[X[:, 0] == i]
        if pooling == "attention":
            expected[i] = softmax(own[:, -1]) @ own[:, :-1]
        else:
            expected[i] = own.sum(0) if pooling == "sum" else own.mean(0)
    np.testing.assert_allclose(found.vectors(X, Y), expected, rtol=1e-5)
    order = np.random.default_rng(1).permutation(9)
    np.testing.assert_allclose(found.vectors(X[order], Y[order]), expected, rtol=1e-5)
    shown = found.seeing(X[None], Y[None], None)
    new = np.array([[5.0, 0.3], [0.0, 0.4]])
    completed = shown.complete(new).numpy()
    np.testing.assert_allclose(completed, np.concatenate([new[:, 1:], expected[[5, 0]]], 1), 1e-5)


def test_gaussian_vectors_are_products() -> None:
    """Precisions add up, from that of the prior, and the bound has the divergence of the product:
    against NumPy and TFP's closed form.
    """
    X, Y = observed()
    found = inputs.RepresentationNetwork(network(2 * W), "gaussian")
    outputs = found.network.apply_to_rows(Y).numpy()
    mean, std = found.vector_moments(X, Y)
    assert np.isnan(mean[[1, 3, 4]]).all() and np.isnan(std[[1, 3, 4]]).all()
    divergence = 0.0
    for i in (0, 2, 5):
        own = outputs[X[:, 0] == i]
        precisions = np.log1p(np.exp(own[:, W:]))
        total = 1.0 + precisions.sum(0)
        np.testing.assert_allclose(mean[i], (precisions * own[:, :W]).sum(0) / total, rtol=1e-5)
        np.testing.assert_allclose(std[i], total**-0.5, rtol=1e-5)
        q = tfd.Normal(mean[i], std[i])
        prior = tfd.Normal(np.zeros(W), np.ones(W))
        divergence += float(tf.reduce_sum(tfd.kl_divergence(q, prior)))
    shown = found.seeing(X[None], Y[None], None)
    np.testing.assert_allclose(shown.divergence(X[None], 3.0, 3.0), divergence, rtol=1e-5)


def test_gaussian_vectors_are_drawn_by_object() -> None:
    """Draws have the moments; inputs of an object share them, in whatever call; objects of which
    nothing is observed are drawn from the prior.
    """
    X, Y = observed()
    found = inputs.RepresentationNetwork(network(2 * W), "gaussian")
    mean, std = found.vector_moments(X, Y)
    shown = found.seeing(X[None], Y[None], None)
    new = np.array([[5.0, 0.3], [0.0, 0.4], [5.0, 0.1], [1.0, 0.2], [9.0, 0.2]])

    @tf.function(autograph=False)
    def draw(seed: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        return shown.with_seed(seed).complete(X)[:, 1:]

    few = draw(tf.constant([0, 7]), new[:2])
    draws = np.stack([draw(tf.constant([i, 7]), new) for i in range(1000)])
    np.testing.assert_array_equal(few, draws[0, :2])
    np.testing.assert_array_equal(draws[:, 0], draws[:, 2])
    means = np.concatenate([mean[[5, 0, 5]], np.zeros((2, W))])
    stds = np.concatenate([std[[5, 0, 5]], np.ones((2, W))])
    # Four standard errors of a thousand draws.
    np.testing.assert_array_less(np.abs(draws.mean(0) - means), 4.0 * stds / np.sqrt(1000))
    np.testing.assert_array_less(np.abs(draws.std(0) / stds - 1.0), 4.0 / np.sqrt(2000))
    np.testing.assert_allclose(shown.complete(new)[:, 1:], means, rtol=1e-6)


def test_rows_without_any_output_say_nothing() -> None:
    X, Y = observed()
    found = inputs.RepresentationNetwork(network())
    mask = np.ones(Y.shape, bool)
    mask[[2, 3]] = False
    kept = mask.all(1)
    np.testing.assert_allclose(
        found.vectors(X, Y, tf.constant(mask)), found.vectors(X[kept], Y[kept]), rtol=1e-6
    )


def model(pooling: str = "mean") -> models.SVGPVAE:
    own = inputs.RepresentationNetwork(network(_NUM_OUTPUTS.get(pooling, W)), pooling)
    base = gpflow.kernels.SquaredExponential(active_dims=[0]) * gpflow.kernels.SquaredExponential(
        active_dims=[1, 2]
    )
    decoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(P)])
    encoder = keras.Sequential([keras.Input((P,)), keras.layers.Dense(6)])
    Z = np.random.default_rng(2).uniform(-1.0, 1.0, (20, 1 + W))
    kernel = inputs.CompletedInputs(base, own)
    return models.SVGPVAE(kernel, Z, decoder, encoder, likelihoods.Gaussian(0.1), 3)


def objects(numbers: range, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Curves of a view, whose amplitude and offset belong to the object."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.array(numbers), 12)
    amplitude = np.array([np.sin(1.7 * i) for i in ids])[:, None]
    view = rng.uniform(-1.0, 1.0, len(ids))
    phases = np.linspace(0.0, 1.5, P)
    Y = amplitude + np.sin(2.0 * view[:, None] + phases) * (1.5 + amplitude)
    return np.stack([ids, view], 1).astype(float), Y + 0.05 * rng.standard_normal(Y.shape)


def test_objects_that_were_never_fitted_to() -> None:
    """From a few observations of each, better than others' mean curve, and better the more."""
    fitted = model()
    data = objects(range(30), 0)
    settings = inference.VariationalSettings(num_steps=800, learning_rate=1e-2, batch_size=180)
    inference.fit_variational(fitted, data, settings, progress=False)
    X, Y = objects(range(40, 50), 1)
    context = np.tile(np.arange(12) < 6, 10)
    posterior = Posterior.from_point(fitted, data)
    asked = X[~context]
    found = posterior.predict(asked, (X[context], Y[context])).mean
    error = np.mean(np.square(found - Y[~context]))
    mean = np.mean(np.square(Y[~context] - data[1].mean(0)))
    assert error < 0.25 * mean
    mean_of_model, _ = fitted.predict_y(asked, given=(X[context], Y[context]))
    np.testing.assert_allclose(mean_of_model, found, atol=0.1)
    reconstructed = posterior.reconstruct(Y, X).mean
    assert np.mean(np.square(reconstructed - Y)) < error
    draws = fitted.inputs.vectors(X, Y)
    assert np.isnan(draws[:40]).all() and np.isfinite(draws[40:]).all()


def test_less_context_is_less_certain() -> None:
    """Of objects never fitted to: predictions spread the more, and err the more, the fewer
    observations there are of them, down to none.
    """
    fitted = model("gaussian")
    settings = inference.VariationalSettings(num_steps=1500, learning_rate=1e-2, batch_size=180)
    inference.fit_variational(fitted, objects(range(60), 0), settings, progress=False)
    data = objects(range(60, 80), 1)
    posterior = Posterior.from_point(fitted, data)
    view = np.tile(np.arange(12), 20)
    asked = view >= 6
    spread, error = [], []
    for number in (0, 1, 6):
        seen = view < max(number, 1)
        X = data[0].copy()
        # Without context, of other objects: the prior.
        X[asked, 0] += 100 * (number == 0)
        found = posterior.predict(X[asked], (X[seen], data[1][seen]))
        spread.append(float(np.mean(found.epistemic_variance)))
        error.append(float(np.mean(np.square(found.mean - data[1][asked]))))
    assert spread[0] > 2.0 * spread[1] and spread[1] > 4.0 * spread[2]
    assert error[0] > 2.0 * error[1] and error[1] > 4.0 * error[2]


def test_what_cannot_be_is_refused() -> None:
    X, Y = observed()
    one = model()
    posterior = Posterior.from_point(one, (X, Y))
    new = np.array([[1.0, 0.3], [7.0, 0.3]])
    for predict in (
        lambda: posterior.predict(new),
        lambda: one.predict_y(new, given=(X, Y)),
        lambda: posterior.predict(np.array([[0.0, 0.1]]), (X[2:4], Y[2:4])),
    ):
        with pytest.raises(ValueError, match="of which nothing is observed"):
            predict()
    with pytest.raises(ValueError, match="has shown it none"):
        one.kernel(X)
    with pytest.raises(ValueError, match="ids are whole numbers"):
        posterior.predict(np.array([[0.5, 0.3]]))
    with pytest.raises(ValueError, match=r"W \+ 1 outputs"):
        inputs.RepresentationNetwork(network(1), "attention")
    with pytest.raises(ValueError, match="2 W outputs"):
        inputs.RepresentationNetwork(network(3), "gaussian")
    encoder = keras.Sequential([keras.Input((2 * P,)), keras.layers.Dense(3)])
    decoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(P)])
    with pytest.raises(ValueError, match="for variational models"):
        models.GPBAE(one.kernel, decoder, encoder, likelihoods.Gaussian(0.1), 3)
