"""What a run does that is told nothing: where it starts, from which seed, and what it says."""

from __future__ import annotations

import dataclasses
import importlib

import gpflow
import keras
import numpy as np
import pytest

import gpflow_bae
from gpflow_bae import encoders, inference, latent_priors, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference import seeding
from gpflow_bae.inference.checks import fit_check
from gpflow_bae.likelihoods import Gaussian

L, P = 2, 6


def network(num_inputs: int, num_outputs: int, width: int = 20) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((num_inputs,)),
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dense(num_outputs),
        ]
    )


def waves(num_tasks: int = 1, num_points: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Mixtures of two slow waves."""
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 10.0, num_points)[:, None]
    phase = rng.uniform(0.0, 6.0, (num_tasks, 1, 1))
    sources = np.concatenate([np.sin(X + phase), np.cos(2.0 * X + phase)], -1)
    return X, sources @ rng.standard_normal((2, P))


def sgp_bae(**options: object) -> models.SGPBAE:
    Z = np.linspace(0.0, 10.0, 12)[:, None]
    decoder = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    parts = (decoder, network(2 * P, L), Gaussian(0.1), L)
    return models.SGPBAE(gpflow.kernels.Matern52(), Z, *parts, **options)


@pytest.fixture
def unseeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script that does not seed Keras (the tests' fixture does)."""
    monkeypatch.setattr(seeding, "_keras_is_seeded", lambda: False)


def test_equal_seeds_make_equal_networks(unseeded: None) -> None:
    """Whatever Keras drew; what was trained, loaded or seeded stays."""

    def made(seed: int) -> list[np.ndarray]:
        model = sgp_bae()
        inference.seed_networks(model, seed)
        return [v.numpy() for v in (*model.decoder.weights, *model.encoder.weights)]

    first, again, other = made(0), made(0), made(1)
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.array_equal(a, c) == (not a.any())  # biases are zero
    # Two networks of the same shape are not the same.
    pair = models.VAE(network(L, L), network(L, 2 * L), Gaussian(), L)
    inference.seed_networks(pair, 0)
    assert not np.array_equal(pair.decoder.weights[0], pair.encoder.weights[0])

    trained = sgp_bae()
    trained.decoder.weights[0].assign(np.ones((L, P)))
    inference.seed_networks(trained, 0)
    np.testing.assert_array_equal(trained.decoder.weights[0], 1.0)
    inference.seed_networks(trained, 1)  # drawn once, they are no longer as Keras left them
    np.testing.assert_array_equal(trained.encoder.weights[0], first[2])


def test_each_partial_network_can_be_drawn_anew(unseeded: None) -> None:
    for kind in ("zeros", "pointnet", "pointnet_one_hot", "indexnet", "factornet"):
        pair = [encoders.partial_encoder(kind, P, L) for _ in range(2)]
        for member in pair:
            inference.seed_networks(member, 3)
        for a, b in zip(*(m.weights for m in pair), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_script_that_seeds_keras_has_its_own_networks() -> None:
    model = sgp_bae()
    before = model.decoder.weights[0].numpy()
    inference.seed_networks(model, 0)
    np.testing.assert_array_equal(model.decoder.weights[0], before)


@pytest.mark.parametrize(
    ("num_tasks", "num_points", "options", "prior", "batch_size"),
    [
        (3, 40, {}, latent_priors.GP, None),
        (40, 100, {}, latent_priors.GP, 8),
        (1, 300, {}, type(None), None),
        (1, 3000, {"inducing_outputs": "sampled"}, latent_priors.TitsiasGP, 384),
    ],
)
def test_the_start_suits_the_prior_and_the_size(
    num_tasks: int, num_points: int, options: dict, prior: type, batch_size: int | None
) -> None:
    model = sgp_bae(**options)
    data = prepare_data(model, waves(num_tasks, num_points))
    start = inference.default_start(model, data)
    assert isinstance(start.latent_prior, prior)
    assert start.settings.batch_size == batch_size
    assert start.settings.learning_rate == 1e-2  # the widest layer has 20 inputs
    if start.latent_prior is not None:
        assert list(start.latent_prior.kernels) == [model.kernel]
    assert start.encoder.num_outputs == 2 * L
    wide = models.BAE(network(L, P, 500), network(2 * P, L, 500), Gaussian(), L)
    assert inference.default_start(wide, data).settings.learning_rate == 2e-3


def test_the_shortest_program_recovers_the_signal(
    unseeded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is hidden of noise-free waves, in two runs alike.

    After a quarter of the start's steps and of the chain; docs/get_started.md, which is tested too,
    has all of them. A cold chain of this length is no better than column means.
    """
    module = importlib.import_module("gpflow_bae.inference.starts.default_start")
    monkeypatch.setattr(module, "NUM_STEPS", 500)
    X, (truth,) = waves()
    Y = truth.copy()
    Y[10:15, :3] = np.nan
    settings = inference.AmortizedSettings(burnin=50, num_samples=4, thinning=50)

    def run() -> np.ndarray:
        posterior = inference.sample_amortized(sgp_bae(), (X, Y), settings, seed=1, progress=False)
        return posterior.predict().mean

    mean = run()
    error = np.sqrt(np.mean((mean - truth)[np.isnan(Y)] ** 2))
    assert error < 0.2 * truth.std()
    np.testing.assert_array_equal(run(), mean)


def test_fit_fits_every_kind_of_model() -> None:
    """A variational model is fitted; others that fit does not know are refused."""
    X, truth = waves()
    model = models.SVGPVAE(
        gpflow.kernels.Matern52(), X[::4], network(L, P), network(P, 2 * L), Gaussian(0.1), L
    )
    data = prepare_data(model, (X, truth))
    start = inference.default_start(model, data)
    assert start.encoder is model.encoder and start.latent_prior is None
    with pytest.raises(TypeError, match="fit_variational takes every model with a bound"):
        gpflow_bae.fit(models.MeanFieldParameters(model, 1), (X, truth))
    with pytest.raises(ValueError, match='warm_start must be "default", None'):
        inference.sample_amortized(sgp_bae(), (X, truth), warm_start="cold")


def test_a_fit_that_says_nothing_is_reported(untraced: None) -> None:
    """Noise has nothing in common with a slow latent; waves after a start have."""
    X, truth = waves()
    noise = np.random.default_rng(1).standard_normal(truth.shape)
    settings = inference.AmortizedSettings(
        num_sampler_steps=2,
        encoder=inference.EncoderSettings(num_steps=1),
        burnin=2,
        num_samples=1,
        thinning=2,
    )
    with pytest.warns(UserWarning, match="hardly better than column means"):
        inference.sample_amortized(sgp_bae(), (X, noise), settings, progress=False, warm_start=None)


def test_the_share_explained_is_one_less_the_error_over_the_variance() -> None:
    """Of a decoder that returns its codes, with codes that are the data plus a known error."""
    Y = np.random.default_rng(2).normal(3.0, 2.0, (8, L))
    model = models.VAE(network(L, L), network(L, 2 * L), Gaussian(), L)
    posterior = gpflow_bae.Posterior.from_point(model, (None, Y))
    bank = dataclasses.replace(posterior.bank, latents=np.zeros((1, 1, 1, 8, L)))
    posterior = gpflow_bae.Posterior(model, bank, (None, Y))
    decoded = model.decode(None, np.zeros((1, 8, L))).numpy()[0]
    expected = 1.0 - np.mean((Y - decoded) ** 2) / np.mean((Y - Y.mean(0)) ** 2)
    assert inference.share_explained(posterior) == pytest.approx(expected, rel=1e-5)


def test_outputs_that_only_rounding_moves_have_nothing_to_explain() -> None:
    """Each has a deviation of 1e-17, of which a decoder would explain less than nothing."""
    Y = np.random.default_rng(2).choice([0.3, 0.1 + 0.2], (8, L))
    model = models.VAE(network(L, L), network(L, 2 * L), Gaussian(), L)
    assert inference.share_explained(gpflow_bae.Posterior.from_point(model, (None, Y))) == 1.0


def test_a_chain_that_broke_is_reported() -> None:
    """From a trace: what fell, per observed cell, and nothing of one that rises, or that moves by
    as much in every round.
    """
    Y = np.random.default_rng(2).normal(3.0, 2.0, (8, L))
    Y[0, 0] = np.nan
    model = models.VAE(network(L, L), network(L, 2 * L), Gaussian(), L)
    posterior = gpflow_bae.Posterior.from_point(model, (None, Y))
    assert fit_check.largest_fall(posterior) == 0.0
    sound, broken = [0.0, 9.0] * 5, [3.0, 4.0, 5.5, 5.0, 6.0, -24.0, -24.5]
    for trace, fall in (([0.0, 5.0, 9.0], 0.0), (sound, 0.0), (broken, 30.0)):
        bank = dataclasses.replace(posterior.bank, trace={"log_likelihood": np.array([trace])})
        traced = gpflow_bae.Posterior(model, bank, (None, Y))
        assert fit_check.largest_fall(traced) == pytest.approx(fall / 15)
    with pytest.warns(UserWarning, match="fell by 2.0 nats per observed cell within one round"):
        fit_check.warn_of_useless_fit(traced)
