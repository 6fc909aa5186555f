"""What the benchmark of the Markovian prior times, and what it makes of the times."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from benchmarks import markov_scaling
from gpflow_bae.latent_priors import GP


def test_what_is_timed_is_the_exact_posterior_and_its_gradients() -> None:
    """Both kinds are the dense prior of the same kernels, gradients included, to rounding."""
    size = 40
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, size / markov_scaling.POINTS_PER_LENGTHSCALE, (1, size, 1))
    mean = tf.constant(rng.standard_normal((1, size, 2)))
    variance = tf.constant(rng.uniform(0.1, 1.0, (1, size, 2)))
    kernels = [gpflow.kernels.Matern32(), gpflow.kernels.Matern52(lengthscales=2.0)]
    dense = GP(kernels, 2)
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        found = dense.condition(X, mean, variance)
    sources = [*dense.trainable_variables, mean, variance]
    expected = [v.numpy() for v in (*found, *tape.gradient(found.log_marginal, sources))]
    for parallel in (True, False):
        results = [v.numpy() for v in markov_scaling.evaluation(size, parallel)()]
        assert markov_scaling.difference(results, expected) < 1e-8


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_the_exponent_is_that_of_a_power_law(power: float) -> None:
    sizes = markov_scaling.SIZES
    seconds = [2e-3 * size**power for size in sizes]
    assert markov_scaling.exponent_of(sizes, seconds) == pytest.approx(power)


def test_differences_are_relative_above_one() -> None:
    assert markov_scaling.difference([np.array([200.0, 1.0])], [np.array([100.0, 1.0])]) == 1.0
    assert markov_scaling.difference([np.array([0.3])], [np.array([0.1])]) == pytest.approx(0.2)
