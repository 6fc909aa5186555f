"""The standard normal prior: inputs mean nothing to it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.latent_priors import StandardNormal


def test_log_prob_equals_tfd_without_inputs() -> None:
    """A sum of unit normals over points and channels."""
    latents = np.random.default_rng(0).normal(size=(3, 5, 2))
    expected = tf.reduce_sum(
        tfp.distributions.Normal(tf.constant(0.0, tf.float64), 1.0).log_prob(latents), [-2, -1]
    )
    np.testing.assert_allclose(StandardNormal(2).log_prob(None, latents), expected, rtol=1e-12)


def test_no_parameters() -> None:
    """Nothing to sample, nothing to train."""
    assert StandardNormal(2).parameters == ()


def test_predict_ignores_the_other_points() -> None:
    """N(0, 1) at each new input, one row per row of Xnew."""
    mean = np.ones((3, 5, 2))
    new_mean, new_variance = StandardNormal(2).predict(np.zeros((3, 7, 4)), None, mean, mean)
    np.testing.assert_array_equal(new_mean, np.zeros((3, 7, 2)))
    np.testing.assert_array_equal(new_variance, np.ones((3, 7, 2)))


def test_predict_needs_to_know_how_many() -> None:
    """Without new inputs their number is unknown."""
    with pytest.raises(ValueError, match="Xnew is needed"):
        StandardNormal(2).predict(None, None, np.zeros((5, 2)), np.ones((5, 2)))
