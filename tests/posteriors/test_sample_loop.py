"""Predictions in the graph equal those of a plain loop over samples, whatever fits the memory."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from gpflow_bae import likelihoods, models
from gpflow_bae.data import prepare_data
from gpflow_bae.mcmc.noise import split, standard_noise
from gpflow_bae.posteriors import LatentSamples, Posterior, sample_loop
from tests.posteriors import small

NUM_DRAWS, NUM_CODES = 3, 3


@functools.cache
def made(codes: bool) -> Posterior:
    return small.posterior(codes=codes)


@pytest.fixture
def posterior() -> Posterior:
    return made(codes=False)


def bound_models(posterior: Any) -> list[Any]:
    """The model at every sample, chain after chain."""
    bank = posterior.bank
    parts = [bank.parameters, bank.encoder] if bank.encoder else [bank.parameters]
    return [
        posterior.model.bind(*([tf.constant(v[c, s]) for v in part.values()] for part in parts))
        for c in range(bank.num_chains)
        for s in range(bank.num_samples)
    ]


NEW = small.X_NEW[None]


@functools.cache
def latent_by_loop(codes: bool, new: bool, seed: int) -> LatentSamples:
    posterior, Xnew = made(codes), NEW if new else None
    X, Y, mask = posterior.X, posterior.Y, posterior.mask
    means, variances = [], []
    for s, model in enumerate(bound_models(posterior)):
        if posterior.bank.latents is None:
            pseudo = model.pseudo_observations(X, Y, tf.constant([seed, s]), NUM_DRAWS, mask)
        else:
            c, i = divmod(s, posterior.bank.num_samples)
            codes = tf.constant(posterior.bank.latents[c, i])
            pseudo = codes, tf.zeros_like(codes)
        if Xnew is not None:
            mean, variance = model.latent_prior.predict(Xnew, X, *pseudo)
        elif posterior.bank.latents is None:
            mean, variance, _ = model.latent_prior.condition(X, *pseudo)
        else:
            mean, variance = pseudo
        means.append(mean.numpy())
        variances.append(variance.numpy())
    return LatentSamples(np.stack(means), np.stack(variances))


def predict_by_loop(codes: bool, new: bool, seed: int) -> tuple[np.ndarray, ...]:
    posterior, latents = made(codes), latent_by_loop(codes, new, seed)
    means, noises = [], []
    for s, model in enumerate(bound_models(posterior)):
        variance = latents.variance[s]
        if new:
            variance = variance + model.latent_prior.code_noise.numpy()
        for draw in range(NUM_CODES):
            pair = tf.random.fold_in(tf.constant([seed + 1, s]), draw // 2, alg="philox")
            noise = (-1.0) ** draw * standard_noise(variance.shape, pair, tf.float64)
            F = model.decode(posterior.X, latents.mean[s] + np.sqrt(variance) * noise)
            mean, y_noise = model.likelihood.moments(F)
            means.append(mean.numpy().astype(float))
            noises.append(y_noise.numpy().astype(float))
    return np.mean(means, 0), np.mean(noises, 0), np.var(means, 0)


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.fixture(params=["one call", "chunks"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Enough for the six samples at once, or for four: the second chunk is filled up."""

    def fours(*_: Any) -> list[tuple[np.ndarray, int]]:
        return [(np.arange(4), 4), (np.array([4, 5, 5, 5]), 2)]

    if request.param == "chunks":
        monkeypatch.setattr(sample_loop, "_chunks", fours)
    return request.param


# Every two of the three once.
CASES = pytest.mark.parametrize(
    ("codes", "new", "memory"),
    [
        (False, False, "one call"),
        (False, True, "chunks"),
        (True, False, "chunks"),
        (True, True, "one call"),
    ],
    indirect=["memory"],
)


@CASES
def test_predictions_are_those_of_a_loop(codes: bool, new: bool, memory: str) -> None:
    """Six samples of two chains, each with its own parameters, encoder, codes and seeds."""
    posterior, Xnew = made(codes), NEW if new else None
    options: dict[str, Any] = {"num_draws": NUM_DRAWS, "seed": 5}
    latents = posterior.latent_samples(Xnew, **options)
    assert_close(latents, latent_by_loop(codes, new, seed=5))
    assert len(np.unique(latents.mean[:, 0, 0, 0])) == 6
    prediction = posterior.predict(Xnew, num_codes=NUM_CODES, **options)
    assert_close(prediction, predict_by_loop(codes, new, seed=5))


@CASES
def test_log_densities_are_those_of_a_mixture(codes: bool, new: bool, memory: str) -> None:
    """SciPy's Gaussians around what each sample decodes from its draws of the codes, averaged."""
    posterior, Xnew = made(codes), NEW if new else None
    latents = latent_by_loop(codes, new, seed=5)
    Y = np.random.default_rng(3).standard_normal((small.T, latents.mean.shape[2], small.P))
    Y[0, 1, 2] = Y[2, 0] = np.nan
    parts = []
    for s, model in enumerate(bound_models(posterior)):
        variance = latents.variance[s]
        if new:
            variance = variance + model.latent_prior.code_noise.numpy()
        shape = (NUM_CODES, *variance.shape)
        noise = standard_noise(shape, tf.constant([6, s]), tf.float64).numpy()
        F = model.decode(posterior.X, latents.mean[s] + np.sqrt(variance) * noise).numpy()
        deviation = np.sqrt(model.likelihood.variance.numpy())
        parts.append(stats.norm.logpdf(Y, F.astype(float), deviation))
    parts = np.concatenate(parts)  # [6 NUM_CODES, T, N, P]
    options: dict[str, Any] = {"num_draws": NUM_DRAWS, "num_codes": NUM_CODES, "seed": 5}
    # Decoders are of float32, and errors are squared over a noise of 0.2.
    close = {"rtol": 1e-4, "atol": 1e-4}
    cells = posterior.predict_cell_log_density((Xnew, Y), **options)
    expected = special.logsumexp(parts, axis=0) - np.log(len(parts))
    np.testing.assert_allclose(cells, expected, **close)  # NaN where Y is
    rows = posterior.predict_log_density((Xnew, Y), **options)
    expected = special.logsumexp(np.nansum(parts, axis=-1), axis=0) - np.log(len(parts))
    np.testing.assert_allclose(rows, expected, **close)


def test_codes_are_those_of_a_loop(posterior: Posterior, memory: str) -> None:
    _, Y = small.data()
    draws = posterior.encode(Y, num_draws=NUM_DRAWS, seed=2)
    rows, side = tf.constant(Y, tf.float32), posterior.model.encoder.side_inputs(None)
    expected = [
        [model.encoder.sample(rows, draw_seed, **side) for draw_seed in tf.unstack(seeds)]
        for model, seeds in zip(
            bound_models(posterior),
            (split(tf.constant([2, s]), NUM_DRAWS) for s in range(6)),
            strict=True,
        )
    ]
    assert_close([draws], [np.array(expected)])


def test_a_bank_without_encoder_leaves_the_models_own(posterior: Posterior) -> None:
    """Its weights are what a bank that repeats them has."""
    own = {
        path: np.tile(v.numpy(), (2, 3, *[1] * len(v.shape)))
        for path, v in zip(
            posterior.model.amortized.paths, posterior.model.amortized.variables, strict=True
        )
    }
    without, repeated = (
        Posterior(posterior.model, dataclasses.replace(posterior.bank, encoder=e), posterior.data)
        for e in ({}, own)
    )
    assert without.encoder == [] and without.num_samples == 6
    options = {"num_draws": 2, "num_codes": 1}
    assert_close(*(p.predict(small.X_NEW, **options) for p in (without, repeated)))


def test_tempered_predictions_are_those_of_a_loop(memory: str) -> None:
    posterior = small.tempered()
    rows = small.rows()
    observed = ~np.isnan(rows)
    complete = tf.constant(np.nan_to_num(rows), tf.float32)
    bound = bound_models(posterior)
    codes = np.stack([m.encode(complete) for m in bound])
    means = np.stack([m.decoder(z) for m, z in zip(bound, codes, strict=True)])
    assert_close([posterior.encode(rows)], [codes])
    assert_close([posterior.decode(codes)], [means])
    assert_close([posterior.decode(codes[0])], [np.stack([m.decoder(codes[0]) for m in bound])])
    assert_close([posterior.reconstructions(rows)], [means])
    noise = np.mean([m.likelihood.variance.numpy() for m in bound]) * np.ones(rows.shape)
    assert_close(posterior.reconstruct(rows), [means.mean(0), noise, means.var(0)])
    errors = [np.mean(np.square(m - rows)[observed]) for m in means]
    assert_close([posterior.squared_errors(rows)], [np.reshape(errors, [2, 3])])


def test_chunks_have_one_length_and_keep_to_the_memory() -> None:
    """So that a loop is traced once; what fills up the last chunk is not counted."""
    samples = ([np.zeros((10, 100), np.float32)], np.zeros((10, 2), np.int32))  # 408 bytes each
    cases = {2**28: [10], 4 * 508: [4, 4, 2], 508: [1] * 10, 1: [1] * 10}
    for memory, expected in cases.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sample_loop, "MEMORY_PER_CALL", memory)
            chunks = list(sample_loop._chunks(samples, result_bytes=100))
        assert [count for _, count in chunks] == expected
        assert {len(rows) for rows, _ in chunks} == {expected[0]}
        counted = np.concatenate([rows[:count] for rows, count in chunks])
        np.testing.assert_array_equal(counted, np.arange(10))


def test_a_loop_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_loop, "MEMORY_PER_CALL", 3 * 8)
    traced = []

    def double(value: tf.Tensor) -> tf.Tensor:
        traced.append(value)
        return 2.0 * value

    loop, values = sample_loop.SampleLoop(double), np.arange(7.0)
    for _ in range(2):
        np.testing.assert_array_equal(loop.map((values,), dtypes=tf.float64), 2.0 * values)
    assert len(traced) == 1
    for _ in range(2):
        assert loop.sum((values,), zeros=np.zeros(())) == 42.0
    assert len(traced) == 2
    # Beyond what a float64 can hold, were it not kept as a logarithm: log of the sum of exp(2 v).
    values = np.arange(1000.0, 1007.0)
    for _ in range(2):
        found = loop.log_sum_exp((values,), start=np.array(-np.inf))
        np.testing.assert_allclose(found, special.logsumexp(2.0 * values), rtol=1e-15)
    assert len(traced) == 3
    nothing = np.full(7, -np.inf)  # a density of zero under every sample
    assert loop.log_sum_exp((nothing,), start=np.array(-np.inf)) == -np.inf


def test_densities_of_cells_do_not_hold_all_draws() -> None:
    """200 draws of 300,000 cells would be 480 MB; a draw and the sum over draws are few of 2.4."""
    status, reset = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")
    if not os.access(reset, os.W_OK):
        pytest.skip("the peak of memory is read from Linux's /proc")
    rng = np.random.default_rng(0)
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3000)])
    encoder = keras.Sequential([keras.Input((3000,)), keras.layers.Dense(4)])
    model = models.VAE(network, encoder, likelihoods.Gaussian(), 2)
    Y = rng.normal(size=(100, 3000)).astype(np.float32)
    posterior = Posterior.from_point(model, prepare_data(model, (None, Y)))

    def score(num_codes: int) -> None:
        found = posterior.predict_cell_log_density((None, Y), num_codes=num_codes)
        assert found.shape == Y.shape and np.isfinite(found).all()

    def peak() -> float:
        return float(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10  # megabytes

    score(2)
    reset.write_text("5")
    before = peak()
    score(200)
    assert peak() - before < 200.0
