"""Simulation-based calibration: ranks of true parameters among posterior draws are uniform.

Talts, Betancourt, Simpson, Vehtari, Gelman (2018). Validating Bayesian inference algorithms with
simulation-based calibration. arXiv:1804.06788.

The model is conjugate: theta ~ N(0, 1), y_n | theta ~ N(theta, 1), n = 1..10; stochastic-gradient
samplers see minibatches of 5, each chain its own.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from scipy import stats

from gpflow_bae.mcmc.noise import split
from tests.mcmc.theory import gradient_estimators
from tests.mcmc.theory.harness import SamplerCase

NUM_DATA, BATCH_SIZE = 10, 5


def log_prior(theta: tf.Tensor) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(theta**2, axis=-1)


def log_likelihood(theta: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """theta [..., C, 1], y [C, B]: [..., C]."""
    return -0.5 * tf.reduce_sum((y - theta) ** 2, axis=-1)


def sbc_ranks(
    case: SamplerCase,
    *,
    num_replicates: int = 2000,
    num_draws: int = 9,
    num_steps: int | None = None,
    claimed_num_data: int = NUM_DATA,
    seed: int = 0,
) -> np.ndarray:
    """Ranks [num_replicates], from 0 to num_draws.

    Each draw is the end of a chain of its own, so draws are independent given their data, and the
    ranks exactly uniform if the chains' ends have the posterior's distribution.

    :param num_steps: of each chain; None for what is enough, fewer for those whose steps are large.
    :param claimed_num_data: N as the gradient estimator is told it.
    """
    if num_steps is None:
        num_steps = 80 if case.calibrated else 250
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=[num_replicates, 1])
    y = np.repeat(theta + rng.normal(size=[num_replicates, NUM_DATA]), num_draws, axis=0)
    data = tf.constant(y, tf.float32)
    estimate = gradient_estimators.minibatch(
        log_prior, log_likelihood, claimed_num_data, batch_axis=1
    )

    def gradient(position: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        rows = tf.random.stateless_uniform(
            [y.shape[0], BATCH_SIZE], seed, maxval=NUM_DATA, dtype=tf.int32, alg="philox"
        )
        return estimate(position, tf.gather(data, rows, batch_dims=1))

    @tf.function(autograph=False)
    def draw() -> tf.Tensor:
        if case.make_stochastic is None:
            sampler = case.make(
                lambda x: log_prior(x) + log_likelihood(x, data), 1.0, step_size=case.sbc_step_size
            )
        else:
            sampler = case.make_stochastic(gradient, 1.0, step_size=case.sbc_step_size)
        init_seed, base = tf.unstack(split([5, seed]))
        _, state = tf.while_loop(
            lambda i, _: i < num_steps,
            lambda i, state: (i + 1, sampler.step(state, tf.random.fold_in(base, i, alg="philox"))),
            (tf.constant(0), sampler.init(tf.zeros([y.shape[0], 1]), init_seed)),
        )
        return sampler.position(state)

    draws = draw().numpy().reshape(num_replicates, num_draws)
    return np.sum(draws < theta, axis=1)


def assert_uniform(ranks: np.ndarray, num_draws: int = 9) -> None:
    """Chi-squared test of uniformity at 1 per cent."""
    counts = np.bincount(ranks, minlength=num_draws + 1)
    p_value = stats.chisquare(counts).pvalue
    assert p_value > 0.01, f"{p_value=} {counts=}"


def assert_calibrated(case: SamplerCase, **settings: int) -> None:
    """Simulation-based calibration of a case; settings as for :func:`sbc_ranks`."""
    assert_uniform(sbc_ranks(case, **settings))
