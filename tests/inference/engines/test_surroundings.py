"""Minibatches of points under a prior by neighbours: what a step sees, and what it samples."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import encoders, inference, latent_priors, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.checks import temperature_check
from gpflow_bae.inference.engines import control_variates
from gpflow_bae.inference.engines.surroundings import Surroundings
from gpflow_bae.latent_priors.neighbours import children_of
from gpflow_bae.mcmc.noise import standard_noise
from tests.inference.amortized_models import SETTINGS, network

N, L, B, M = 6, 2, 2, 2
FRESH: dict[str, Any] = {"batch_size": B, "steps_per_batch": 1}
PLAIN = mcmc.sghmc.build(0.02, 0.3, integrator="baoab")
SEED = tf.constant([1, 2])


class Unchanged(gpflow.Module):
    """A decoder without a network: codes are the means of the outputs."""

    latent_dim = output_dim = L

    def __call__(self, latents: Any) -> tf.Tensor:
        return tf.cast(latents, gpflow.default_float())


def field(number: int, num_outputs: int = L) -> tuple[np.ndarray, np.ndarray]:
    """Places, and observations of which some are missing."""
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(size=(number, 2)), rng.normal(size=(number, num_outputs))
    Y[::4, 0] = np.nan
    return X, Y


def model_of(X: np.ndarray, num_neighbours: int = M, **settings: Any) -> Any:
    """Codes that are observed with noise: no network but the encoder's, and all is float64."""
    kernel = gpflow.kernels.Matern32(variance=1.3, lengthscales=0.4)
    prior = latent_priors.NearestNeighbourGP(
        kernel, X, L, num_neighbours, **{"code_noise_variance": 0.05} | settings
    )
    encoder = encoders.StochasticEncoder(network(2 * L, L))
    return models.BayesianAutoencoder(prior, Unchanged(), encoder, likelihoods.Gaussian(0.3))


def algorithm(model: Any, data: Any, sampler: Any = PLAIN, **changes: Any) -> Any:
    options = {"jit_compile": changes.pop("jit_compile", False)}
    settings = dataclasses.replace(SETTINGS, **changes)
    prepared = prepare_data(model, data, settings.batch_size)
    return inference.AmortizedSampling(model, prepared, settings, sampler, **options)


def batch_of(engine: Any, rows: Any, codes: tf.Tensor) -> Any:
    return engine.surrounded(engine.data.gather(rows), codes)


def gradients(engine: Any, codes: tf.Tensor, indices: Any) -> inference.Point:
    """Of the log density, at the model's parameters and codes of which some are in a batch."""
    rows = None if indices is None else tf.constant(indices)
    own = codes if rows is None else tf.gather(codes, rows, axis=1)
    position = inference.Point(engine.sampled.values(), own)
    return engine.log_density_gradient(position, batch_of(engine, rows, codes))


@pytest.mark.parametrize("kind", ["ragged", "fixed shapes", "control variates"])
def test_the_mean_of_all_minibatches_is_the_gradient_of_all_data(kind: str) -> None:
    """Of parameters; and codes have that of all data in each of the 15 batches, to 1e-8.

    One of two in a batch is the other's neighbour in some of them, and both have it as a child in
    others; with control variates the estimate is that less its error at other codes.
    """
    X, Y = field(N)
    model = model_of(X)
    engine = algorithm(model, (X, Y), batch_size=B)
    engine._surroundings = Surroundings(engine.data.neighbours, B, kind == "fixed shapes")
    rng = np.random.default_rng(1)
    codes, there = (tf.constant(rng.normal(size=(1, N, L))) for _ in range(2))
    exact, reference = gradients(engine, codes, None), gradients(engine, there, None)
    total: list[Any] = []
    for chosen in itertools.combinations(range(N), B):
        batch = chosen if sum(chosen) % 2 else chosen[::-1]  # in any order
        if kind == "control variates":
            rows = tf.constant(batch)
            at, here = (
                inference.Point(model.sampled.values(), tf.gather(v, batch, axis=1))
                for v in (there, codes)
            )
            known = control_variates.Reference(
                at, reference.parameters, batch_of(engine, rows, there)
            )
            target = engine.target(batch_of(engine, rows, codes), known)
            found = target.gradient(here, SEED)
        else:
            found = gradients(engine, codes, batch)
        np.testing.assert_allclose(found.codes, tf.gather(exact.codes, batch, axis=1), atol=1e-8)
        total.append([np.asarray(g) for g in found.parameters])
    assert len(total) == 15
    means = [np.mean(parts, axis=0) for parts in zip(*total, strict=True)]
    for path, mean, whole in zip(model.sampled.paths, means, exact.parameters, strict=True):
        np.testing.assert_allclose(mean, whole, rtol=1e-8, atol=1e-8, err_msg=path)


def precision_of_codes(model: Any, X: np.ndarray) -> np.ndarray:
    """Of Vecchia's density [N, N], in NumPy."""
    prior = model.latent_prior
    table = prior.neighbours_of(X[None]).numpy()
    noise = float(prior.code_noise) + gpflow.default_jitter()
    K = prior.kernels[0](X).numpy() + noise * np.eye(len(X))
    A, D = np.eye(len(X)), np.zeros(len(X))
    for n, row in enumerate(table):
        near = row[row >= 0]
        A[n, near] = -np.linalg.solve(K[np.ix_(near, near)], K[near, n])
        D[n] = K[n, n] + A[n, near] @ K[near, n]
    return A.T @ np.diag(1.0 / D) @ A


@pytest.mark.parametrize(
    ("steps", "step_size", "length", "rounds"),
    [(None, 0.25, 8, 150), (2, 0.1, 48, 60)],
    ids=["one batch a round", "fresh batches"],
)
def test_codes_have_their_posterior(
    steps: int | None, step_size: float, length: int, rounds: int
) -> None:
    """Of 240 points in batches of 80, with fixed parameters: a Gaussian, known densely.

    Codes along the eigenvectors of their precision, over their standard deviations, are standard
    normals u. In rounds of 8 steps on one batch the means of u and u^2 had autocorrelation times
    of 6 and 4.5 rounds, which of 150 rounds, 240 points and 2 channels makes errors of 0.009 and
    0.011; rounds of 24 batches are independent, and the errors of 60 are as small. 5 errors are
    allowed, and of each quarter of the eigenvectors 0.17: twice the error, as much again for slow
    ones, and a bias of 0.05, which a step of 0.1 has on fresh batches (momenta of a point rest
    while others have their batches). Neighbours as a round found them are off by 0.3 there.
    """
    X, Y = field(240)
    model = model_of(X, 4, code_noise_variance=0.1)
    gpflow.set_trainable(model, False)
    engine = algorithm(
        model,
        (X, Y),
        mcmc.sghmc.build(step_size, 0.3, integrator="baoab"),
        batch_size=80,
        steps_per_batch=steps,
        num_sampler_steps=length,
        encoder=inference.EncoderSettings(num_steps=0),
    )
    chains, samples = engine.initial([tf.zeros([1, 240, L])]), []
    for number in range(20 + rounds):
        chains, _ = engine.round(chains, number)
        samples.append(chains.sampler.position.codes[0, 0].numpy())
    assert engine.tracing_count == 1
    Q, u = precision_of_codes(model, X), []
    for channel, y in enumerate(Y.T):
        seen = ~np.isnan(y)
        values, vectors = np.linalg.eigh(Q + np.diag(seen / 0.3))
        mean = vectors.T @ np.where(seen, y, 0.0) / 0.3 / values
        kept = np.stack(samples[20:])[..., channel]
        u.append((kept @ vectors - mean) * np.sqrt(values))
    assert abs(np.mean(u)) < 0.045
    squares = np.mean(np.square(u), axis=(0, 1))
    assert abs(np.mean(squares) - 1.0) < 0.056
    np.testing.assert_allclose(squares.reshape(4, -1).mean(1), 1.0, atol=0.17)


@pytest.mark.parametrize("number", [200, 1600])
def test_a_batch_sees_its_points_and_their_children_however_many_there_are(number: int) -> None:
    """In NumPy, of 10 batches of 8; on average at most m children of each, of 8 times as many too.

    Fixed shapes are as long in every batch, and what fills them up has no weight.
    """
    X, _ = field(number)
    prior = model_of(X, 5).latent_prior
    table = prior.neighbours_of(X[None])
    codes = tf.constant(np.random.default_rng(2).normal(size=(1, number, L)))
    ragged, fixed = Surroundings(table, 8), Surroundings(table, 8, fixed_shapes=True)
    batches = np.random.default_rng(1).permutation(number)[: number // 8 * 8].reshape(-1, 8)
    near, sizes = table.numpy(), []
    for batch in batches:
        found = ragged.conditionals(tf.constant(batch), tf.constant(X[None]), codes)
        sizes.append(len(found.weights))
        if len(sizes) > 10:
            continue
        children = {n for n in range(number) if set(near[n]) & set(batch)} - set(batch)
        rows = np.c_[near, np.arange(number)][[*batch, *children]]
        # Those after the batch's are in no order that matters: by their first input.
        order = np.r_[np.arange(8), 8 + np.argsort(found.X[0, 8:, -1, 0]).astype(int)]
        rows = np.r_[rows[:8], rows[8:][np.argsort(X[rows[8:, -1], 0])]]
        present = rows >= 0
        np.testing.assert_array_equal(found.present.numpy()[order], present)
        at = found.X[0].numpy()[order]
        np.testing.assert_array_equal(at[present], X[rows[present]])
        at = found.codes[0].numpy()[order]
        np.testing.assert_array_equal(at[present], codes[0].numpy()[rows[present]])
        where = {n: i for i, n in enumerate(batch)}
        places = [[where.get(n, -1) for n in row] for row in rows]
        np.testing.assert_array_equal(found.places.numpy()[order], places)
        same = fixed.conditionals(tf.constant(batch), tf.constant(X[None]), codes)
        assert same.weights.shape == [8 + fixed._most]
        kept = same.weights.numpy() == 1.0
        np.testing.assert_array_equal(same.X.numpy()[:, kept], found.X)
        np.testing.assert_array_equal(same.places.numpy()[kept], found.places)
    assert np.mean(sizes) <= 8 * (1 + 5)


def test_children_are_the_inverse_of_neighbours() -> None:
    table = np.array([[-1, -1], [0, -1], [1, 0], [0, 2], [2, 1]])
    splits, children = children_of(table)
    found = [children[a:b].tolist() for a, b in itertools.pairwise(splits)]
    assert found == [[1, 2, 3], [2, 4], [3, 4], [], []]


def test_it_compiles() -> None:
    """By XLA, as rounds are on a GPU, with fixed shapes: the conditionals of the ragged ones."""
    X, _ = field(N)
    prior = model_of(X).latent_prior
    table, X = prior.neighbours_of(X[None]), tf.constant(X[None])
    codes = tf.constant(np.random.default_rng(1).normal(size=(1, N, L)))

    ragged, fixed = Surroundings(table, B), Surroundings(table, B, fixed_shapes=True)
    compiled = tf.function(
        lambda rows: fixed.conditionals(rows, X, codes), jit_compile=True, autograph=False
    )
    for rows in ([4, 0], [1, 2]):
        own, found = ragged.conditionals(tf.constant(rows), X, codes), compiled(tf.constant(rows))
        kept = found.weights == 1.0
        np.testing.assert_array_equal(found.places[kept], own.places)
        np.testing.assert_array_equal(found.codes[0][kept], own.codes[0])


def run(**options: Any) -> Any:
    """Two samples, each after a step on a batch of its own."""
    keras.utils.set_random_seed(1)
    X, Y = field(N)
    schedule = dataclasses.replace(
        SETTINGS,
        num_sampler_steps=2,
        encoder=dataclasses.replace(SETTINGS.encoder, num_steps=1),
        burnin=2,
        num_samples=2,
        thinning=2,
        **FRESH,
    )
    options = {"sampler": PLAIN, "warm_start": None, "progress": False} | options
    return inference.sample_amortized(model_of(X), (X, Y), schedule, seed=3, **options)


@pytest.mark.usefixtures("untraced")
def test_resumed_and_alone_a_chain_is_the_same(tmp_path: pathlib.Path) -> None:
    """Bit by bit."""
    two, folder = run(num_chains=2).bank, str(tmp_path / "run")
    run(out_dir=folder, max_samples=1, checkpoint_every=1)
    resumed = run(out_dir=folder, resume=True).bank
    _, arrays = two.contents()
    _, found = resumed.contents()
    assert arrays["latents"].shape == (2, 2, 1, N, L)
    for key, value in arrays.items():
        np.testing.assert_array_equal(found[key], value[:1], err_msg=key)


def test_a_large_default_start_takes_minibatches() -> None:
    X, Y = field(1100)
    large = model_of(X)
    start = inference.default_start(large, prepare_data(large, (X, Y)))
    assert start.settings.batch_size == 384


@pytest.mark.parametrize("size", [B, None])
def test_a_start_has_mean_field_codes(size: int | None) -> None:
    """With all points too: of pseudo-observations the prior has an approximate evidence, and a fit
    exploits that. Codes start at draws of the encoder's own Gaussians.
    """
    X, Y = field(N)
    keras.utils.set_random_seed(0)
    model, encoder = model_of(X), encoders.GaussianEncoder(network(L, 2 * L))
    data = prepare_data(model, (X, Y))
    settings = inference.VariationalSettings(num_steps=50, batch_size=size)
    start = inference.WarmStart(
        encoder,
        settings,
        distillation=inference.EncoderSettings(batch_size=256, num_steps=0),
        num_initial_steps=0,
    )
    codes, losses = start.run(model, data, seed=0, progress=False)
    assert np.isfinite(losses).all()
    mean, variance = encoder(data.Y)
    noise = standard_noise(mean.shape, tf.constant([0, 0x3D2]), mean.dtype)
    np.testing.assert_allclose(codes, mean + np.sqrt(variance) * noise, rtol=1e-9)


@pytest.mark.parametrize(
    ("path", "says"), [(".latent_prior.kernels[0].variance", True), (".likelihood.variance", False)]
)
def test_hot_parameters_of_the_prior_are_told_of_moves(
    path: str, says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = field(N)
    settings = dataclasses.replace(SETTINGS, burnin=2, num_samples=1, **FRESH)
    monkeypatch.setattr(temperature_check, "blocks_off_temperature", lambda posterior: {path: 9.0})
    with pytest.warns(UserWarning, match="not at their temperature") as caught:
        inference.sample_amortized(
            model_of(X), (X, Y), settings, sampler=PLAIN, warm_start=None, progress=False
        )
    told = [str(w.message) for w in caught if "not at their temperature" in str(w.message)]
    assert says == ('moves=("prior_parameters",)' in told[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": "encoder", "steps_per_batch": None}, 'leaves none: set codes="carried"'),
        ({"coordinates": "prior"}, "of which minibatches of batch"),
    ],
)
def test_what_needs_all_points_is_refused(changes: dict[str, Any], message: str) -> None:
    X, Y = field(N)
    with pytest.raises(ValueError, match=message):
        algorithm(model_of(X), (X, Y), **(FRESH | changes))


def test_tasks_with_inputs_of_their_own_are_taken_together() -> None:
    """Those that share inputs come in minibatches of whole tasks; there is nothing else to see."""
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(size=(3, N, 2)), rng.normal(size=(3, N, L))
    shared = algorithm(model_of(X[:1]), (X[:1], Y), batch_size=2)
    assert shared._surroundings is None
    codes = tf.zeros([3, N, L], tf.float64)
    rows = tf.constant([2, 0])
    position = inference.Point(shared.sampled.values(), tf.gather(codes, rows))
    assert shared.log_density_gradient(position, batch_of(shared, rows, codes)).codes.shape[0] == 2
    own = algorithm(model_of(X), (X, Y), batch_size=2)
    with pytest.raises(ValueError, match=r"for several such tasks leave batch_size out"):
        own.log_density_gradient(position, batch_of(own, rows, codes))
