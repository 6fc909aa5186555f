"""Cholesky factors that fail aloud, and Gaussians of a few numbers each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.core.linalg import (
    cholesky,
    gram,
    sum_of_squares,
)


def test_factor_reproduces_the_matrix() -> None:
    """L L^T = A, to rounding."""
    a = np.random.default_rng(0).normal(size=(3, 4, 4))
    matrix = a @ a.transpose(0, 2, 1) + np.eye(4)
    factor = cholesky(matrix, "A").numpy()
    np.testing.assert_allclose(factor @ factor.transpose(0, 2, 1), matrix, rtol=1e-12, atol=1e-12)


def test_error_names_matrix_jitter_and_index() -> None:
    """An indefinite matrix (eigenvalues -1 and 3) among good ones is found."""
    good, indefinite = np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])
    matrix = np.stack([[good], [good], [indefinite]])  # [tasks 3, kernels 1, 2, 2]
    with pytest.raises(
        ValueError, match=r"of the thing failed .*\[\[2, 0\]\].*jitter 1e-06: raise"
    ):
        cholesky(matrix, "the thing")


def test_error_tells_a_matrix_that_is_not_finite() -> None:
    """More jitter would not help there."""
    with pytest.raises(ValueError, match="itself holds NaN or infinity"):
        cholesky(np.full((2, 2), np.nan), "the thing")


def test_inside_a_graph_the_nan_is_left_to_the_round() -> None:
    """Compiled rounds check their state once; the factor is NaN there, without an exception."""
    factor = tf.function(lambda a: cholesky(a, "A"), autograph=False)(
        tf.constant([[1.0, 2.0], [2.0, 1.0]])
    )
    assert np.isnan(factor.numpy()).any()


def _definite(A: tf.Tensor) -> tf.Tensor:
    """Positive definite, and a nonlinear function of A."""
    return tf.matmul(A, A, transpose_b=True) + tf.eye(3, dtype=A.dtype)


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        (lambda A: cholesky(_definite(A), "A"), lambda A: tf.linalg.cholesky(_definite(A))),
        (gram, lambda A: tf.matmul(A, A, transpose_b=True)),
        (lambda A: sum_of_squares(A, -1), lambda A: tf.einsum("tnd,tnd->tn", A, A)),
        (lambda A: sum_of_squares(A, -2), lambda A: tf.einsum("tnd,tnd->td", A, A)),
        (lambda A: sum_of_squares(A, 0), lambda A: tf.einsum("tnd,tnd->nd", A, A)),
    ],
)
def test_value_gradient_and_second_derivative(ours: Any, plain: Any) -> None:
    """Of a sum whose weights, for A A^T, are not symmetric: by TensorFlow's own operations."""
    rng = np.random.default_rng(0)
    A = tf.constant(rng.normal(size=(2, 3, 5)))
    W = tf.constant(rng.normal(size=plain(A).shape))

    def found(function: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(A)
            with tf.GradientTape() as inner:
                inner.watch(A)
                total = tf.reduce_sum(W * function(A))
            gradient = inner.gradient(total, A)
            length = tf.reduce_sum(tf.square(gradient))
        return total, gradient, outer.gradient(length, A)

    for value, other in zip(found(ours), found(plain), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-12)  # of sums of a few float64
