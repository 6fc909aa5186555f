"""Coordinates from a chain's own draws, as Stan adapts its metric."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import inference, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.chain_state import Point
from gpflow_bae.inference.draw_covariance import DrawCoordinates, DrawCovariance, windows
from tests.inference.test_evidence_sampling import SAMPLER, SETTINGS, data, model
from tests.reference import linear_codes


@pytest.mark.parametrize(
    "rounds, expected",
    [
        (2, (1, ())),
        (3, (1, (2,))),
        (20, (3, (4, 6, 10, 18))),
        (100, (15, (20, 30, 50, 90))),
    ],
)
def test_windows_double_and_the_last_takes_what_is_left(
    rounds: int, expected: tuple[int, tuple[int, ...]]
) -> None:
    assert windows(rounds) == expected


@pytest.mark.parametrize("dense", [True, False])
def test_gathered_draws_have_the_moments_of_numpy(dense: bool) -> None:
    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(3, 3))) + 2.0 * np.eye(3)
    root = root if dense else np.diagonal(root)
    coordinates = DrawCoordinates(
        tf.constant(root), tf.constant(0.0, tf.float64), tf.zeros(3, tf.float64), 0.0 * root
    )
    draws = rng.normal(size=(7, 3))
    for draw in draws:
        point = Point((tf.constant(draw[:1]), tf.constant(draw[1:])), ())
        coordinates = coordinates.with_draw(point)
    values = draws @ root.T if dense else draws * root
    covariance = np.cov(values.T)
    np.testing.assert_allclose(coordinates.mean, values.mean(0), rtol=1e-12)
    expected = covariance if dense else np.diagonal(covariance)
    np.testing.assert_allclose(coordinates.scatter / 6.0, expected, rtol=1e-12)
    back = coordinates.from_natural(coordinates.to_natural(point))
    np.testing.assert_allclose(back.parameters[1], draws[-1, 1:], rtol=1e-12)
    # d f / d u of f = sum of values.
    gradient = coordinates.gradient(Point((tf.ones(1, tf.float64), tf.ones(2, tf.float64)), ()))
    by_hand = root.sum(0) if dense else root
    np.testing.assert_allclose(np.concatenate(gradient.parameters), by_hand, rtol=1e-12)


@pytest.mark.parametrize("kind", ["covariance", "variances"])
def test_coordinates_are_those_of_the_posterior(kind: str) -> None:
    """Of two parameters, beside the covariance of later samples of the same chain.

    Tolerance: a factor of 1.6, for a window of 300 correlated draws (worth some eighty) beside
    150 samples; before the first window the second coordinate is off by a factor of seven.
    """
    built = model()
    settings = dataclasses.replace(SETTINGS, coordinates=kind, burnin=600)
    algorithm = inference.EvidenceSampling(built, prepare_data(built, data()), settings, SAMPLER)
    chains, samples = algorithm.initial(), []
    for number in range(settings.burnin_rounds + 150):
        chains, _ = algorithm.round(chains, number)
        if number == settings.burnin_rounds - 1:
            root = chains.metric.root[0].numpy()
        elif number >= settings.burnin_rounds:
            samples.append(np.ravel([v[0] for v in chains.sampler.position.parameters]))
    np.testing.assert_array_equal(chains.metric.root[0], root)  # fixed after burn-in
    variances = np.var(samples, 0)
    found = np.sum(root**2, 1) if kind == "covariance" else root**2
    assert variances[1] < 0.25 and algorithm.tracing_count == 1
    assert np.all(np.abs(np.log(found / variances)) < np.log(1.6))


@pytest.mark.parametrize("kind", ["covariance", "variances"])
def test_resumed_is_uninterrupted(kind: str) -> None:
    """All weights of a small network, stopped within a window: its draws are in the checkpoint."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(12, 2)).astype(np.float32)
    encoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "tanh")])
    decoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    built = models.TemperedBAE(encoder, decoder)
    settings = inference.AmortizedSettings(
        num_sampler_steps=2, burnin=40, num_samples=2, thinning=2, coordinates=kind
    )

    def algorithm() -> inference.WeightSampling:
        sampler = mcmc.sghmc.build(0.05, 0.1, integrator="baoab")
        return inference.WeightSampling(built, prepare_data(built, (None, Y)), settings, sampler)

    whole = algorithm()
    chains = whole.initial()
    for number in range(22):
        if number == 7:
            stored = whole.arrays(chains)
        chains, _ = whole.round(chains, number)
    other = algorithm()
    again = other.restore(stored)
    for number in range(7, 22):
        again, _ = other.round(again, number)
    for name, values in whole.arrays(chains).items():
        np.testing.assert_array_equal(other.arrays(again)[name], values, err_msg=name)
    assert not np.allclose(chains.metric.root, whole.initial().metric.root)


@pytest.mark.parametrize("kind", ["covariance", "variances"])
def test_codes_and_parameters_have_coordinates_together(kind: str) -> None:
    """Forty codes of five tasks in closed form, sampled in coordinates of their own covariance.

    600 samples ten steps apart, at h = 0.5 standard deviations, are all but independent:
    a variance averaged over the tasks has an error of sqrt(2 / 3000) = 2.6 %, a mean one of 0.018
    standard deviations; tolerances are five of those. BAOAB has no bias where all is Gaussian.
    """
    Y = linear_codes.observations()[:5]
    settings = inference.AmortizedSettings(
        num_sampler_steps=10,
        num_encoder_steps=0,
        burnin=2000,
        num_samples=600,
        thinning=10,
        codes="carried",
        coordinates=kind,
    )
    posterior = inference.sample_amortized(
        linear_codes.fixed_model(),
        (linear_codes.X, Y),
        settings,
        sampler=mcmc.sghmc.build(0.5 if kind == "covariance" else 0.3, 0.3, integrator="baoab"),
        progress=False,
        warm_start=None,
    )
    kernel = linear_codes.kernel_matrix(linear_codes.X, linear_codes.X)
    noisy = kernel + linear_codes.CODE_NOISE * np.eye(len(kernel))
    mean, variance = linear_codes.exact(noisy, np.diag(noisy))
    codes = posterior.latents[..., 0]
    error = (codes.mean(0) - mean[:5]) / np.sqrt(variance)
    assert np.abs(error.mean(0)).max() < (0.09 if kind == "covariance" else 0.15)
    np.testing.assert_allclose(codes.var(0).mean(0) / variance, 1.0, atol=0.13)
    assert not inference.blocks_off_temperature(posterior)


def test_what_holds_parameters_or_splits_codes_is_refused() -> None:
    def sample(**how: object) -> None:
        settings = inference.AmortizedSettings(burnin=400, coordinates="covariance", **how)
        sampler = mcmc.sghmc.build(0.1, 0.1)
        inference.sample_amortized(
            linear_codes.fixed_model(),
            (linear_codes.X, linear_codes.observations()[:5]),
            settings,
            sampler=sampler,
            progress=False,
            warm_start=None,
        )

    with pytest.raises(ValueError, match="of all codes and parameters together, .* batch_size=2"):
        sample(batch_size=2)
    with pytest.raises(ValueError, match="move all parameters together, and .*code_scale.* hold"):
        sample(moves=("code_scale",))
    with pytest.raises(ValueError, match='set codes="carried", got'):
        sample(codes="encoder")


def test_what_is_too_much_or_too_short_is_refused() -> None:
    like = Point((tf.zeros(1001, tf.float64),), ())
    with pytest.raises(ValueError, match="at most 1000 values, and 1001 are sampled: set coord"):
        DrawCovariance("covariance", 10, like, lambda position: None)
    DrawCovariance("variances", 10, like, lambda position: None)
    with pytest.raises(ValueError, match="at least 3 rounds of num_sampler_steps, got 2"):
        DrawCovariance("variances", 2, like, lambda position: None)
