"""The prior by nearest neighbours: the dense one where all are neighbours, Vecchia's where not."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae.data import pad_tasks
from gpflow_bae.latent_priors import GP, NearestNeighbourGP
from gpflow_bae.latent_priors.base import expected_log_prob

k = gpflow.kernels
SHARED = k.Matern32(variance=1.3, lengthscales=[0.5, 0.8])
SEPARATE = [k.Matern52(lengthscales=0.4), k.SquaredExponential(lengthscales=0.3)]
N, L = 18, 2
SHAPES = {"one task": (N, 2), "shared inputs": (1, N, 2), "own inputs": (3, N, 2)}


def case(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Inputs of which two are equal, and pseudo-observations of one task or three."""
    rng = np.random.default_rng(0)
    X, lead = rng.uniform(size=shape), (3,) if len(shape) == 3 else ()
    X[..., 4, :] = X[..., 7, :]
    return {
        "X": X,
        "mean": rng.normal(size=(*lead, N, L)),
        "variance": rng.uniform(0.1, 1.0, (*lead, N, L)),
        "Xnew": np.r_[rng.uniform(-0.2, 1.2, (5, 2)), X.reshape(-1, 2)[:1]],
    }


def everything(prior: GP, data: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    X, mean, variance = data["X"], data["mean"], data["variance"]
    found: dict[str, Any] = dict(
        zip(("mean", "variance", "evidence"), prior.condition(X, mean, variance), strict=True)
    )
    found["f"], found["f_variance"] = prior.predict(data["Xnew"], X, mean, variance)
    found["log_prob"] = prior.log_prob(X, mean)
    found["precision"] = prior.precision_diagonal(X, mean.shape)
    found["expected_log_prob"] = expected_log_prob(prior, X, mean, variance)
    found["with_noise"] = expected_log_prob(prior, X, mean, variance, variance[..., :1])
    return found


@pytest.mark.parametrize("kernel", [SHARED, SEPARATE], ids=["shared", "separate"])
@pytest.mark.parametrize("shape", list(SHAPES.values()), ids=list(SHAPES))
def test_with_all_points_as_neighbours_it_is_the_dense_prior(
    shape: tuple[int, ...], kernel: Any
) -> None:
    """To rounding; 30 neighbours of 18 points are all of them."""
    data = case(shape)
    settings = {"mean_function": gpflow.functions.Linear(np.ones((2, 1)))}
    dense = everything(GP(kernel, L, **settings), data)
    prior = NearestNeighbourGP(kernel, data["X"], L, 30, **settings)
    for name, found in everything(prior, data).items():
        assert found.shape == dense[name].shape, name
        np.testing.assert_allclose(found, dense[name], rtol=1e-8, atol=1e-9, err_msg=name)


def test_gradients_are_those_of_the_dense_prior() -> None:
    data, found = case((N, 2)), []
    for prior in (GP(SHARED, L), NearestNeighbourGP(SHARED, data["X"], L, N)):
        inputs = [tf.constant(data[name]) for name in ("mean", "variance")]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            posterior = prior.condition(data["X"], *inputs)
            total = posterior.log_marginal + prior.log_prob(data["X"], inputs[0])
            total += tf.reduce_sum(posterior.mean**2) + tf.reduce_sum(posterior.variance**2)
        found.append(tape.gradient(total, [*prior.trainable_variables, *inputs]))
    for dense, own in zip(*found, strict=True):
        np.testing.assert_allclose(own, dense, rtol=1e-7, atol=1e-7)


def test_with_few_neighbours_it_is_a_product_of_conditionals() -> None:
    """In NumPy, point by point; and a density whose precision has the diagonal that it says."""
    data, m = case((N, 2)), 3
    prior = NearestNeighbourGP(SHARED, data["X"], L, m)
    table = prior.neighbours_of(data["X"]).numpy()
    noise = float(prior.code_noise) + gpflow.default_jitter()
    K = SHARED(data["X"]).numpy() + noise * np.eye(N)
    expected, B, D = 0.0, np.zeros((N, N)), np.zeros(N)
    for n, row in enumerate(table):
        near = row[row >= 0]
        weights = np.linalg.solve(K[np.ix_(near, near)], K[near, n])
        B[n, near], D[n] = weights, K[n, n] - weights @ K[near, n]
        residual = data["mean"][n] - weights @ data["mean"][near]
        expected += np.sum(-0.5 * np.log(2 * np.pi * D[n]) - 0.5 * residual**2 / D[n])
    assert (table >= 0).sum() == 3 * N - 6
    np.testing.assert_allclose(prior.log_prob(data["X"], data["mean"]), expected, rtol=1e-10)
    precision = (np.eye(N) - B).T @ np.diag(1.0 / D) @ (np.eye(N) - B)
    found = prior.precision_diagonal(data["X"], data["mean"].shape)
    np.testing.assert_allclose(found[:, 0], np.diag(precision), rtol=1e-9)


@pytest.mark.parametrize(
    "noise, most, nats", [(1e-3, 1.02, 0.02), (1e-2, 1.03, 0.03), (0.1, 1.07, 0.07)]
)
def test_twenty_neighbours_of_two_thousand_points_are_enough(
    noise: float, most: float, nats: float
) -> None:
    """Held-out error within 2 % of the exact prior's, log density within 0.02 nats.

    Given codes with the noise of a code: what a chain's states are to a prediction. Noisier ones
    want more, because twenty average less noise than two thousand.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2500, 2))
    kernel = k.Matern32(lengthscales=0.3)
    factor = np.linalg.cholesky(kernel(X).numpy() + 1e-9 * np.eye(2500))
    f = factor @ rng.normal(size=(2500, 1))
    y = f + np.sqrt(noise) * rng.normal(size=f.shape)
    errors, densities = [], []
    known, new = slice(2000), slice(2000, None)
    for prior in (GP(kernel, 1, noise), NearestNeighbourGP(kernel, X[known], 1, 20, noise)):
        mean, variance = prior.predict(X[new], X[known], y[known], np.zeros((2000, 1)))
        squared = (mean.numpy() - f[new]) ** 2
        errors.append(np.sqrt(squared.mean()))
        densities.append(np.mean(-0.5 * np.log(2 * np.pi * variance) - 0.5 * squared / variance))
    assert errors[1] < most * errors[0]
    assert abs(densities[1] - densities[0]) < nats


def test_a_single_point_has_no_neighbours() -> None:
    point = (np.zeros((1, 2)), np.ones((1, L)), np.full((1, L), 0.3))
    prior = NearestNeighbourGP(SHARED, point[0], L)
    for found, dense in zip(prior.condition(*point), GP(SHARED, L).condition(*point), strict=True):
        np.testing.assert_allclose(found, dense, rtol=1e-10)


@pytest.mark.parametrize("kernel", [SHARED, SEPARATE], ids=["shared", "separate"])
def test_tasks_of_unequal_lengths_have_neighbours_of_their_own(kernel: Any) -> None:
    """Each is as alone, also one with fewer points than neighbours; padding is independent."""
    data, sizes = case((3, N, 2)), (N, 4, 11)
    X = [x[:n] for x, n in zip(data["X"], sizes, strict=True)]
    own = np.arange(N) < np.array(sizes)[:, None]
    variance = np.where(own[..., None], data["variance"], 1e10)
    prior = NearestNeighbourGP(kernel, X, L, 5)
    places, _ = pad_tasks(X, is_input=True)
    of_points = prior.condition(places, data["mean"], variance)
    of_new = prior.predict(data["Xnew"], places, data["mean"], variance)
    for t, (x, n) in enumerate(zip(X, sizes, strict=True)):
        pseudo = x, data["mean"][t, :n], variance[t, :n]
        alone = NearestNeighbourGP(kernel, x, L, 5)
        for all_tasks, one in zip(of_points[:2], alone.condition(*pseudo)[:2], strict=True):
            np.testing.assert_allclose(all_tasks[t, :n], one, rtol=1e-7, atol=1e-8)
        for all_tasks, one in zip(of_new, alone.predict(data["Xnew"], *pseudo), strict=True):
            np.testing.assert_allclose(all_tasks[t], one, rtol=1e-7, atol=1e-8)
    prior.check_lengths(list(sizes))
    with pytest.raises(ValueError, match=r"tasks of \[18, 3\] points, .* array of inputs: make it"):
        NearestNeighbourGP(kernel, data["X"], L).check_lengths([18, 3])


def test_distances_are_in_lengthscales() -> None:
    """A kernel that is smooth along one input has its neighbours there."""
    axis = np.arange(6.0)
    X = np.array([[a, b] for a in axis for b in axis])
    kernel = k.Matern32(lengthscales=[1.0, 10.0])
    for scales, same_row in ((None, True), ([1.0, 0.1], False)):
        prior = NearestNeighbourGP(kernel, X, 1, 2, scales=scales)
        near = prior._neighbourhoods.near.numpy()[:, 1:]
        assert np.all((X[near][..., 0] == X[:, None, 0]) == same_row)


def test_it_compiles() -> None:
    """By XLA, as rounds are on a GPU."""
    data = case((N, 2))
    prior = NearestNeighbourGP(SHARED, data["X"], L, 4)
    compiled = tf.function(prior.log_prob, jit_compile=True, autograph=False)
    np.testing.assert_allclose(
        compiled(data["X"], data["mean"]), prior.log_prob(data["X"], data["mean"]), rtol=1e-10
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_neighbours": 0}, "num_neighbours must be at least 1, got 0"),
        ({"scales": [1.0]}, r"scales must be 2 positive lengths, one for each input, got \[1.0\]"),
        ({"scales": [1.0, 0.0]}, "scales must be 2 positive lengths"),
        ({"inputs": np.zeros(4)}, r"inputs must have shape \[N, D\] or \[T, N, D\], got \(4,\)"),
        ({"inputs": np.full((4, 2), np.nan)}, "inputs hold NaN or infinity"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NearestNeighbourGP(
            **{"kernel": SHARED, "inputs": np.zeros((4, 2)), "latent_dim": 1} | changes
        )


def test_other_points_are_refused() -> None:
    """Of another number, in another order, or some tasks of several."""
    data = case((3, N, 2))
    prior = NearestNeighbourGP(SHARED, data["X"], L, 4)
    with pytest.raises(ValueError, match=r"X has shape \(2, 18, 2\), and NearestNeighbourGP"):
        prior.log_prob(data["X"][:2], data["mean"][:2])
    with pytest.raises(ValueError, match="X has other values than the inputs"):
        prior.log_prob(data["X"][:, ::-1], data["mean"])
