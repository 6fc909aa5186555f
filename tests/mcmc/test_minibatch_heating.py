"""How hot minibatches make a linear regression, and what each remedy leaves of it, as predicted.

The posterior of the slope theta of y_n ~ N(x_n theta, 1), theta ~ N(0, 1), is Gaussian, with the
mean mu and the precision 1 + sum x_n^2. A minibatch of B rows, drawn with replacement, estimates
its gradient with an error of the variance N^2 / B times that of

    s_n = x_n (y_n - x_n mu) - x_n^2 q,    q = theta - mu,

over the rows; with control variates at mu + delta of -x_n^2 (q - delta). A step of SGHMC is linear
in (q, r), so its stationary second moments solve a discrete Lyapunov equation whose noise depends
on the moment of q.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from gpflow_bae.core.tracing import compiled
from gpflow_bae.inference.loops import repeat
from gpflow_bae.mcmc import Step, Target, sghmc
from tests.mcmc.theory import gradient_estimators

CHAINS = 40_000  # a second moment is known to sqrt(2 / 40,000), 0.7 %
NUM, STEP_SIZE = 20, 0.06
_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.3, 1.7, NUM)
Y = 0.8 * X + _RNG.standard_normal(NUM)
PRECISION = 1.0 + np.sum(X**2)
MEAN = np.sum(X * Y) / PRECISION


def predicted(batch_size: int, decay: float, at: float | None) -> float:
    """Stationary r^2 / h^2; ``at`` is where control variates are taken, minus the mean."""
    h, a = STEP_SIZE, decay
    A = np.array([[1.0 - h**2 * PRECISION, 1.0 - a], [-(h**2) * PRECISION, 1.0 - a]])
    fixed = np.var(X * (Y - X * MEAN)) if at is None else np.var(X**2) * at**2
    moment, M = 1.0 / PRECISION, np.zeros((2, 2))
    for _ in range(100):  # a contraction: the noise adds little to the moment it depends on
        error = NUM**2 / batch_size * (fixed + np.var(X**2) * moment)
        M = scipy.linalg.solve_discrete_lyapunov(
            A, (2.0 * a * h**2 + h**4 * error) * np.ones((2, 2))
        )
        moment = M[0, 0]
    return float(M[1, 1] / h**2)


def observed(batch_size: int, decay: float, at: float | None) -> float:
    """Of independent chains, each with minibatches of its own, after they have settled."""
    x, y = (tf.constant(v, tf.float32) for v in (X, Y))

    def log_prior(theta: tf.Tensor) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(theta**2, -1)

    def log_likelihood(theta: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        residuals = tf.gather(y, rows) - tf.gather(x, rows) * theta
        return -0.5 * tf.reduce_sum(residuals**2, -1)

    if at is None:
        estimate = gradient_estimators.minibatch(log_prior, log_likelihood, NUM, batch_axis=1)
    else:
        mode = tf.constant([MEAN + at], tf.float32)
        full = tf.constant([-PRECISION * at], tf.float32)
        estimate = gradient_estimators.control_variates(
            log_prior,
            log_likelihood,
            NUM,
            mode=mode,
            full_gradient_at_mode=full,
            batch_axis=1,
        )

    def gradient(theta: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        own = tf.random.fold_in(seed, 1, alg="philox")
        rows = tf.random.stateless_uniform(
            [CHAINS, batch_size], own, maxval=NUM, dtype=tf.int32, alg="philox"
        )
        return estimate(theta, rows)

    sampler, target = sghmc.build(STEP_SIZE, decay), Target(gradient)

    @compiled
    def run() -> tf.Tensor:
        def body(i: tf.Tensor, state: object) -> object:
            seed = tf.random.fold_in(tf.constant([0, 7]), i, alg="philox")
            return sampler.step(state, target, seed, Step(i, False))

        # Both relax within a few dozen steps: 1 / a, and a / (h^2 precision).
        start = sampler.init(tf.fill([CHAINS, 1], tf.constant(MEAN, tf.float32)), target)
        return sampler.temperatures(repeat(150, body, start))

    return float(run())


@pytest.mark.parametrize(
    ("batch_size", "decay", "at", "least", "most"),
    [
        pytest.param(2, 0.1, None, 2.0, 9.0, id="minibatches"),
        pytest.param(16, 0.1, None, 1.05, 1.5, id="larger batches"),
        pytest.param(2, 0.6, None, 1.1, 2.5, id="larger friction"),
        pytest.param(2, 0.1, 0.0, 0.9, 1.3, id="control variates"),
        pytest.param(2, 0.1, 0.5, 1.0, 3.0, id="control variates off the mode"),
    ],
)
def test_chains_are_as_hot_as_predicted(
    batch_size: int, decay: float, at: float | None, least: float, most: float
) -> None:
    """Within five standard errors; the bounds say that the case is one worth having."""
    theory = predicted(batch_size, decay, at)
    assert least < theory < most
    assert observed(batch_size, decay, at) == pytest.approx(theory, rel=5.0 * np.sqrt(2.0 / CHAINS))
