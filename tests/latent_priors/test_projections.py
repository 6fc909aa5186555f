"""Pseudo-observations of projections of codes under a mixture: dense Gaussian conditioning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.base import JointLatentPosterior
from gpflow_bae.latent_priors import LinearMixture, SparseGP
from gpflow_bae.linalg import gaussian_transform, observed_log_density

N, N_NEW, F, L, P, TASKS = 8, 3, 2, 3, 4, 2


class Case(NamedTuple):
    """A prior, and pseudo-observations of four directions of each code of two tasks.

    Of one point the directions say nothing at all (zeros), of another the same thing four times.
    """

    prior: LinearMixture
    X: np.ndarray
    Xnew: np.ndarray
    mean: np.ndarray  # [TASKS, N, P]
    variance: np.ndarray
    projection: np.ndarray  # [TASKS, N, P, L]


@pytest.fixture(autouse=True)
def small_jitter() -> Iterator[None]:
    """A jitter far below the tolerances of comparisons with models that have none."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float64, jitter=1e-10)):
        yield


def built(case_seed: int = 0, functions: int = F, sparse: bool = False) -> Case:
    rng = np.random.default_rng(case_seed)
    X, Xnew = rng.uniform(0.0, 3.0, (N, 1)), rng.uniform(0.0, 3.0, (N_NEW, 1))
    kernels = [gpflow.kernels.Matern32(lengthscales=0.4 + 0.3 * q) for q in range(functions)]
    trend = gpflow.functions.Linear(rng.normal(size=(1, L)), rng.normal(size=L))
    Z = np.linspace(0.2, 2.8, 5)[:, None] if sparse else X
    prior = LinearMixture(kernels, Z, rng.normal(size=(L, functions)), mean_function=trend)
    prior.nugget_root.assign(np.tril(0.4 * rng.normal(size=(L, L))) + 0.3 * np.eye(L))
    projection = rng.normal(size=(TASKS, N, P, L))
    projection[0, 2] = 0.0
    projection[1, 5] = projection[1, 5, :1]
    mean, variance = rng.normal(size=(TASKS, N, P)), rng.uniform(0.1, 0.5, (TASKS, N, P))
    return Case(prior, X, Xnew, mean, variance, projection)


class Dense(NamedTuple):
    """Moments of all codes of a task, and those of the functions at new inputs."""

    mean: np.ndarray  # [N, L]
    covariance: np.ndarray  # [N, L, L]
    new_mean: np.ndarray
    new_covariance: np.ndarray  # [N', L, N', L]
    log_marginal: float


def dense(case: Case, t: int) -> Dense:
    """By one matrix of all codes of a task, [N L, N L]."""
    prior, Z = case.prior, case.prior.inducing_variable.Z.numpy()
    W, C = prior.mixing.numpy(), prior.nugget.numpy()

    def mixed(one: np.ndarray, other: np.ndarray, fitc: bool) -> np.ndarray:
        total = 0.0
        for kernel, w in zip(prior.kernels, W.T, strict=True):
            K = kernel(one, other).numpy()
            if fitc:
                through = np.linalg.solve(kernel(Z).numpy(), kernel(Z, other).numpy())
                K = np.where(np.equal(one, other.T), K, kernel(one, Z).numpy() @ through)
            total = total + np.kron(K, np.outer(w, w))
        return total

    codes = mixed(case.X, case.X, True) + np.kron(np.eye(N), C)
    cross, new = mixed(case.Xnew, case.X, True), mixed(case.Xnew, case.Xnew, False)
    A = np.zeros((N * P, N * L))
    for n in range(N):
        A[n * P : (n + 1) * P, n * L : (n + 1) * L] = case.projection[t, n]
    before, ahead = (prior.mean_function(x).numpy() for x in (case.X, case.Xnew))
    residual = case.mean[t].ravel() - A @ before.ravel()
    covariance = A @ codes @ A.T + np.diag(case.variance[t].ravel())
    gain, new_gain = (k @ A.T @ np.linalg.inv(covariance) for k in (codes, cross))
    left = (codes - gain @ A @ codes).reshape(N, L, N, L)
    _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
    return Dense(
        before + (gain @ residual).reshape(N, L),
        np.einsum("nlnk->nlk", left),
        ahead + (new_gain @ residual).reshape(N_NEW, L),
        (new - new_gain @ A @ cross.T).reshape(N_NEW, L, N_NEW, L),
        -0.5 * (residual @ np.linalg.solve(covariance, residual) + log_det),
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["all points", "five inducing points"])
def test_it_is_dense_conditioning(sparse: bool) -> None:
    """Joint moments, evidence and predictions, for precisions of any rank; to 1e-7."""
    case = built(sparse=sparse)
    pseudo = (case.mean, case.variance, case.projection)
    found = case.prior.condition_jointly(case.X[None], *pseudo)
    marginal = case.prior.condition(case.X[None], *pseudo)
    arguments = (case.Xnew[None], case.X[None], *pseudo)
    new_mean, new_covariance = case.prior.predict_jointly(*arguments)
    _, between = case.prior.predict_full_cov(*arguments)
    for t in range(TASKS):
        expected = dense(case, t)
        np.testing.assert_allclose(found.log_marginal[t], expected.log_marginal, atol=1e-7)
        np.testing.assert_allclose(found.mean[t], expected.mean, atol=1e-7)
        np.testing.assert_allclose(found.covariance[t], expected.covariance, atol=1e-7)
        of_channels = np.einsum("nll->nl", expected.covariance)
        np.testing.assert_allclose(marginal.variance[t], of_channels, atol=1e-7)
        np.testing.assert_allclose(new_mean[t], expected.new_mean, atol=1e-7)
        by_point = np.einsum("nlnk->nlk", expected.new_covariance)
        np.testing.assert_allclose(new_covariance[t], by_point, atol=1e-7)
        by_channel = np.einsum("nlml->lnm", expected.new_covariance)
        np.testing.assert_allclose(between[t], by_channel, atol=1e-7)
        variance = case.prior.predict(*arguments)[1][t]
        np.testing.assert_allclose(variance, np.einsum("nll->nl", by_point), atol=1e-7)


def test_the_channels_themselves_are_a_projection() -> None:
    """The identity as projection: as without one, to 1e-10."""
    case = built()
    mean, variance = case.mean[..., :L], case.variance[..., :L]
    identity = np.broadcast_to(np.eye(L), (TASKS, N, L, L))
    at = (case.X[None], mean, variance)
    for ours, theirs in zip(
        case.prior.condition_jointly(*at, identity), case.prior.condition_jointly(*at), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_two_directions_at_once_are_one_after_the_other() -> None:
    """Precisions add up: a pseudo-observation twice is once with half the variance, bar a constant.

    log N(t | x, s)^2 = log N(t | x, s/2) + log(1/2) - log(2 pi s)/2 + log 2 / 2, of each.
    """
    case = built()
    once = (case.mean[..., :1], 0.5 * case.variance[..., :1], case.projection[..., :1, :])
    twice = [np.concatenate([v, v], 2) for v in (case.mean[..., :1], case.variance[..., :1])]
    twice.append(np.concatenate([once[2], once[2]], 2))
    one = case.prior.condition_jointly(case.X[None], *once)
    two = case.prior.condition_jointly(case.X[None], *twice)
    np.testing.assert_allclose(two.mean, one.mean, atol=1e-8)
    np.testing.assert_allclose(two.covariance, one.covariance, atol=1e-8)
    constant = -0.5 * np.log(4.0 * np.pi * case.variance[..., 0]).sum(1)
    np.testing.assert_allclose(two.log_marginal, one.log_marginal + constant, atol=1e-7)


def test_gradients_are_finite_where_nothing_is_said() -> None:
    """Of a point without information, and of one with the same direction four times."""
    case = built(sparse=True)
    pseudo = [tf.constant(v) for v in (case.mean, case.variance, case.projection)]
    with tf.GradientTape() as tape:
        tape.watch(pseudo)
        q = case.prior.condition_jointly(case.X[None], *pseudo)
        draws = gaussian_transform(q.mean, q.covariance)(tf.ones_like(q.mean))
        total = tf.reduce_sum(q.log_marginal) + tf.reduce_sum(tf.square(draws))
    wanted = [*pseudo, *case.prior.trainable_variables]
    for gradient in tape.gradient(total, wanted):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()


def test_draws_have_the_covariance() -> None:
    """Four standard errors of a covariance of 40,000 draws."""
    q: JointLatentPosterior = built().prior.condition_jointly(built().X[None], *built()[3:])
    noise = np.random.default_rng(1).standard_normal((40_000, TASKS, N, L))
    draws = gaussian_transform(q.mean, q.covariance)(tf.constant(noise)).numpy()
    centred = draws - q.mean.numpy()
    found = np.einsum("stnl,stnk->tnlk", centred, centred) / len(draws)
    scale = np.sqrt(np.einsum("tnll->tnl", q.covariance.numpy()))
    error = (found - q.covariance.numpy()) / (scale[..., :, None] * scale[..., None, :])
    assert np.abs(error).max() < 4.0 * np.sqrt(2.0 / len(draws))
    off_diagonal = q.covariance.numpy()[..., 0, 1] / (scale[..., 0] * scale[..., 1])
    assert np.abs(off_diagonal).max() > 0.2  # or independent channels would pass


def test_priors_of_independent_channels_have_diagonals() -> None:
    case = built()
    sparse = SparseGP(gpflow.kernels.Matern32(), case.X, L, 0.2)
    at = (case.X[None], case.mean[..., :L], case.variance[..., :L])
    joint, marginal = sparse.condition_jointly(*at), sparse.condition(*at)
    np.testing.assert_array_equal(joint.covariance, tf.linalg.diag(marginal.variance))
    mean, covariance = sparse.predict_jointly(case.Xnew[None], *at)
    expected = sparse.predict(case.Xnew[None], *at)
    np.testing.assert_array_equal(mean, expected[0])
    np.testing.assert_array_equal(covariance, tf.linalg.diag(expected[1]))
    np.testing.assert_array_equal(sparse.code_noise_covariance, sparse.code_noise * np.eye(L))


def test_densities_of_rows_with_holes() -> None:
    """log N of the observed entries alone, which is a smaller Gaussian's."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(2, L, L))
    covariance = root @ root.swapaxes(-1, -2) + 0.1 * np.eye(L)
    residual = rng.normal(size=(2, L))
    mask = np.array([[True, False, True], [False] * 3])
    found = observed_log_density(*map(tf.constant, (residual, covariance, mask)))
    r, K = residual[0, [0, 2]], covariance[0][np.ix_([0, 2], [0, 2])]
    expected = -0.5 * (r @ np.linalg.solve(K, r) + np.linalg.slogdet(2 * np.pi * K)[1])
    np.testing.assert_allclose(found, [expected, 0.0], atol=1e-12)
    complete = observed_log_density(tf.constant(residual), tf.constant(covariance), None)
    every = observed_log_density(
        tf.constant(residual), tf.constant(covariance), tf.ones((2, L), tf.bool)
    )
    np.testing.assert_allclose(complete, every, atol=1e-12)
