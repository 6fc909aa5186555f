"""Keras decoders: the priors of their weights and the shapes of what they return."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.core.functional import log_prior_density, unconstrained_values
from gpflow_bae.decoders import KerasDecoder, fan_in_prior, normal_prior


def _network(width: int = 5) -> keras.Model:
    return keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(width, "tanh"), keras.layers.Dense(3)]
    )


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_leading_dimensions_are_rows(lead: tuple[int, ...]) -> None:
    """Task dimensions only arrange points: the network's output row by row."""
    network = _network()
    decoder = KerasDecoder(network)
    codes = np.random.default_rng(0).normal(size=(*lead, 6, 2))
    F = decoder(codes)
    assert (decoder.latent_dim, decoder.output_dim, F.dtype) == (2, 3, tf.float32)
    expected = network(codes.reshape(-1, 2).astype(np.float32)).numpy().reshape(*lead, 6, 3)
    np.testing.assert_allclose(F, expected, rtol=1e-5, atol=1e-6)


def test_image_outputs_are_flattened() -> None:
    """An image of 4 x 4 is 16 likelihood parameters, in row-major order."""
    network = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(16), keras.layers.Reshape((4, 4, 1))]
    )
    decoder = KerasDecoder(network)
    codes = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    assert decoder.output_dim == 16
    np.testing.assert_allclose(
        decoder(codes), network(codes).numpy().reshape(3, 16), rtol=1e-5, atol=1e-6
    )


def test_standard_normal_prior() -> None:
    """log p(w) = -|w|^2 / 2 - W log(2 pi) / 2 over all W weights and biases; float32 sums."""
    decoder = KerasDecoder(_network(), normal_prior())
    weights = np.concatenate([w.numpy().ravel() for w in decoder.weights]).astype(np.float64)
    density = log_prior_density(decoder.weights, unconstrained_values(decoder.weights))
    expected = -0.5 * np.sum(weights**2) - 0.5 * len(weights) * np.log(2.0 * np.pi)
    np.testing.assert_allclose(density, expected, rtol=1e-5)


def test_default_prior_is_by_fan_in_but_for_the_last_layer() -> None:
    """Scale 3 / sqrt(fan-in) of hidden kernels, 3 of their biases, 1 in the last layer.

    Each output of a 4 x 4 transposed convolution of 6 channels sums 4 * 4 * 6 weights, though its
    kernel is [4, 4, outputs, inputs]; a convolution's is [3, 3, inputs, outputs]. Frozen networks
    have no weights to sample.
    """
    layers = keras.layers
    shapes = [layers.Dense(24), layers.Reshape((2, 2, 6)), layers.Conv2DTranspose(5, 4)]
    network = keras.Sequential(
        [keras.Input((2,)), *shapes, layers.Conv2D(7, 3), layers.Flatten(), layers.Dense(3)]
    )
    scales = [float(w.prior.stddev()) for w in KerasDecoder(network).weights]
    hidden = [3 / np.sqrt(2), 3, 3 / np.sqrt(96), 3, 3 / np.sqrt(45), 3]
    np.testing.assert_allclose(scales, [*hidden, 1, 1], rtol=1e-6)
    linear = keras.Sequential([keras.Input((2,)), layers.Dense(3)])
    assert [float(w.prior.stddev()) for w in KerasDecoder(linear).weights] == [1.0, 1.0]
    network.trainable = False
    assert KerasDecoder(network).weights == []


@pytest.mark.parametrize("width", [20, 500])
def test_default_prior_of_hidden_units_does_not_depend_on_widths(width: int) -> None:
    """Units of the second layer, before tanh, have E[f^2] = 9 (1 + E[h^2]), h of the first layer.

    1000 draws of four units each: the standard error is 2.2 % in wide layers, and at most 3 % in
    narrow ones, where h^2 does not average out; the bound is five of it.
    """
    layers = keras.layers
    network = keras.Sequential(
        [keras.Input((1,)), layers.Dense(width), layers.Dense(4), layers.Dense(1)]
    )
    kernel, bias, inner, offset, *_ = (w.prior for w in KerasDecoder(network).weights)
    first = kernel.sample((1000, width), seed=(0, 1)) + bias.sample((1000, width), seed=(0, 2))
    h = np.tanh(first.numpy())
    inner = inner.sample((1000, width, 4), seed=(0, 3)).numpy()
    f = np.einsum("sh,shu->su", h, inner) + offset.sample((1000, 4), seed=(0, 4)).numpy()
    np.testing.assert_allclose(np.mean(f**2), 9.0 * (1.0 + np.mean(h**2)), rtol=0.15)


def test_normal_prior_scale() -> None:
    """The scale given is the standard deviation of every weight, bias or kernel."""
    decoder = KerasDecoder(_network(), normal_prior(0.3))
    for weight in decoder.weights:
        assert isinstance(weight.prior, tfp.distributions.Normal)
        np.testing.assert_allclose(weight.prior.stddev(), 0.3, rtol=1e-6)
        np.testing.assert_allclose(weight.prior.mean(), 0.0)


def test_fan_in_prior_scales() -> None:
    """scale / sqrt(fan-in): 2 inputs, 5 inputs, 3 * 3 * 4 of a convolution; scale on biases."""
    decoder = KerasDecoder(_network(), fan_in_prior(2.0))
    scales = [float(w.prior.stddev()) for w in decoder.weights]
    np.testing.assert_allclose(scales, [2 / np.sqrt(2), 2, 2 / np.sqrt(5), 2], rtol=1e-6)
    convolution = fan_in_prior(2.0)((3, 3, 4, 8))
    np.testing.assert_allclose(convolution.stddev(), 2 / np.sqrt(36), rtol=1e-6)


def test_priors_by_layer_go_to_the_weights_of_each() -> None:
    """Nested networks and layers without weights do not count; a layer's tensors share its own."""
    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4), keras.layers.Dropout(0.0)])
    scaled = keras.layers.Normalization()  # has weights that are not trainable
    last = keras.layers.LayerNormalization()
    network = keras.Sequential([keras.Input((2,)), scaled, keras.layers.Dense(5), inner, last])
    decoder = KerasDecoder(network, [fan_in_prior(2.0), normal_prior(3.0), normal_prior(0.1)])
    scales = [float(w.prior.stddev()) for w in decoder.weights]
    np.testing.assert_allclose(scales, [2 / np.sqrt(2), 2, 3, 3, 0.1, 0.1], rtol=1e-6)
    with pytest.raises(ValueError, match=r"list of 2, and the network has 3 layers .*one prior"):
        KerasDecoder(network, [normal_prior(), normal_prior()])
    for wrong in (3.0, [tfp.distributions.Normal(0.0, 1.0)] * 3):
        with pytest.raises(TypeError, match="function of a weight tensor's shape"):
            KerasDecoder(network, wrong)


@pytest.mark.parametrize("width", [10, 1000])
def test_fan_in_prior_keeps_the_spread_of_wide_layers(width: int) -> None:
    """A linear unit on ``width`` inputs of size 1 has prior variance 1 (kernel) + 1 (bias) = 2.

    4000 draws: the standard error of a Gaussian's variance is sqrt(2 / 4000) = 2.2 %; five of it.
    """
    prior = fan_in_prior(1.0)
    kernel = prior((width, 1)).sample((4000, width), seed=(1, width)).numpy()
    bias = prior((1,)).sample(4000, seed=(2, width)).numpy()
    np.testing.assert_allclose(np.var(kernel.sum(-1) + bias), 2.0, rtol=0.11)


@pytest.mark.parametrize("prior", [normal_prior, fan_in_prior])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_prior_scale_must_be_positive(prior: object, scale: float) -> None:
    """There is no normal with such a scale."""
    with pytest.raises(ValueError, match="scale of a weight prior must be positive"):
        prior(scale)


def test_summary_shows_weights_and_priors() -> None:
    """print_summary is how a GPflow user sees what is in a model."""
    summary = gpflow.utilities.tabulate_module_summary(KerasDecoder(_network()))
    rows = [line for line in summary.splitlines() if ".weights[" in line]
    assert len(rows) == 4 and all("Normal" in row for row in rows)


def test_errors_name_the_decoder() -> None:
    """The user handed over a ``decoder``; that is the word of the message."""
    with pytest.raises(TypeError, match="decoder must be a built keras.Model"):
        KerasDecoder(keras.layers.Dense(3))


def test_a_network_is_no_prior() -> None:
    """Keras models are functions, too."""
    with pytest.raises(TypeError, match="function of a weight tensor's shape"):
        KerasDecoder(_network(), _network())
