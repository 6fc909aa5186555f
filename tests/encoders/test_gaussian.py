"""Gaussian encoders: moments, clipping, draws and density."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.encoders import Encoder, GaussianEncoder

SEED = tf.constant([3, 4])


def _linear(mean: np.ndarray, log_scale: list[float], **kwargs: Any) -> GaussianEncoder:
    """Mean Y @ ``mean [P, L]``, constant log standard deviation [L]."""
    num_outputs, latent_dim = mean.shape
    network = keras.Sequential([keras.Input((num_outputs,)), keras.layers.Dense(2 * latent_dim)])
    kernel = np.concatenate([mean, np.zeros_like(mean)], 1)
    network.set_weights([kernel, np.concatenate([np.zeros(latent_dim), log_scale])])
    return GaussianEncoder(network, **kwargs)


MEAN = np.array([[1.0, 0.0], [0.0, -2.0], [0.5, 0.5]])


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_moments_of_a_linear_encoder(lead: tuple[int, ...]) -> None:
    """Mean Y W and variance exp(2 log s), in default_float(); the network's float32 rounding."""
    encoder = _linear(MEAN, [0.0, -1.0])
    Y = np.random.default_rng(0).normal(size=(*lead, 6, 3))
    mean, variance = encoder(Y)
    assert isinstance(encoder, Encoder) and encoder.latent_dim == 2
    assert mean.dtype == variance.dtype == tf.float64
    np.testing.assert_allclose(mean, Y @ MEAN, rtol=1e-5, atol=1e-5)
    expected = np.broadcast_to(np.exp([0.0, -2.0]), (*lead, 6, 2))
    np.testing.assert_allclose(variance, expected, rtol=1e-6)


def test_variance_is_clipped() -> None:
    """Log standard deviations of -50 and 50 stop at the bounds, by default 1e-6 and 1e3."""
    Y = np.zeros((1, 3))
    _, variance = _linear(MEAN, [-50.0, 50.0])(Y)
    np.testing.assert_allclose(variance, [[1e-6, 1e3]], rtol=1e-9)
    _, variance = _linear(MEAN, [-50.0, 50.0], min_variance=0.01, max_variance=4.0)(Y)
    np.testing.assert_allclose(variance, [[0.01, 4.0]], rtol=1e-9)


def test_sample_is_reproducible_by_seed() -> None:
    """Equal seeds, equal draws, eager and traced; another seed, another draw everywhere."""
    encoder = _linear(MEAN, [0.0, -1.0])
    Y = np.random.default_rng(0).normal(size=(2, 6, 3))
    draw = encoder.sample(Y, SEED)
    np.testing.assert_array_equal(draw, encoder.sample(Y, SEED))
    traced = tf.function(encoder.sample, autograph=False)(Y, SEED)
    np.testing.assert_allclose(draw, traced, rtol=1e-6, atol=1e-6)
    assert np.all(draw != encoder.sample(Y, tf.constant([3, 5])))


def test_samples_have_the_moments() -> None:
    """20,000 standardised draws per channel are N(0, 1).

    Five standard errors: 5 / sqrt(20000) = 0.035 for the mean, sqrt(2) times that for the variance
    and, with correlation 0, 0.035 for the product of the channels.
    """
    encoder = _linear(MEAN, [0.7, -1.0])
    Y = np.random.default_rng(0).normal(size=(20000, 3))
    mean, variance = encoder(Y)
    standardised = ((encoder.sample(Y, SEED) - mean) / tf.sqrt(variance)).numpy()
    np.testing.assert_allclose(standardised.mean(0), 0.0, atol=0.035)
    np.testing.assert_allclose(standardised.var(0), 1.0, atol=0.05)
    np.testing.assert_allclose(np.prod(standardised, -1).mean(), 0.0, atol=0.035)


def test_log_prob_equals_tfd() -> None:
    """The density of a diagonal Gaussian with the encoder's moments, per point."""
    encoder = _linear(MEAN, [0.7, -1.0])
    rng = np.random.default_rng(0)
    Y, latents = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 2))
    mean, variance = encoder(Y)
    expected = tfp.distributions.MultivariateNormalDiag(mean, tf.sqrt(variance)).log_prob(latents)
    np.testing.assert_allclose(encoder.log_prob(Y, latents), expected, rtol=1e-12)


def test_missing_entries_are_zeros_to_the_network() -> None:
    """A zero drops a linear network's column. A NaN is not hidden: it shows, in its own row only.

    Turning NaN into zero is the work of the data layer, outside of the encoder.
    """
    encoder = _linear(MEAN, [0.0, 0.0])
    Y = np.random.default_rng(0).normal(size=(4, 3))
    zeroed = Y * [1.0, 0.0, 1.0]
    np.testing.assert_allclose(
        encoder(zeroed)[0], Y[:, [0, 2]] @ MEAN[[0, 2]], rtol=1e-5, atol=1e-5
    )
    Y[1, 1] = np.nan
    mean, _ = encoder(Y)
    np.testing.assert_array_equal(np.isnan(mean).any(-1), [False, True, False, False])


def test_weights_have_no_prior() -> None:
    """The encoder is optimised, not sampled."""
    assert all(weight.prior is None for weight in _linear(MEAN, [0.0, 0.0]).weights)


def test_odd_number_of_outputs_is_refused() -> None:
    """Means and log standard deviations come in pairs."""
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="2 L outputs.*network has 3.*even number"):
        GaussianEncoder(network)


def test_the_network_of_a_mask_taking_encoder_sees_the_mask() -> None:
    """Means [y, mask] W of a linear network; an encoder that does not take the mask ignores it."""
    kernel = np.concatenate([MEAN, 10.0 * MEAN])
    rng = np.random.default_rng(0)
    Y, mask = rng.normal(size=(2, 6, 3)), rng.random((2, 6, 3)) < 0.5
    network = _linear(kernel, [0.0, -1.0]).model
    encoder = GaussianEncoder(network, takes_mask=True)
    expected = Y @ MEAN + 10.0 * mask @ MEAN
    np.testing.assert_allclose(encoder(Y, mask=mask)[0], expected, rtol=1e-5, atol=1e-5)
    expected = Y @ MEAN + 10.0 * MEAN.sum(0)  # everything observed
    np.testing.assert_allclose(encoder(Y)[0], expected, rtol=1e-5, atol=1e-5)
    blind = _linear(MEAN, [0.0, -1.0])
    for a, b in zip(blind(Y, mask=mask), blind(Y), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(blind.sample(Y, SEED, mask=mask), blind.sample(Y, SEED))
    assert blind.side_inputs(mask) == {} and encoder.side_inputs(mask) == {"mask": mask}


def test_a_mask_needs_an_even_number_of_inputs() -> None:
    """Observations and mask come in pairs."""
    with pytest.raises(ValueError, match="observations and mask, 2 P of them, but it takes 3"):
        _linear(MEAN, [0.0, 0.0], takes_mask=True)
