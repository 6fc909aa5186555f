"""The coefficient of negative binomial counts, against the sums and products that define it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.likelihoods.coefficients import log_coefficient

NUMBERS = np.array([1e-6, 0.03, 0.9, 1.0, 7.0, 400.0, 1e6])
COUNTS = np.array([0.0, 1.0, 3.0, 4.0, 5.0, 8.0, 9.0, 20.0, 1000.0, 100_000.0])


def by_definition(power: int) -> np.ndarray:
    """[R, Y], sums over k below y: of log((r + k) / (k + 1)), and of (r + k)^-power above 0."""
    k = np.arange(COUNTS[-1])
    terms = NUMBERS[:, None] + k
    terms = np.log(terms / (k + 1.0)) if power == 0 else terms**-power
    sums = np.concatenate([np.zeros_like(NUMBERS[:, None]), np.cumsum(terms, -1)], -1)
    return sums[:, COUNTS.astype(int)]


@pytest.mark.parametrize(
    "dtype, jit_compile", [(tf.float32, None), (tf.float64, None), (tf.float32, True)]
)
def test_value_and_derivatives(dtype: tf.DType, jit_compile: bool | None) -> None:
    """Under XLA, too, where what is computed of large counts has as many rows as there are."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def all_of(r: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(r)
            with tf.GradientTape() as inner:
                inner.watch(r)
                value = log_coefficient(r, Y)
            first = inner.gradient(value, r)
        return value, first, outer.gradient(first, r)

    r, Y = np.meshgrid(NUMBERS, COUNTS, indexing="ij")
    found = all_of(tf.constant(r, dtype), tf.constant(Y, dtype))
    # Ten units in the last place of float32, and of the sums over a hundred thousand terms. Values
    # may be differences (0 of r = 1); derivatives keep their digits however small they are. The
    # second one is cut where the first one's series is.
    tolerance = 1e-6 if dtype == tf.float32 else 2e-11
    for power, values in enumerate(found):
        expected = by_definition(power) * (-1.0) ** max(0, power - 1)
        rtol = tolerance if power < 2 else max(5 * tolerance, 1e-8)
        atol = 10 * tolerance if power == 0 else 0.0
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=atol)


def test_shapes_broadcast() -> None:
    """One number for each output, as a dispersion is."""
    r, Y = tf.constant([0.5, 2.0, 9.0]), tf.constant(np.arange(12.0).reshape(4, 3), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(r)
        value = log_coefficient(r, Y)
    expected = np.log(
        np.cumprod((r.numpy() + np.arange(12.0)[:, None]) / np.arange(1, 13)[:, None], 0)
    )
    rows = np.arange(12).reshape(4, 3)
    wanted = np.where(rows > 0, expected[rows - 1, np.arange(3)], 0.0)
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    assert tape.gradient(value, r).shape == (3,)
