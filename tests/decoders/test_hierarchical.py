"""Decoders whose layers have variances of their own."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_bae import encoders, inference, likelihoods, models
from gpflow_bae.decoders import HierarchicalDecoder, KerasDecoder
from gpflow_bae.functional import log_prior_density, prior_parents, unconstrained_values
from gpflow_bae.parameter_set import ParameterSet


def _network() -> keras.Model:
    return keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)]
    )


def test_it_begins_as_a_decoder_with_standard_normal_weights() -> None:
    network = _network()
    found, plain = HierarchicalDecoder(network), KerasDecoder(network)
    densities = [
        log_prior_density(d.weights, unconstrained_values(d.weights)) for d in (found, plain)
    ]
    np.testing.assert_allclose(densities[0], densities[1], rtol=1e-5)  # float32 sums


def test_log_prior_is_that_of_weights_given_variances_and_of_variances() -> None:
    """N(w; 0, v / fan_in), N(b; 0, v) and an inverse gamma by scipy, with the Jacobian of softplus,
    at values that are not the parameters' own.
    """
    decoder = HierarchicalDecoder(_network(), concentration=2.0, rate=3.0)
    sampled = ParameterSet(decoder)
    rng = np.random.default_rng(0)
    values = [tf.constant(rng.standard_normal(v.shape), v.dtype) for v in sampled.values()]
    by_path = dict(zip(sampled.paths, (v.numpy().astype(float) for v in values), strict=True))
    expected = 0.0
    for i, fan_in in enumerate((2, None, 5, None)):
        u = by_path[f".layer_variances[{i}]"]
        variance = np.log1p(np.exp(u))
        expected += stats.invgamma(2.0, scale=3.0).logpdf(variance) - np.log1p(np.exp(-u))
        scale = np.sqrt(variance / (fan_in or 1))
        expected += stats.norm(0.0, scale).logpdf(by_path[f".weights[{i}]"]).sum()
    np.testing.assert_allclose(sampled.log_prior(values), expected, rtol=1e-5)  # float32 weights


def test_a_gradient_reaches_the_variances_through_the_weights() -> None:
    """d log p / d v of n weights w is -n / (2 v) + |w|^2 / (2 s^2 v^2), and the prior's own."""
    decoder = HierarchicalDecoder(_network())
    sampled = ParameterSet(
        decoder, lambda p: p is decoder.layer_variances[2] or p is decoder.weights[2]
    )
    values = sampled.values()
    place = sampled.parameters.index(decoder.layer_variances[2])
    with tf.GradientTape() as tape:
        tape.watch(values)
        density = sampled.log_prior(values)
    slope = tape.gradient(density, values)[place].numpy()
    u = values[place].numpy()
    v, dv = np.log1p(np.exp(u)), 1.0 / (1.0 + np.exp(-u))
    squares = 5.0 * np.sum(np.square(decoder.weights[2].numpy()))
    own = -2.0 / v + 1.0 / v**2  # of the inverse gamma with a = b = 1
    expected = dv * (-15 / (2 * v) + squares / (2 * v**2) + own) + (1.0 - dv)
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


def test_fits_of_a_mode_leave_the_variances_where_they_are() -> None:
    decoder = HierarchicalDecoder(_network())
    encoder = encoders.GaussianEncoder(keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)]))
    model = models.VAE(decoder, encoder, likelihoods.Gaussian(0.3), latent_dim=2)
    before = [float(v.numpy()) for v in decoder.layer_variances]
    weights = decoder.weights[0].numpy()
    Y = np.random.default_rng(0).standard_normal((8, 1, 3))
    settings = inference.VariationalSettings(num_steps=4)
    inference.fit_variational(model, (None, Y), settings, steps_per_call=2, progress=False)
    assert [float(v.numpy()) for v in decoder.layer_variances] == before
    assert not np.array_equal(decoder.weights[0].numpy(), weights)
    assert len(prior_parents(ParameterSet(decoder).parameters)) == 4


def test_settings_out_of_range_and_several_chains_at_once_are_refused() -> None:
    for name in ("concentration", "rate"):
        with pytest.raises(ValueError, match=name):
            HierarchicalDecoder(_network(), **{name: 0.0})
    decoder = HierarchicalDecoder(_network())
    values = [tf.stack([v, v]) for v in unconstrained_values(decoder.weights)]
    with pytest.raises(ValueError, match="fixed scale"):
        log_prior_density(decoder.weights, values, chain_ndims=1)
