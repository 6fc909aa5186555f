"""A table of numbers, zeros and ones, and counts: fitted, sampled, predicted, saved, served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import tensorflow as tf

import gpflow_bae
from gpflow_bae import encoders, inference, models, serving
from gpflow_bae.data import StreamedObservations, prepare_data
from gpflow_bae.likelihoods import Bernoulli, ByColumn, Gaussian
from gpflow_bae.posteriors import GPLVMPosterior

N, P, L = 300, 6, 2


def kinds(**columns: list[int]) -> ByColumn:
    columns = {"numbers": [0, 3], "binary": [1, 2], "counts": [4, 5]} | columns
    parts = [Gaussian(0.1), Bernoulli(), gpflow.likelihoods.Poisson()]
    return ByColumn(list(zip(parts, columns.values(), strict=True)))


def network(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def vae(likelihood: Any = None) -> models.VAE:
    encoder = encoders.partial_encoder("zeros", P, L)
    return models.VAE(network(L, P), encoder, likelihood or kinds(), L)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    """Linear functions of two codes, observed in the scale of each column; a mask of a fifth."""
    rng = np.random.default_rng(0)
    F = 1.5 * rng.normal(size=(N, L)) @ np.array([[1, 1, -2, 0, 1, 0.5], [0, 1, 1, -1, 0.5, -0.5]])
    Y = F + 0.1 * rng.normal(size=F.shape)
    Y[:, [1, 2]] = rng.random((N, 2)) < scipy.special.expit(2.0 * F[:, [1, 2]])
    Y[:, [4, 5]] = rng.poisson(np.exp(0.5 * F[:, [4, 5]]))
    return Y, rng.random(Y.shape) < 0.2


@pytest.fixture(scope="module")
def posterior(table: tuple[np.ndarray, np.ndarray]) -> Any:
    Y, hidden = table
    keras.utils.set_random_seed(0)
    model, data = vae(), (None, np.where(hidden, np.nan, Y))
    settings = inference.VariationalSettings(num_steps=600, learning_rate=2e-2)
    inference.fit_variational(model, data, settings, seed=0, progress=False)
    return gpflow_bae.Posterior.from_point(model, data)


def test_hidden_cells_of_every_kind_are_predicted(posterior: Any, table: Any) -> None:
    """With less squared error than by the average of their column, and means in the support."""
    Y, hidden = table
    mean = posterior.predict().mean
    for p in range(P):
        held = Y[hidden[:, p], p]
        error = np.mean(np.square(mean[hidden[:, p], p] - held))
        assert error < 0.9 * np.mean(np.square(Y[~hidden[:, p], p].mean() - held))
    assert 0.0 < mean[:, [1, 2]].min() and mean[:, [1, 2]].max() < 1.0
    assert mean[:, [4, 5]].min() > 0.0


def test_a_file_gives_the_same_predictions_for_the_same_columns(
    posterior: Any, tmp_path: Path
) -> None:
    path = tmp_path / "posterior.npz"
    posterior.save(path)
    again = gpflow_bae.Posterior.load(path, vae())
    for one, other in zip(posterior.predict(), again.predict(), strict=True):
        np.testing.assert_array_equal(one, other)
    moved = vae(kinds(binary=[1, 4], counts=[2, 5]))
    with pytest.raises(ValueError, match=r"has 4 at .likelihood.columns\[1\]\[1\], .*with 2"):
        gpflow_bae.Posterior.load(path, moved)


def test_an_export_decodes_to_the_moments_of_each_kind(posterior: Any, tmp_path: Path) -> None:
    """A SavedModel against the model's decoder and NumPy; its card says which columns are what."""
    export = serving.export(posterior, tmp_path, verbose=False)
    latents = np.random.default_rng(1).normal(size=(5, L)).astype(np.float32)
    served = tf.saved_model.load(str(export.path)).signatures
    found = served["decode"](latents=tf.constant(latents))
    F = posterior.model.decoder(latents[None])[0].numpy()
    odds, rate = scipy.special.expit(F[:, [1, 2]]), np.exp(F[:, [4, 5]])
    mean, noise = F.copy(), np.full_like(F, posterior.model.likelihood.parts[0].variance)
    mean[:, [1, 2]], noise[:, [1, 2]] = odds, odds * (1.0 - odds)
    mean[:, [4, 5]] = noise[:, [4, 5]] = rate
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["noise_std"], np.sqrt(noise), rtol=1e-5)
    y = np.array([[0.3, 1, 0, -1, 2, 1]], np.float32)
    expected = export.served.answer("reconstruct", 0, y=y)
    for name, value in served["reconstruct"](y=tf.constant(y)).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, err_msg=name)
    card = json.loads((tmp_path / "model_card.json").read_text())
    assert card["likelihood"] == (
        "Gaussian of columns [0, 3], Bernoulli of columns [1, 2], Poisson of columns [4, 5]"
    )


def test_a_sampled_model_takes_it(table: Any) -> None:
    """Its noise has a prior and is drawn, and its means follow the observations of every kind."""
    keras.utils.set_random_seed(0)
    model = models.BAE(network(L, P), network(2 * P, L), kinds(), L)
    settings = inference.AmortizedSettings(burnin=500, num_samples=5, thinning=50)
    posterior = inference.sample_amortized(
        model, (None, table[0]), settings, seed=0, progress=False
    )
    assert np.std(posterior.chains()[".likelihood.parts[0].variance"]) > 0.0
    mean = posterior.predict().mean
    for p in range(P):
        assert np.corrcoef(mean[:, p], table[0][:, p])[0, 1] > 0.3


def test_a_stream_and_a_sparse_table_are_checked_by_columns(table: Any) -> None:
    """A number below zero is wrong in a column of counts, and right in one of numbers."""
    Y = table[0].astype(np.float32)
    wrong = Y.copy()
    wrong[7, 4] = -1.0

    def stream(rows: np.ndarray, **known: int) -> StreamedObservations:
        dataset = tf.data.Dataset.from_tensor_slices(rows)
        return StreamedObservations.from_dataset(dataset, shuffle_buffer=0, **known)

    model = vae()
    stream(Y).check(model, 100)
    with pytest.raises(ValueError, match=r"holds -1 \(first at \[0, 4\].*Poisson is one of counts"):
        stream(wrong).check(model, 100)
    seed = (0, 0)
    stream(Y, num_points=N).reader(100, 3, seed, model).read(0)
    with pytest.raises(ValueError, match=r"holds -1 \(first at \[0, 4\]"):
        stream(wrong, num_points=N).reader(100, 3, seed, model).read(0)
    prepare_data(model, (None, scipy.sparse.csr_matrix(Y)))
    with pytest.raises(ValueError, match=r"Y holds -1 .*1 in all\).*Poisson"):
        prepare_data(model, (None, scipy.sparse.csr_matrix(wrong)))


def test_a_decoder_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="ByColumn is of 6 columns, and the decoder has 5 output"):
        models.VAE(network(L, 5), encoders.partial_encoder("zeros", 5, L), kinds(), L)


def test_a_gplvm_of_it_is_fitted_saved_and_served(table: Any, tmp_path: Path) -> None:
    """Served means are averages over the Gaussian f of a code: of f itself, and of exp(f)."""

    def build() -> models.StochasticGPLVM:
        encoder, kernel = encoders.FreeFormEncoder(1, N, L), gpflow.kernels.SquaredExponential()
        Z = np.random.default_rng(3).normal(size=(8, L))
        return models.StochasticGPLVM(encoder, kernel, Z, kinds(), P)

    Y, hidden = table
    model, data = build(), (None, np.where(hidden, np.nan, Y))
    settings = inference.VariationalSettings(num_steps=100, learning_rate=5e-2)
    losses = inference.fit_variational(model, data, settings, seed=0, progress=False)
    assert losses[-1] < losses[0]
    posterior = GPLVMPosterior(model, prepare_data(model, data))
    posterior.save(tmp_path / "fit.npz")
    again = GPLVMPosterior.load(tmp_path / "fit.npz", build())
    cells = np.nonzero(hidden)
    for one, other in zip(posterior.predict_y(*cells), again.predict_y(*cells), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)  # files hold constrained values
    export = serving.export(posterior, tmp_path / "served", verbose=False)
    latents = np.random.default_rng(1).normal(size=(5, L)).astype(np.float32)
    found = tf.saved_model.load(str(export.path)).signatures["decode"](latents=latents)["mean"]
    mean, variance = model.predict_f(latents)
    np.testing.assert_allclose(found.numpy()[:, [0, 3]], mean.numpy()[:, [0, 3]], rtol=1e-5)
    rate = np.exp(mean + 0.5 * variance)
    np.testing.assert_allclose(found.numpy()[:, [4, 5]], rate[:, [4, 5]], rtol=1e-4)
