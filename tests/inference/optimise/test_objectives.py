"""GECO's recursion by hand, its fixed point, and beta's weighting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.base import Batch, VariationalTerms
from gpflow_bae.inference import GECO, EvidenceLowerBound
from gpflow_bae.inference.loops import repeat
from gpflow_bae.likelihoods import Gaussian


def _terms(F: np.ndarray, divergence: float, log_likelihood: float = -3.0) -> VariationalTerms:
    return VariationalTerms(
        tf.constant(log_likelihood, tf.float64), tf.constant(divergence, tf.float64), tf.constant(F)
    )


def test_beta_weighs_the_divergence() -> None:
    """-(E - beta KL): 3 + 2.5 * 4."""
    loss, state = EvidenceLowerBound(2.5).loss(_terms(np.zeros((1, 2, 3)), 4.0), None, None, ())
    np.testing.assert_allclose(loss, 3.0 + 2.5 * 4.0)
    assert state == ()


def test_geco_follows_its_recursion() -> None:
    """Three steps against the equations of the docstring, one entry missing."""
    rng = np.random.default_rng(0)
    geco = GECO(tolerance=0.3, smoothing=0.8, rate=0.5, initial_multiplier=2.0)
    likelihood, state = Gaussian(), geco.initial_state()
    multiplier, average = 2.0, None
    for divergence in (5.0, 4.0, 6.0):
        F, Y = rng.normal(size=(2, 1, 2, 3))
        mask = np.ones((1, 2, 3), bool)
        mask[0, 1, 1] = False
        batch = Batch(None, tf.constant(Y), tf.constant(mask))
        loss, state = geco.loss(_terms(F, divergence), batch, likelihood, state)
        violation = np.mean((F - Y)[mask] ** 2) - 0.3
        average = violation if average is None else 0.8 * average + 0.2 * violation
        np.testing.assert_allclose(loss, divergence + multiplier * 5 * average)
        multiplier *= np.exp(0.5 * average)
        np.testing.assert_allclose(tf.exp(state.log_multiplier), multiplier)


def test_gecos_gradient_is_the_present_batchs() -> None:
    """Of a decoder output: 2 lambda (F - Y), though the value is the moving average's."""
    geco = GECO(smoothing=0.9, initial_multiplier=3.0)
    Y = tf.constant(np.random.default_rng(1).normal(size=(1, 4, 2)))
    F = tf.Variable(tf.zeros_like(Y))
    _, state = geco.loss(
        _terms(np.ones((1, 4, 2)), 0.0), Batch(None, Y, None), Gaussian(), geco.initial_state()
    )
    with tf.GradientTape() as tape:
        terms = VariationalTerms(tf.zeros([], tf.float64), tf.zeros([], tf.float64), tf.identity(F))
        loss, _ = geco.loss(terms, Batch(None, Y, None), Gaussian(), state)
    expected = 2.0 * np.exp(state.log_multiplier) * (F - Y)
    np.testing.assert_allclose(tape.gradient(loss, F), expected, rtol=1e-9)


def test_gecos_multiplier_settles_where_the_constraint_holds() -> None:
    """Shrinkage a toy: the best F given lambda is Y lambda / (lambda + 1/2), KL = F^2 / 2.

    With Y = 1 the error (1 - F)^2 equals the tolerance 0.04 at F = 0.8: lambda = 2. The fixed point
    is reached by the recursion alone, to the smoothing's ripple.
    """
    geco, likelihood = GECO(tolerance=0.04, smoothing=0.5, rate=1.0), Gaussian()
    Y = tf.ones([1, 1, 1], tf.float64)

    def step(i: tf.Tensor, state: Any) -> Any:
        multiplier = tf.exp(state.log_multiplier)
        F = Y * multiplier / (multiplier + 0.5)
        terms = VariationalTerms(tf.zeros([], tf.float64), 0.5 * tf.square(F[0, 0, 0]), F)
        return geco.loss(terms, Batch(None, Y, None), likelihood, state)[1]

    state = tf.function(lambda: repeat(2000, step, geco.initial_state()), autograph=False)()
    np.testing.assert_allclose(tf.exp(state.log_multiplier), 2.0, rtol=1e-3)


def test_errors() -> None:
    """What does not make sense is refused when it is made."""
    with pytest.raises(ValueError, match="beta must be positive, got 0"):
        EvidenceLowerBound(0.0)
    with pytest.raises(ValueError, match="tolerance must be positive, got -1"):
        GECO(tolerance=-1.0)
    with pytest.raises(ValueError, match=r"smoothing of GECO must lie in \[0, 1\), got 1"):
        GECO(smoothing=1.0)
