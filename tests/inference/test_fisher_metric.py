"""Coordinates fitted to a chain: closed forms of the information, and rounds in them."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, inference, likelihoods, mcmc, models
from gpflow_bae.base import Batch
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.amortized import AmortizedSampling
from gpflow_bae.inference.chain_state import Point
from gpflow_bae.inference.fisher_metric import FisherMetric, cell_information
from gpflow_bae.tracing import compiled
from tests.inference.amortized_models import SETTINGS, L, P, network, random_data, whitened

DATA = random_data(1, 60)


def linear_model() -> Any:
    """Whose decoder is one matrix, so that its information is known."""
    keras.utils.set_random_seed(0)
    model = whitened()
    network = keras.Sequential([keras.Input((L,)), keras.layers.Dense(P)])
    model.decoder = decoders.KerasDecoder(network)
    return model


def no_restart(position: Point) -> Any:
    raise AssertionError


def fitted(model: Any) -> tuple[dict[str, Any], Point, Any]:
    """Coordinates by path, where they are those of, and the data."""
    data = prepare_data(model, DATA, None)
    codes = tf.constant(np.random.default_rng(1).standard_normal((1, 60, L)))
    position = Point(model.sampled.values(), codes)
    factors = compiled(FisherMetric(model, data, 0, no_restart).fit)(position, tf.constant([0, 1]))
    return dict(zip(model.sampled.paths, factors, strict=True)), position, data


def test_a_linear_decoder_has_the_information_of_a_regression() -> None:
    """Of weight (l, p): sum over observed y_np of z_nl^2 / variance, and the prior's precision.

    600 variances of 300 draws each have a standard error of 8 per cent.
    """
    model = linear_model()
    factors, position, data = fitted(model)
    kernel, bias = (factors[f".decoder.weights[{i}]"] for i in range(2))
    codes = model.from_whitened(data.X, position.codes).numpy()[0]
    observed = data.mask.numpy()[0].astype(float)
    expected = observed.sum(0) / 0.3
    found = np.square(1.0 / bias.scale.numpy())
    np.testing.assert_allclose(found, expected + 1.0 + 1e-3 * expected.mean(), rtol=0.3)
    units = tf.reshape(tf.eye(L * P, dtype=kernel.scale.dtype), [L * P, L, P])
    matrix = tf.reshape(kernel.to_value(units), [L * P, L * P]).numpy().T.astype(float)
    information = np.zeros((L * P, L * P))
    for p in range(P):
        block = codes.T @ (codes * observed[:, p : p + 1]) / 0.3
        information[p::P, p::P] = block
    whitened_precision = matrix.T @ (information + np.eye(L * P)) @ matrix
    np.testing.assert_allclose(np.diag(whitened_precision), 1.0, atol=0.3)


def test_a_noise_variance_has_the_curvature_of_its_own_likelihood() -> None:
    """By differences of the log likelihood at what is decoded: the decoder does not see it."""
    model = linear_model()
    factors, position, data = fitted(model)
    place = model.sampled.paths.index(".likelihood.variance")
    batch = data.gather(None)

    def density(shift: float) -> float:
        values = list(position.parameters)
        values[place] = values[place] + shift
        bound = model.bind(values)
        F = bound.decode(batch.X, bound.from_whitened(batch.X, position.codes))
        likelihood = tf.reduce_sum(bound.likelihood.masked_log_prob(F, batch.Y, batch.mask))
        prior = model.sampled.log_prior(values)
        return float(likelihood) + float(prior)

    e = 1e-2  # of a number of order 1, in float32
    curvature = -(density(e) - 2 * density(0.0) + density(-e)) / e**2
    np.testing.assert_allclose(factors[".likelihood.variance"].scale ** -2, curvature, rtol=0.05)


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [
        (likelihoods.Gaussian(0.25), lambda F: 4.0 + 0.0 * F),
        (likelihoods.Bernoulli(), lambda F: 0.25 / np.cosh(F / 2.0) ** 2),
        (likelihoods.masked(gpflow.likelihoods.Poisson()), np.exp),
    ],
    ids=["gaussian", "bernoulli", "poisson"],
)
def test_the_information_of_cells(likelihood: Any, expected: Any) -> None:
    """Fisher's, in closed form; none where nothing was observed."""
    rng = np.random.default_rng(2)
    F = rng.normal(size=(2, 4, 3))
    Y = rng.integers(0, 2, F.shape).astype(float)
    mask = rng.uniform(size=F.shape) < 0.7
    batch = Batch(None, tf.constant(Y), tf.constant(mask))
    found = cell_information(likelihood, tf.constant(F), batch)
    np.testing.assert_allclose(found, np.where(mask, expected(F), 0.0), rtol=1e-6)


def algorithm(**changes: Any) -> AmortizedSampling:
    model = linear_model()
    settings = dataclasses.replace(SETTINGS, coordinates="fisher", **changes)
    sampler = mcmc.sghmc.build(0.1, 0.2, integrator="baoab")
    return AmortizedSampling(model, prepare_data(model, DATA, None), settings, sampler)


def test_coordinates_are_fitted_in_burn_in_and_stay() -> None:
    """Fits leave positions and encoders alone, and put the sampler at rest."""
    chain = algorithm(burnin=32)  # eight rounds
    before = chain.initial()
    for number in range(10):
        after, _ = chain.round(before, number)
        changed = any(
            not np.array_equal(a, b)
            for a, b in zip(
                tf.nest.flatten(before.metric), tf.nest.flatten(after.metric), strict=True
            )
        )
        assert changed == (number in (0, 1, 2, 4)), number
        before = after
    assert chain._metric is not None
    refitted = chain._metric.before_round(before, 0, tf.constant([[3, 4]]))
    tf.nest.map_structure(
        np.testing.assert_array_equal, before.sampler.position, refitted.sampler.position
    )
    for momentum in tf.nest.flatten(refitted.sampler.elements["momentum"]):
        assert not np.any(momentum)
    assert chain.tracing_count == 1


def test_a_run_goes_on_in_the_coordinates_it_had(tmp_path: pathlib.Path) -> None:
    settings = dataclasses.replace(SETTINGS, coordinates="fisher", num_samples=4)
    sampler = mcmc.step_size.from_curvature(mcmc.sghmc.build(0.1, 0.2, integrator="baoab"))

    def run(**options: Any) -> Any:
        return inference.sample_amortized(
            linear_model(),
            DATA,
            settings,
            sampler=sampler,
            warm_start=None,
            progress=False,
            **options,
        )

    whole = run()
    run(out_dir=tmp_path / "a", max_samples=2)
    resumed = run(out_dir=tmp_path / "a", resume=True)
    for a, b in zip(whole.parameters, resumed.parameters, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.latents, resumed.latents)


def test_coordinates_that_steps_would_change_are_refused() -> None:
    """Codes that are whitened by their prior depend on its kernel."""
    from tests.inference.amortized_models import sgp_bae

    model = sgp_bae()
    settings = dataclasses.replace(SETTINGS, coordinates="fisher")
    data = prepare_data(model, random_data(3, 5), None)
    with pytest.raises(ValueError, match=r'coordinates="fisher" depend on \.latent_prior'):
        AmortizedSampling(model, data, settings, mcmc.sghmc.build())
    moved = dataclasses.replace(settings, moves=("prior_parameters",))
    AmortizedSampling(model, data, moved, mcmc.sghmc.build())
    with pytest.raises(ValueError, match='"fisher" are for samplers of gradients, and hmc'):
        inference.sample_amortized(
            models.TemperedBAE(network(P, L), network(L, P)),
            (None, DATA[1][0]),
            settings,
            sampler=mcmc.hmc.build(0.1, 3),
        )
