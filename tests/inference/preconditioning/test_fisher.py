"""Coordinates fitted to a chain: closed forms of the information, and rounds in them."""

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
import tensorflow_probability as tfp

from gpflow_bae import decoders, inference, likelihoods, mcmc
from gpflow_bae.base import Batch
from gpflow_bae.core.tracing import compiled
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chain_state import Point
from gpflow_bae.inference.engines.amortized import AmortizedSampling
from gpflow_bae.inference.preconditioning import FisherPreconditioner
from gpflow_bae.inference.preconditioning.information import FisherInformation, cell_information
from tests.inference.amortized_models import SETTINGS, L, P, random_data, sgp_bae, whitened

tfd = tfp.distributions
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
    fit = compiled(FisherPreconditioner(model, data, 0, no_restart, model.sampled.paths).fit)
    metric = fit(position, tf.constant([0, 1]))
    return dict(zip(model.sampled.paths, metric.parameters, strict=True)), position, data


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
    matrix = tf.reshape(kernel.forward(units), [L * P, L * P]).numpy().T.astype(float)
    information = np.zeros((L * P, L * P))
    for p in range(P):
        block = codes.T @ (codes * observed[:, p : p + 1]) / 0.3
        information[p::P, p::P] = block
    whitened_precision = matrix.T @ (information + np.eye(L * P)) @ matrix
    np.testing.assert_allclose(np.diag(whitened_precision), 1.0, atol=0.3)


def test_codes_have_the_information_of_their_own_observations() -> None:
    """Of code n under a linear decoder: W diag(observed / variance) W^T.

    The mean of 64 squares has a standard error of 18 per cent, of all 60 points together 2.3.
    """
    model = sgp_bae()
    model.decoder = linear_model().decoder
    data = prepare_data(model, random_data(3, 20), None)
    codes = tf.constant(np.random.default_rng(1).standard_normal((3, 20, L)))
    position = Point(model.sampled.values(), codes)
    metric = FisherPreconditioner(model, data, 0, no_restart, model.sampled.paths)
    found = compiled(metric.fit)(position, tf.constant([0, 1])).information.numpy()
    W = model.decoder.weights[0].numpy().astype(float)
    observed = np.ones(data.Y.shape) if data.mask is None else data.mask.numpy().astype(float)
    variance = model.likelihood.variance.numpy()
    expected = np.einsum("lp,tnp,kp->tnlk", W, observed, W) / variance
    size = np.trace(expected.mean((0, 1)))
    np.testing.assert_allclose(found.mean((0, 1)), expected.mean((0, 1)), atol=0.1 * size)
    np.testing.assert_allclose(found, expected, atol=0.9 * size)
    assert np.linalg.eigvalsh(found).min() > -1e-9 * size
    np.testing.assert_array_equal(metric.initial().information, np.zeros_like(found))


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


class CoupledNoise(gpflow.likelihoods.ScalarLikelihood):
    """A Gaussian of precision exp(a b_0 + b_1), whose parameters all interact."""

    def __init__(self) -> None:
        super().__init__()
        self.a = gpflow.Parameter(0.7, prior=tfd.Normal(np.float64(0.0), np.float64(1.0)))
        self.b = gpflow.Parameter([0.5, 0.3], prior=tfd.Normal(np.float64(0.0), np.float64(1.0)))

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        rate = tf.cast(self.a * self.b[0] + self.b[1], F.dtype)
        return 0.5 * (rate - tf.square(Y - F) * tf.exp(rate))

    def _conditional_mean(self, X: Any, F: Any) -> Any:
        return F

    def _conditional_variance(self, X: Any, F: Any) -> Any:
        return tf.ones_like(F)


def test_parameters_of_a_likelihood_that_interact_have_the_diagonal_of_its_hessian() -> None:
    """With r = sum (y - f)^2 exp(a b_0 + b_1) / 2: b_0^2 r, a^2 r and r.

    Row sums, such as b_0 (b_0 + a + 1) r + a term of the mixed derivative, would be larger.
    """
    model = linear_model()
    model.likelihood = likelihoods.masked(CoupledNoise())
    data = prepare_data(model, DATA, None)
    codes = tf.constant(np.random.default_rng(1).standard_normal((1, 60, L)))
    position = Point(model.sampled.values(), codes)
    information = FisherInformation(model, data)
    found = compiled(lambda: information.precision(position, 0.0))()
    batch = data.gather(None)
    F = model.decode(batch.X, model.from_whitened(batch.X, codes)).numpy()
    r = 0.5 * np.sum(np.square(batch.Y - F)[batch.mask]) * np.exp(0.7 * 0.5 + 0.3)
    for path, second in ((".a", 0.5**2 * r), (".b", [0.7**2 * r, r])):
        (place,) = (i for i, p in enumerate(model.sampled.paths) if p.endswith(path))
        # The prior's precision is 1. Sums are of float32.
        np.testing.assert_allclose(found[place], np.array(second) + 1.0, rtol=1e-4)


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


@pytest.fixture(scope="module")
def history() -> tuple[AmortizedSampling, list[Any]]:
    """A chain's states before each round, through half of its burn-in of 32 rounds."""
    chain = algorithm(burnin=128)
    states = [chain.initial()]
    for number in range(18):
        states.append(chain.round(states[-1], number)[0])
    return chain, states


def test_coordinates_are_fitted_in_burn_in_and_stay(history: Any) -> None:
    """At states, then on average over the rounds 9 to 16; positions stay, the sampler rests."""
    chain, states = history
    for number, (before, after) in enumerate(itertools.pairwise(states)):
        pairs = zip(before.metric.parameters, after.metric.parameters, strict=True)
        changed = any(not np.array_equal(a.scale, b.scale) for a, b in pairs)
        assert changed == (number in (0, 2, 4, 8, 16)), number
    for number in (8, 16):
        refitted = chain.preconditioner.before_round(states[-1], number, tf.constant([[3, 4]]))
        tf.nest.map_structure(
            np.testing.assert_array_equal, states[-1].sampler.position, refitted.sampler.position
        )
        for momentum in tf.nest.flatten(refitted.sampler.elements["momentum"]):
            assert not np.any(momentum)
    assert chain.tracing_count == 1


def test_in_the_end_the_information_is_an_average_over_states(history: Any) -> None:
    """Of biases: observations / variance, here with variances of 0.1 and 1 in turns; of all biases
    together, whatever their basis. 300 draws of 5 numbers have a standard error of 4 per cent.
    """
    chain, states = history
    place, noise = (
        chain.sampled.paths.index(path) for path in (".decoder.weights[1]", ".likelihood.variance")
    )
    transform = chain.sampled.parameters[noise].transform
    state = states[9]
    for number in range(9, 17):
        position = state.sampler.position
        parameters = list(position.parameters)
        value = tf.fill(parameters[noise].shape, 1.0 if number % 2 else 0.1)
        parameters[noise] = transform.inverse(tf.cast(value, parameters[noise].dtype))
        position = position._replace(parameters=tuple(parameters))
        state = state._replace(sampler=state.sampler._replace(position=position))
        state = chain.preconditioner.before_round(state, number, tf.constant([[5, number]]))
    expected = chain.data.mask.numpy().sum() * 5.5 * (1.0 + 1e-3) + P
    scale = state.metric.parameters[place].scale.numpy()
    np.testing.assert_allclose(np.sum(scale**-2.0), expected, rtol=0.15)


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
    model = sgp_bae()
    settings = dataclasses.replace(SETTINGS, coordinates="fisher")
    data = prepare_data(model, random_data(3, 5), None)
    with pytest.raises(ValueError, match=r'coordinates="fisher" depend on \.latent_prior'):
        AmortizedSampling(model, data, settings, mcmc.sghmc.build(), moves=())
    moved = AmortizedSampling(model, data, settings, mcmc.sghmc.build())
    names = [move.name for move in moved.moves]
    assert names == ["code_scale", "prior_parameters", "likelihood_parameters"]
