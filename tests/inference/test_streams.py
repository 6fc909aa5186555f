"""Engines on a stream are what they are on the same rows in memory, and resume bit by bit."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import (
    Posterior,
    encoders,
    fit,
    inference,
    latent_priors,
    likelihoods,
    mcmc,
    models,
)
from gpflow_bae.data import StreamedObservations, prepare_data, write_tfrecords
from gpflow_bae.inference import VariationalFit
from gpflow_bae.inference.chains import of_chain
from gpflow_bae.inference.engines.amortized import AmortizedSampling
from tests.inference.amortized_models import P, bae, sgp_bae

N, L = 60, 2
SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=4,
    encoder=inference.EncoderSettings(num_steps=2),
    burnin=8,
    num_samples=3,
    thinning=4,
    codes="encoder",
    batch_size=16,
)


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.linspace(-2.0, 2.0, N)[:, None]
    Y = np.concatenate([np.sin(X), np.cos(X), X], 1) + 0.1 * rng.standard_normal((N, P))
    Y[::5, 1] = np.nan
    return X, Y.astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("rows")
    write_tfrecords(folder, rows(), 25)
    return f"{folder}/*.tfrecord"


def stream(files: str, **settings: Any) -> StreamedObservations:
    return StreamedObservations.from_tfrecords(files, **settings)


def svgp_vae() -> models.SVGPVAE:
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    return models.SVGPVAE(
        gpflow.kernels.SquaredExponential(),
        np.linspace(-2.0, 2.0, 4)[:, None],
        decoder=keras.Sequential([keras.Input((L,)), dense(P)]),
        encoder=keras.Sequential([keras.Input((P,)), dense(2 * L)]),
        likelihood=likelihoods.Gaussian(0.3),
        latent_dim=L,
    )


def values(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in model.trainable_variables]


def fitted(data: Any, batch_size: int | None, jit_compile: bool = False, **settings: Any) -> Any:
    """Losses and variables after ten steps."""
    model = svgp_vae()
    losses = inference.fit_variational(
        model,
        data,
        inference.VariationalSettings(num_steps=10, batch_size=batch_size, **settings),
        steps_per_call=5,
        progress=False,
        jit_compile=jit_compile,
    )
    return losses, values(model)


def assert_equal(one: Any, other: Any) -> None:
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_a_fit_of_all_rows_in_their_order_is_that_in_memory(files: str) -> None:
    assert_equal(fitted(stream(files, shuffle_buffer=0), N), fitted(rows(), None))


def test_minibatches_have_the_losses_and_gradients_of_the_same_rows_in_memory(files: str) -> None:
    data = stream(files, shuffle_buffer=0)
    settings = inference.VariationalSettings(batch_size=16)
    streamed = VariationalFit(svgp_vae(), data, settings, seed=0, steps_per_call=6)
    memory = prepare_data(streamed.model, rows())
    block = streamed.feed(0)
    for number in range(6):
        seed = tf.constant([5, number])
        batches = (
            data.batch(block, tf.constant(number)),
            memory.gather(tf.range(16 * number, 16 * number + 16) % N),
        )
        found = []
        for batch in batches:
            with tf.GradientTape() as tape:
                loss, _ = streamed.batch_loss(batch, seed, (), None)
            found.append((loss, tape.gradient(loss, streamed.model.trainable_variables)))
        assert_equal(*found)


def test_a_fit_on_xla_sees_the_same_minibatches(files: str) -> None:
    """To rounding: ten steps of float32 networks."""
    plain, compiled = (fitted(stream(files), 16, jit_compile=jit)[0] for jit in (False, True))
    np.testing.assert_allclose(plain, compiled, rtol=1e-4)


class Killed(Exception):
    pass


@pytest.mark.parametrize("calls", [1, 3])
def test_a_fit_that_died_and_is_resumed_is_an_uninterrupted_one(
    calls: int, files: str, tmp_path: Path
) -> None:
    """Sixty rows in batches of 16: a call of three steps ends in the midst of an epoch."""
    settings = inference.VariationalSettings(num_steps=18, batch_size=16)

    def run(**options: Any) -> tuple[np.ndarray, list[np.ndarray]]:
        model = svgp_vae()
        losses = inference.fit_variational(
            model, stream(files), settings, steps_per_call=3, progress=False, **options
        )
        return losses, values(model)

    def kill(number: int, loss: float) -> None:
        if number == 3 * calls + 3:  # one call after the last checkpoint
            raise Killed

    whole = run()
    every = {"out_dir": tmp_path, "checkpoint_every": calls}
    with pytest.raises(Killed):
        run(callback=kill, **every)
    assert_equal(run(resume=True, **every), whole)


def sampled(model: Any, data: Any, settings: Any = SETTINGS, **options: Any) -> Any:
    """Draws of the parameters, C chains."""
    keras.utils.set_random_seed(0)
    sampler = options.pop("sampler", mcmc.sghmc.build(1e-3, 0.1))
    posterior = inference.sample_amortized(
        model(),
        data,
        settings,
        sampler=sampler,
        warm_start=None,
        progress=False,
        **options,
    )
    return {k: np.asarray(v) for k, v in posterior.bank.parameters.items()}


def point_sgp_bae() -> models.SGPBAE:
    return sgp_bae(inducing_outputs="sampled")


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a chain says little
@pytest.mark.parametrize(("model", "steps_per_batch"), [(bae, 2), (svgp_vae, 1)])
def test_chains_resume_bit_by_bit_and_are_what_each_is_alone(
    model: Any, steps_per_batch: int, files: str, tmp_path: Path
) -> None:
    """The second of two chains that were stopped is that of one chain that was not."""
    settings = dataclasses.replace(SETTINGS, steps_per_batch=steps_per_batch)
    options: dict[str, Any] = {"num_chains": 2, "seed": 3, "out_dir": tmp_path}
    sampled(model, stream(files), settings, max_samples=1, **options)
    both = sampled(model, stream(files), settings, resume=True, **options)
    alone = sampled(model, stream(files), settings, seed=4)
    assert_equal(alone, {k: v[1:] for k, v in both.items()})
    assert any((v[0] != v[1]).any() for v in both.values())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", [point_sgp_bae, svgp_vae])
def test_a_chain_of_all_rows_in_their_order_is_that_in_memory(model: Any, files: str) -> None:
    settings = dataclasses.replace(SETTINGS, batch_size=N)
    found = sampled(model, stream(files, shuffle_buffer=0), settings)
    in_memory = dataclasses.replace(settings, batch_size=None)
    assert_equal(found, sampled(model, rows(), in_memory))


def test_rounds_are_traced_once_and_see_a_batch_after_another(files: str) -> None:
    """With a step size of nothing codes stay where the encoder draws them: of each batch anew."""
    data = stream(files, shuffle_buffer=0)
    settings = dataclasses.replace(
        SETTINGS, steps_per_batch=2, encoder=dataclasses.replace(SETTINGS.encoder, num_steps=0)
    )
    sampler = mcmc.sghmc.build(1e-12, 0.1)
    algorithm = AmortizedSampling(bae(), data, settings, sampler)
    chain = algorithm.initial()
    for number in range(3):
        chain, _ = algorithm.round(chain, number)
        seeds = tf.unstack(tf.random.split(algorithm.seed_of(0, number), 4, alg="philox"))
        last = prepare_data(algorithm.model, rows()).gather(
            tf.range(16 * (2 * number + 1), 16 * (2 * number + 2)) % N
        )
        seed = tf.random.fold_in(seeds[1], 1, alg="philox")
        codes = algorithm.model.encoder.sample(last.Y, seed, mask=last.mask)
        found = of_chain(chain, 0).sampler.position.codes
        np.testing.assert_allclose(found, codes, atol=1e-6)
    assert algorithm.tracing_count == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fit_starts_from_a_sample_and_goes_on_with_the_stream(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its posterior is conditioned on that sample; here all rows, so predictions are known."""
    for name, steps in (("fit", "_VARIATIONAL_STEPS"), ("starts.default_start", "NUM_STEPS")):
        module = importlib.import_module(f"gpflow_bae.inference.{name}")
        monkeypatch.setattr(module, steps, 50)
    X, Y = rows()
    data = stream(files)
    posterior = fit(svgp_vae(), data, progress=False, out_dir=tmp_path)
    assert isinstance(posterior, Posterior)
    assert (posterior.num_points, posterior.data.num_points) == (N, N)
    given = posterior.predict_y(X, given=(X, Y))
    np.testing.assert_allclose(posterior.predict_y(X), given, rtol=1e-6)
    again = fit(svgp_vae(), stream(files), progress=False, out_dir=tmp_path, resume=True)
    np.testing.assert_array_equal(again.predict_y(X), posterior.predict_y(X))


def refusals() -> list[Any]:
    def changed(**changes: Any) -> Any:
        return dataclasses.replace(SETTINGS, **changes)

    carried = 'codes="carried" keeps the codes of all 60 points'
    step = {"steps_per_batch": 1}
    return [
        (bae, changed(codes="carried"), {}, carried),
        (bae, changed(batch_size=None), {}, "batch_size must be set for a stream"),
        (bae, SETTINGS, {"moves": ("code_scale",)}, 'codes="encoder" draws the codes anew'),
        (bae, changed(coordinates="fisher"), {}, 'coordinates="fisher" are fitted to all points'),
        (bae, changed(gradients="control_variates", **step), {}, "a gradient of all points"),
        (svgp_vae, changed(coordinates="prior"), {}, 'coordinates="prior" are fitted to all'),
    ]


@pytest.mark.parametrize(("model", "settings", "options", "words"), refusals())
def test_what_needs_all_points_is_refused_before_a_chain_starts(
    model: Any, settings: Any, options: dict[str, Any], words: str, files: str
) -> None:
    with pytest.raises(ValueError, match=words):
        sampled(model, stream(files), settings, **options)


def test_models_and_settings_of_fits_that_need_all_points_are_refused(files: str) -> None:
    data = stream(files)
    few = inference.VariationalSettings(num_steps=5, batch_size=16)
    with pytest.raises(ValueError, match="batch_size must be set for a stream"):
        inference.fit_variational(svgp_vae(), data, inference.VariationalSettings())
    with pytest.raises(ValueError, match="batch_size of outputs is for data in memory"):
        columns = dataclasses.replace(few, batch_size=(few.batch_size, 2))
        inference.fit_variational(svgp_vae(), data, columns)
    parts = {"decoder": svgp_vae().decoder, "likelihood": likelihoods.Gaussian(0.3)}
    kernel, gaussian = gpflow.kernels.SquaredExponential(), svgp_vae().encoder
    refused = {
        "needs all 60 points at once": models.GPPVAE(
            kernel, np.zeros((2, 1)), encoder=gaussian, latent_dim=L, **parts
        ),
        "needs other points": models.VariationalAutoencoder(
            latent_priors.NearestNeighbourGP(kernel, rows()[0], L), encoder=gaussian, **parts
        ),
        "codes of its own for each point": models.VariationalAutoencoder(
            latent_priors.StandardNormal(L),
            encoder=encoders.FreeFormEncoder(1, N, L),
            **parts,
        ),
    }
    for words, model in refused.items():
        with pytest.raises(ValueError, match=words):
            inference.fit_variational(model, data, few)
    with pytest.raises(ValueError, match="takes a stream for variational models only, got BAE"):
        fit(bae(), data)
