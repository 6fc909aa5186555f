"""Networks that compute in bfloat16 leave the posterior of their weights what it is."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, likelihoods
from gpflow_bae.core.functional import functional_copy
from gpflow_bae.mcmc import sghmc


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_sampled_weights_have_the_moments_of_linear_regression(dtype: str) -> None:
    """A linear decoder of given codes: each output is a regression with a posterior in closed form.

    All have the same covariance, so 64 outputs are 64 chains of two weights. BAOAB has no step-size
    bias on a Gaussian, and the steps between states that are kept forget nearly everything.
    """
    rng, noise, num_outputs = np.random.default_rng(0), 0.25, 64
    codes = rng.normal(size=(20, 2))
    Y = codes @ rng.normal(size=(2, num_outputs)) + 0.5 * rng.normal(size=(20, num_outputs))
    covariance = np.linalg.inv(codes.T @ codes / noise + np.eye(2))
    mean = covariance @ codes.T @ Y / noise

    layer = keras.layers.Dense(num_outputs, use_bias=False, dtype=dtype)
    decoder = decoders.KerasDecoder(keras.Sequential([keras.Input((2,)), layer]))
    likelihood = likelihoods.Gaussian(noise)

    def log_density(weights: tf.Tensor) -> tf.Tensor:
        F = functional_copy(decoder, {".weights[0]": weights})(codes)
        observed = tf.reduce_sum(likelihood.masked_log_prob(F, Y.astype(np.float32), None))
        return observed - 0.5 * tf.reduce_sum(weights**2)

    num_states, thinning, settings = 400, 10, {"step_size": 0.1, "momentum_decay": 0.5}

    @tf.function(autograph=False)
    def states() -> tf.Tensor:
        def body(i: tf.Tensor, state: sghmc.State, kept: tf.TensorArray) -> tuple:
            with tf.GradientTape() as tape:
                tape.watch(state.position)
                value = log_density(state.position)
            gradient = tape.gradient(value, state.position)
            seed = tf.stack([3, i])
            state = sghmc.update(state, gradient, seed, integrator="baoab", **settings)
            return i + 1, state, kept.write(i // thinning, state.position)

        kept = tf.TensorArray(tf.float32, num_states, clear_after_read=False)
        start = sghmc.init(tf.constant(mean, tf.float32))
        steps = num_states * thinning
        return tf.while_loop(lambda i, *_: i < steps, body, (tf.constant(0), start, kept))[
            2
        ].stack()

    draws = states().numpy()[50:]
    standardised = np.linalg.solve(np.linalg.cholesky(covariance), draws - mean)  # [S, 2, 64]
    # Five standard errors if every fifth state were independent, and, for bfloat16, what a weight
    # of up to 2.5 loses in rounding (2^-9 of it), in its standard deviations.
    count = len(draws) / 5
    rounding = 2.5 * 2.0**-9 / np.sqrt(np.linalg.eigvalsh(covariance)[0])
    rounding *= dtype != "float32"
    assert np.abs(standardised.mean(0)).max() < 5 / np.sqrt(count) + rounding
    variance = (standardised**2).mean((0, 2))
    assert np.abs(variance - 1.0).max() < 5 * np.sqrt(2 / (count * num_outputs)) + rounding**2
