"""L-BFGS on bounds without draws."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_bae
from gpflow_bae import inference, likelihoods, models

P = 3


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 5.0, (40, 1)), 0)
    Y = np.sin(X) @ rng.standard_normal((1, P)) + 0.1 * rng.standard_normal((40, P))
    Y[10:16, 0] = np.nan
    return X, Y


def model(scale: float = 1.0) -> models.LinearSGPVAE:
    built = models.LinearSGPVAE(
        gpflow.kernels.Matern52(),
        np.linspace(0.0, 5.0, 15)[:, None],
        scale * np.ones((P, 1)),
        likelihoods.Gaussian(np.full(P, 0.1)),
    )
    gpflow.set_trainable(built.kernel.variance, False)
    gpflow.set_trainable(built.latent_prior.inducing_variable, False)
    return built


def test_fit_ends_where_the_evidence_is_level(capsys: pytest.CaptureFixture[str]) -> None:
    """Gradients by all parameters are small there, and there are no more steps than needed."""
    X, Y = data()
    posterior = gpflow_bae.fit(model(), (X, Y))
    fitted = posterior.model
    with tf.GradientTape() as tape:
        loss = -fitted.elbo((X, Y)) / len(X)
    np.testing.assert_allclose(posterior.warm_start_losses[-1], loss, rtol=1e-6)
    for gradient in tape.gradient(loss, fitted.trainable_variables):
        assert np.abs(tf.convert_to_tensor(gradient).numpy()).max() < 1e-2
    assert np.all(np.diff(posterior.warm_start_losses) < 1e-9)
    assert f"evidence: {len(posterior.warm_start_losses)} steps" in capsys.readouterr().err


def test_predictions_of_model_and_posterior_are_equal() -> None:
    """Without draws both are exact; at new inputs too, nugget and noise included."""
    X, Y = data()
    fitted = model()
    inference.maximise_evidence(fitted, (X, Y), num_steps=5)
    posterior = gpflow_bae.Posterior.from_point(fitted, (X, Y))
    for Xnew in (None, np.array([[2.2], [5.5]])):
        mean, variance = fitted.predict_y(Xnew, given=(X, Y))
        found = posterior.predict(Xnew)
        np.testing.assert_allclose(mean, found.mean, rtol=1e-9)
        np.testing.assert_allclose(variance, found.variance, rtol=1e-9)


def test_what_it_cannot_fit_is_refused() -> None:
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(P)])
    encoder = keras.Sequential([keras.Input((P,)), keras.layers.Dense(4)])
    vae = models.VAE(network, encoder, likelihoods.Gaussian(0.1), latent_dim=2)
    with pytest.raises(TypeError, match="decoder is gpflow_bae.decoders.Identity.*got VAE"):
        inference.maximise_evidence(vae, (None, data()[1]))
    with pytest.raises(FloatingPointError, match="where the fit starts: look at the starts of"):
        inference.maximise_evidence(model(scale=1e200), data())
