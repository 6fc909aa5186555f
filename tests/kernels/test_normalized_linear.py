"""Cosine similarity: what it is, and what happens where there is no direction."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.functional import functional_copy
from gpflow_bae.kernels import NormalizedLinear

VARIANCE = 1.7


def _inputs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _cosine(X: np.ndarray, X2: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(X, axis=-1)[:, None] * np.linalg.norm(X2, axis=-1)
    return VARIANCE * (X @ X2.T) / norms


def test_is_the_cosine() -> None:
    X, X2 = _inputs(6, 3), _inputs(4, 3, seed=1)
    kernel = NormalizedLinear(VARIANCE)
    np.testing.assert_allclose(kernel(X, X2), _cosine(X, X2), rtol=1e-12)
    np.testing.assert_allclose(kernel(X), _cosine(X, X), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.full(6, VARIANCE), rtol=1e-12)


def test_lengths_do_not_matter() -> None:
    """Each row may be rescaled by a positive factor, whatever its size."""
    X, kernel = _inputs(5, 3), NormalizedLinear(VARIANCE)
    scales = np.array([1e-6, 0.1, 1.0, 10.0, 1e6])[:, None]
    np.testing.assert_allclose(kernel(scales * X), kernel(X), rtol=1e-9)


def test_active_dims() -> None:
    X = _inputs(5, 4)
    kernel = NormalizedLinear(VARIANCE, active_dims=[1, 3])
    np.testing.assert_allclose(kernel(X), _cosine(X[:, [1, 3]], X[:, [1, 3]]), rtol=1e-12)


def test_batches_equal_a_loop() -> None:
    """As in GPflow: K(X) keeps the batch, K(X, X2) pairs every batch with every other."""
    X, X2 = _inputs(2, 3, 4, 2), _inputs(5, 6, 2, seed=1)
    kernel = NormalizedLinear(VARIANCE)
    full, cross = kernel(X), kernel(X, X2)
    assert cross.shape == (2, 3, 4, 5, 6)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(full[i, j], kernel(X[i, j]), rtol=1e-12)
        for k in range(5):
            np.testing.assert_allclose(cross[i, j, :, k], kernel(X[i, j], X2[k]), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.full((2, 3, 4), VARIANCE))


def test_an_input_of_length_zero_has_no_covariance_and_finite_gradients() -> None:
    """The diagonal agrees with K_diag there too, or a sparse GP would count variance twice."""
    X = tf.constant([[0.0, 0.0], [3.0, 4.0]], tf.float64)
    kernel = NormalizedLinear(VARIANCE)
    with tf.GradientTape() as tape:
        tape.watch(X)
        K = kernel(X)
        total = tf.reduce_sum(K) + tf.reduce_sum(kernel(X, full_cov=False))
    np.testing.assert_allclose(K, [[0.0, 0.0], [0.0, VARIANCE]], rtol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), [0.0, VARIANCE], rtol=1e-12)
    assert np.isfinite(tape.gradient(total, X)).all()


def test_compiled_with_parameters_replaced() -> None:
    """What a sampler does: the variance is a plain tensor, inside a compiled function."""
    X, kernel = _inputs(5, 3), NormalizedLinear()

    @tf.function(jit_compile=True, autograph=False)
    def covariance(variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bound = functional_copy(kernel, {".variance": variance})
        return bound(X), bound(X, full_cov=False)

    K, K_diag = covariance(tf.constant(VARIANCE, tf.float64))
    np.testing.assert_allclose(K, _cosine(X, X), rtol=1e-12)
    np.testing.assert_allclose(K_diag, np.diag(K), rtol=1e-12)


def test_the_variance_is_a_parameter() -> None:
    """Positive, scalar, and listed."""
    kernel = NormalizedLinear(VARIANCE)
    assert list(gpflow.utilities.parameter_dict(kernel)) == [".variance"]
    np.testing.assert_allclose(kernel.variance, VARIANCE)
    with pytest.raises(Exception, match="variance"):
        NormalizedLinear(np.ones(2))
