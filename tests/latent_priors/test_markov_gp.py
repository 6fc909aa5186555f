"""The Markovian prior against the dense one of the same kernel."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError

from gpflow_bae.latent_priors import GP, MarkovGP, kalman
from gpflow_bae.latent_priors.base import expected_log_prob

k = gpflow.kernels
SHARED = k.Matern52(variance=1.3, lengthscales=1.5)
SEPARATE = [k.Matern32(lengthscales=0.8), k.Matern12() + k.Constant(0.3)]
KERNELS = {  # with states of one to six dimensions
    "three": SHARED,
    "two": SEPARATE,
    "one": k.Matern12(lengthscales=2.0),
    "six": k.Matern52() * k.Matern32(lengthscales=3.0),
}


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    """Three tasks at irregular times of their own, out of order, two of them equal."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (3, 20, 1))
    X[:, 4] = X[:, 15]
    return {
        "X": X,
        "mean": rng.normal(size=(3, 20, 2)),
        "variance": rng.uniform(0.1, 1.0, (3, 20, 2)),
        "Xnew": np.r_[rng.uniform(-2.0, 12.0, (6, 1)), X[0, :1]],
    }


def _everything(prior: GP, data: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    X, mean, variance = data["X"], data["mean"], data["variance"]
    found: dict[str, Any] = dict(
        zip(("mean", "variance", "evidence"), prior.condition(X, mean, variance), strict=True)
    )
    found["f"], found["f_variance"] = prior.predict(data["Xnew"], X, mean, variance)
    found["shared_times"] = prior.condition(X[0], mean, variance).mean
    found["log_prob"] = prior.log_prob(X, mean)
    found["log_prob_shared_times"] = prior.log_prob(X[0], mean)
    found["precision"] = prior.precision_diagonal(X, mean.shape)
    found["expected_log_prob"] = expected_log_prob(prior, X, mean, variance)
    found["with_noise"] = expected_log_prob(prior, X, mean, variance, variance[..., :1])
    return found


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_it_is_the_dense_prior(kernel: Any, data: dict[str, np.ndarray]) -> None:
    """Values to rounding: code noise of 1e-3 makes densities a thousand times as sensitive."""
    settings = {"latent_dim": 2, "mean_function": gpflow.functions.Linear(np.ones((1, 1)))}
    dense = _everything(GP(kernel, **settings), data)
    markov = _everything(MarkovGP(kernel, **settings), data)
    for name, expected in dense.items():
        np.testing.assert_allclose(markov[name], expected, rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_its_gradients_are_those_of_the_dense_prior(
    kernel: Any, data: dict[str, np.ndarray]
) -> None:
    """By kernels, noise and pseudo-observations, through moments and evidence."""
    found = []
    for prior in (GP(kernel, 2), MarkovGP(kernel, 2)):
        inputs = [tf.constant(data[name]) for name in ("mean", "variance")]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            posterior = prior.condition(data["X"], *inputs)
            total = tf.reduce_sum(posterior.log_marginal + prior.log_prob(data["X"], inputs[0]))
            total += tf.reduce_sum(posterior.mean**2) + tf.reduce_sum(posterior.variance**2)
        found.append(tape.gradient(total, [*prior.trainable_variables, *inputs]))
    for dense, markov in zip(*found, strict=True):
        np.testing.assert_allclose(markov, dense, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("num_times", [1, 5])
def test_gradients_of_gradients(num_times: int, data: dict[str, np.ndarray]) -> None:
    """Those of the dense prior, in a graph: the log density has a gradient of our own making."""
    X, mean, variance = (
        tf.constant(data[name][:, :num_times]) for name in ("X", "mean", "variance")
    )

    def second(prior: GP) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch([mean, variance])
            with tf.GradientTape() as tape:
                tape.watch(variance)
                posterior = prior.condition(X, mean, variance)
                total = tf.reduce_sum(posterior.log_marginal) + tf.reduce_sum(posterior.mean**3)
                total += tf.reduce_sum(prior.log_prob(X, variance))
            first = tf.reduce_sum(tape.gradient(total, variance) ** 2)
        sources = [*prior.trainable_variables, mean, variance]
        return [first, *outer.gradient(first, sources)]

    kernel = KERNELS["one"]
    priors = (GP(kernel, 2), MarkovGP(kernel, 2))
    found = [tf.function(second, autograph=False)(prior) for prior in priors]
    for dense, markov in zip(*found, strict=True):
        np.testing.assert_allclose(markov, dense, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 13])
def test_states_are_those_of_a_loop(length: int) -> None:
    """Of maps that do not commute, for every kind of length; and where the graph has no length."""
    rng = np.random.default_rng(length)
    steps = kalman._Affine(
        tf.constant(rng.standard_normal((2, 2, 3, length))),
        tf.constant(rng.standard_normal((2, 1, 3, length))),
    )
    start = (tf.constant(rng.standard_normal((2, 1, 3, 1))),)
    (found,) = kalman._states(kalman._then_affine, kalman._next_mean, start, steps)
    state = start[0][..., 0].numpy()
    for n in range(length):
        state = np.einsum("ikb,kjb->ijb", steps.A[..., n], state) + steps.b[..., n]
        np.testing.assert_allclose(found[..., n], state, rtol=1e-9, atol=1e-12)
    (one_by_one,) = kalman._states_one_by_one(kalman._next_mean, start, steps)
    np.testing.assert_allclose(one_by_one, found, rtol=1e-9, atol=1e-12)


def test_a_long_series_is_stable() -> None:
    """1e5 irregular times, neighbours 1e-7 apart among them: draws of the prior score as such.

    Whitened, the codes' squares are chi-squared: the log density less its mean is within four
    standard deviations, sqrt(N / 2) each.
    """
    rng = np.random.default_rng(1)
    N, noise = 100_000, 1e-2
    t = np.sort(rng.uniform(0.0, 2000.0, N))
    t[1::1000] = t[::1000] + 1e-7
    t.sort()
    kernel = k.Matern12(lengthscales=3.0)
    decay = np.exp(-np.diff(t) / 3.0)
    f = np.empty(N)
    f[0], steps = rng.normal(), rng.normal(size=N)
    for i, a in enumerate(decay):
        f[i + 1] = a * f[i] + np.sqrt(1.0 - a**2) * steps[i + 1]
    y = (f + np.sqrt(noise) * rng.normal(size=N))[:, None]
    shuffled = rng.permutation(N)
    prior = MarkovGP(kernel, 1, code_noise_variance=noise)
    at = t[:, None]
    log_prob = prior.log_prob(at, y)
    np.testing.assert_allclose(prior.log_prob(at[shuffled], y[shuffled]), log_prob, rtol=1e-10)
    # The entropy from the innovations' variances, step by step in NumPy.
    P, log_variances = 1.0, 0.0
    for a in np.r_[0.0, decay]:
        P = a**2 * P + 1.0 - a**2
        S = P + noise + 1e-6
        log_variances += np.log(2.0 * np.pi * S)
        P -= P**2 / S
    expected = -0.5 * (log_variances + N)
    assert abs(float(log_prob) - expected) < 4.0 * np.sqrt(N / 2.0)


def test_a_single_point() -> None:
    """No gap, no step: the prior's variance against the pseudo-observation's."""
    point = (np.zeros((1, 1)), np.ones((1, 2)), np.full((1, 2), 0.3))
    for dense, markov in zip(
        GP(SHARED, 2).condition(*point), MarkovGP(SHARED, 2).condition(*point), strict=True
    ):
        np.testing.assert_allclose(markov, dense, rtol=1e-10)


def test_it_wants_one_input_and_a_kernel_over_time() -> None:
    with pytest.raises(ValueError, match="SquaredExponential has no state-space form"):
        MarkovGP(k.SquaredExponential(), 2)
    with pytest.raises(ShapeMismatchError, match="N, 1"):
        MarkovGP(SHARED, 1).log_prob(np.zeros((5, 2)), np.zeros((5, 1)))
