"""Geweke's joint distribution test: two simulators of (parameters, data) that must agree.

The marginal-conditional simulator draws parameters of the prior and data given them. The
successive-conditional one alternates data given parameters with a step of the sampler under test
for parameters given data. If the step leaves the posterior invariant, both have the joint
distribution of parameters and data; the chains here begin with a draw of it, so that no burn-in
enters, and are independent, so that the spread over chains gives the standard error.

Geweke (2004). Getting it right: joint distribution tests of posterior simulators. JASA 99.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.mcmc.noise import split, standard_noise
from tests.mcmc.theory import mutations
from tests.mcmc.theory.harness import CASES, SamplerCase

# theta ~ N(0, I), three observations y ~ N(A theta, I / 4): the posterior's standard deviations
# are 0.31 and 0.47, correlated.
DESIGN = np.array([[1.0, 0.5], [0.3, -0.8], [0.9, 0.4]])
NOISE = 0.5
NUM_CHAINS, NUM_ROUNDS = 4000, 40
# Parallel tempering is not among them: redrawing the data would have to redraw the other rungs'.
ROWS = [case for case in CASES if case.calibrated and not case.crosses_modes]


def log_joint(theta: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    residual = y - tf.linalg.matmul(theta, tf.constant(DESIGN.T, theta.dtype))
    return -0.5 * tf.reduce_sum(theta**2, -1) - 0.5 / NOISE**2 * tf.reduce_sum(residual**2, -1)


def data_given(theta: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    mean = tf.linalg.matmul(theta, tf.constant(DESIGN.T, theta.dtype))
    return mean + NOISE * standard_noise(mean.shape, seed, theta.dtype)


def statistics(theta: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Means, second moments and one of higher order, of parameters, data and both: [C, 12]."""
    columns = [theta, y[:, :2], theta**2, theta[:, :1] * theta[:, 1:], y[:, :2] ** 2]
    columns += [theta * y[:, :1], tf.cos(2 * theta[:, :1])]
    return tf.concat(columns, axis=-1)


@functools.cache
def independent_moments() -> tuple[np.ndarray, np.ndarray]:
    """Means of the test functions under the marginal-conditional simulator, and their variances."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=[400_000, 2])
    y = theta @ DESIGN.T + NOISE * rng.normal(size=[400_000, 3])
    independent = statistics(tf.constant(theta), tf.constant(y)).numpy()
    return independent.mean(axis=0), independent.var(axis=0) / len(independent)


def joint_z_scores(case: SamplerCase) -> np.ndarray:
    """Of each test function, successive-conditional against marginal-conditional: [12]."""

    @tf.function(autograph=False)
    def successive() -> tf.Tensor:
        theta_seed, base = tf.unstack(split([31, 7]))

        def one_round(
            i: tf.Tensor, theta: tf.Tensor, total: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            seeds = tf.unstack(split(tf.random.fold_in(base, i, alg="philox"), 3))
            y = data_given(theta, seeds[0])
            sampler = case.make(lambda x: log_joint(x, y), 1.0, step_size=case.sbc_step_size)
            theta = sampler.position(sampler.step(sampler.init(theta, seeds[1]), seeds[2]))
            # The pair (theta, y): this y with the theta that follows it.
            return i + 1, theta, total + statistics(theta, y)

        theta = standard_noise([NUM_CHAINS, 2], theta_seed)
        start = tf.constant(0), theta, tf.zeros([NUM_CHAINS, 12])
        return tf.while_loop(lambda i, *_: i < NUM_ROUNDS, one_round, start)[2] / NUM_ROUNDS

    mean, variance_of_mean = independent_moments()
    per_chain = successive().numpy().astype(float)
    variance = variance_of_mean + per_chain.var(axis=0) / NUM_CHAINS
    return (per_chain.mean(axis=0) - mean) / np.sqrt(variance)


def assert_joint(case: SamplerCase) -> None:
    z = joint_z_scores(case)
    assert np.all(np.abs(z) < 4), f"{z=}"  # 6e-5 per number


@pytest.mark.parametrize("case", ROWS, ids=[case.name for case in ROWS])
def test_both_simulators_agree(case: SamplerCase) -> None:
    assert_joint(case)


def named(name: str) -> SamplerCase:
    return next(case for case in ROWS if case.name == name)


@pytest.mark.parametrize(
    "name, mutation",
    [
        ("mala", mutations.wrong_sign_of_the_asymmetry),
        ("hmc", mutations.no_accept_reject_step),
        ("langevin", mutations.larger_noise),
    ],
)
def test_broken_kernels_are_caught(
    name: str, mutation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    case = named(name)
    if mutation is mutations.no_accept_reject_step:  # whose bias grows with the step size
        case = dataclasses.replace(case, sbc_step_size=2 * case.sbc_step_size)
    with pytest.raises(AssertionError, match="z="):
        assert_joint(case)
