"""Stochastic encoders: where the noise goes in, and what comes out."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.encoders import Encoder, StochasticEncoder

SEED = tf.constant([3, 4])


def _linear(kernel: np.ndarray, noise_dim: int | None = None) -> StochasticEncoder:
    """latents = [y, epsilon] @ ``kernel``."""
    rows, columns = kernel.shape
    network = keras.Sequential([keras.Input((rows,)), keras.layers.Dense(columns, use_bias=False)])
    network.set_weights([kernel])
    return StochasticEncoder(network, noise_dim)


# Three observed columns, then noise of width 2, to two codes.
KERNEL = np.array([[1.0, 0.0], [0.0, -2.0], [0.5, 0.5], [0.3, 0.0], [0.4, 2.0]])


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_features_come_before_noise(lead: tuple[int, ...]) -> None:
    """A linear network is y A + epsilon B, with the rows of its kernel in that order; float32."""
    encoder = _linear(KERNEL, noise_dim=2)
    rng = np.random.default_rng(0)
    Y, noise = rng.normal(size=(*lead, 6, 3)), rng.normal(size=(*lead, 6, 2))
    codes = encoder(Y, noise)
    assert isinstance(encoder, Encoder) and encoder.latent_dim == 2
    assert codes.dtype == tf.float64
    expected = Y @ KERNEL[:3] + noise @ KERNEL[3:]
    np.testing.assert_allclose(codes, expected, rtol=1e-5, atol=1e-5)


def test_noise_has_the_shape_of_y_by_default() -> None:
    """Half of the network's inputs, as in Tran et al. (2023)."""
    assert _linear(np.ones((6, 2))).noise_dim == 3


def test_sample_is_reproducible_by_seed() -> None:
    """Equal seeds, equal draws, eager and traced; another seed, another draw everywhere."""
    encoder = _linear(KERNEL, noise_dim=2)
    Y = np.random.default_rng(0).normal(size=(2, 6, 3))
    draw = encoder.sample(Y, SEED)
    np.testing.assert_array_equal(draw, encoder.sample(Y, SEED))
    traced = tf.function(encoder.sample, autograph=False)(Y, SEED)
    np.testing.assert_allclose(draw, traced, rtol=1e-5, atol=1e-5)
    assert np.all(draw != encoder.sample(Y, tf.constant([3, 5])))


def test_samples_of_a_linear_encoder_are_gaussian() -> None:
    """Around y A with covariance B^T B, B the kernel's noise rows: here [[.25, .8], [.8, 4]].

    20,000 draws; five standard errors of a covariance of entries c are
    5 sqrt((c_ii c_jj + c_ij^2) / 20000).
    """
    encoder = _linear(KERNEL, noise_dim=2)
    Y = np.random.default_rng(0).normal(size=(20000, 3))
    residual = encoder.sample(Y, SEED).numpy() - Y @ KERNEL[:3]
    expected = KERNEL[3:].T @ KERNEL[3:]
    diagonal = np.diag(expected)
    error = np.sqrt((np.outer(diagonal, diagonal) + expected**2) / 20000)
    assert np.all(np.abs(residual.T @ residual / 20000 - expected) < 5 * error)
    assert np.all(np.abs(residual.mean(0)) < 5 * np.sqrt(diagonal / 20000))


def test_missing_entries_are_zeros_to_the_network() -> None:
    """A NaN is not hidden, and touches its own row only; zeros are put in outside."""
    encoder = _linear(KERNEL, noise_dim=2)
    Y = np.zeros((4, 3))
    Y[1, 1] = np.nan
    codes = encoder.sample(Y, SEED)
    np.testing.assert_array_equal(np.isnan(codes).any(-1), [False, True, False, False])


def test_weights_have_no_prior() -> None:
    """The encoder is optimised, not sampled."""
    assert all(weight.prior is None for weight in _linear(KERNEL, noise_dim=2).weights)


def test_odd_width_needs_noise_dim() -> None:
    """Noise of the shape of y needs an even number of inputs."""
    with pytest.raises(ValueError, match="takes 5 inputs, which is odd.*pass noise_dim"):
        _linear(KERNEL)


@pytest.mark.parametrize("noise_dim", [0, -1, 5, 6])
def test_noise_dim_must_leave_room_for_features(noise_dim: int) -> None:
    """At least one noise and one feature among the 5 inputs."""
    with pytest.raises(ValueError, match=f"between 1 and 4 .*got {noise_dim}"):
        _linear(KERNEL, noise_dim)


def test_the_mask_comes_between_features_and_noise() -> None:
    """Codes [y, mask, epsilon] W of a linear network; by default epsilon has the shape of y."""
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(9, 2))
    network = _linear(kernel, 1).model
    encoder = StochasticEncoder(network, takes_mask=True)
    assert encoder.noise_dim == 3
    Y, noise = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 3))
    mask = rng.random((2, 6, 3)) < 0.5
    for given, seen in ((mask, mask), (None, np.ones_like(mask))):
        expected = Y @ kernel[:3] + seen @ kernel[3:6] + noise @ kernel[6:]
        np.testing.assert_allclose(encoder(Y, noise, given), expected, rtol=1e-5, atol=1e-5)
    blind = _linear(KERNEL, noise_dim=2)
    np.testing.assert_array_equal(blind.sample(Y, SEED, mask=mask), blind.sample(Y, SEED))


def test_widths_of_mask_taking_encoders() -> None:
    """2 P + noise_dim inputs."""
    network = _linear(KERNEL, noise_dim=2).model
    with pytest.raises(ValueError, match="takes 5 inputs, which is not divisible by 3"):
        StochasticEncoder(network, takes_mask=True)
    with pytest.raises(ValueError, match="2 P . noise_dim, but it takes 5 and noise_dim is 2"):
        StochasticEncoder(network, 2, takes_mask=True)
