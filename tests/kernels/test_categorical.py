"""Categories: against NumPy, in GPflow's products, and functions of their own."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_bae.kernels import Categorical

rng = np.random.default_rng(0)


def test_equal_inputs_alone_go_together() -> None:
    """With leading tasks, and between points and tasks as inducing points have it."""
    kernel = Categorical(active_dims=[1])
    X = np.stack([rng.normal(size=(2, 6)), rng.integers(0, 3, (2, 6))], -1)
    Z = np.stack([rng.normal(size=4), rng.integers(0, 3, 4)], -1)
    own = X[..., 1]
    np.testing.assert_array_equal(kernel(X), own[:, :, None] == own[:, None, :])
    np.testing.assert_array_equal(kernel(Z, X), Z[:, 1][:, None, None] == own[None])
    np.testing.assert_array_equal(kernel(X, Z), own[..., None] == Z[:, 1])
    np.testing.assert_array_equal(kernel(X, full_cov=False), np.ones((2, 6)))


def test_a_product_has_a_function_for_each_category() -> None:
    """A GP of both categories predicts each as a GP of that one alone."""
    X = np.stack([rng.uniform(0.0, 3.0, 20), np.arange(20) % 2], -1)
    Y = np.sin(3.0 * X[:, :1]) * np.where(X[:, 1:] > 0, 1.0, -2.0)
    base = gpflow.kernels.Matern32(active_dims=[0])
    both = gpflow.models.GPR((X, Y), base * Categorical(active_dims=[1]), noise_variance=0.01)
    new = np.stack([np.linspace(0.0, 3.0, 7), np.ones(7)], -1)
    one = X[:, 1] == 1
    alone = gpflow.models.GPR((X[one], Y[one]), base, noise_variance=0.01)
    for found, expected in zip(both.predict_f(new), alone.predict_f(new), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not tf.reduce_any(tf.math.is_nan(both.log_marginal_likelihood()))
