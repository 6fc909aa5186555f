"""TemperedAutoencoder as a step of a scikit-learn pipeline, and its model's checks."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import sklearn.base
import sklearn.linear_model
import sklearn.pipeline
import sklearn.preprocessing

from gpflow_bae import models
from gpflow_bae.estimators import TemperedAutoencoder

P, L = 4, 2
SETTINGS = {"num_samples": 20, "num_replicas": 2, "thinning": 5}


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    dense = keras.layers.Dense(num_outputs, activation="sigmoid")
    return keras.Sequential([keras.Input((num_inputs,)), dense])


def model(**arguments: object) -> TemperedAutoencoder:
    defaults = {"settings": SETTINGS, "progress": False}
    return TemperedAutoencoder(network(P, L), network(L, P), **(defaults | arguments))


def rows() -> np.ndarray:
    return np.random.default_rng(0).random((12, P))


def test_codes_and_rows_have_the_shapes_of_samples() -> None:
    fitted = model().fit(rows())
    codes = fitted.transform(rows())
    assert codes.shape == (4, 12, L)  # 2 replicas of 2 samples
    assert fitted.inverse_transform(codes).shape == (12, P)
    assert fitted.inverse_transform(codes.mean(0)).shape == (12, P)
    # Averaging reconstructions is decoding each sample's own codes.
    prediction = fitted.posterior_.reconstruct(rows())
    np.testing.assert_allclose(fitted.inverse_transform(codes), prediction.mean, atol=1e-6)
    assert np.all(prediction.noise_variance > 0) and np.all(prediction.epistemic_variance >= 0)


def test_in_a_pipeline() -> None:
    steps = sklearn.pipeline.make_pipeline(
        sklearn.preprocessing.MinMaxScaler(),
        model(codes="mean"),
        sklearn.linear_model.LogisticRegression(),
    )
    labels = np.arange(12) % 2
    predicted = steps.fit(rows(), labels).predict(rows())
    assert predicted.shape == (12,)
    again = sklearn.base.clone(steps).fit(rows(), labels).predict(rows())
    np.testing.assert_array_equal(predicted, again)


def test_parameters_are_those_of_the_constructor() -> None:
    first = model(noise_variance=0.3)
    assert first.get_params()["noise_variance"] == 0.3
    first.set_params(noise_variance=0.4)
    np.testing.assert_allclose(first.model.likelihood.variance, 0.4)
    with pytest.raises(ValueError, match="no parameter"):
        first.set_params(noise=1.0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="encoder returns 2 codes per row and decoder takes 3"):
        models.TemperedBAE(network(P, 2), network(3, P))
    with pytest.raises(ValueError, match="an autoencoder's must be equal"):
        models.TemperedBAE(network(P, 2), network(2, 5))
    with pytest.raises(ValueError, match='codes must be "samples" or "mean"'):
        model(codes="median")
    with pytest.raises(RuntimeError, match="call fit"):
        model().transform(rows())
    fitted = model().fit(rows())
    with pytest.raises(ValueError, match=r"Y must have shape \[N, 4\]"):
        fitted.transform(rows()[:, :3])
    with pytest.raises(ValueError, match="infinity"):
        fitted.transform(np.full((2, P), np.inf))
    with pytest.raises(ValueError, match="codes must have shape"):
        fitted.inverse_transform(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="need 4 samples, got 3"):
        fitted.inverse_transform(np.zeros((3, 12, L)))
