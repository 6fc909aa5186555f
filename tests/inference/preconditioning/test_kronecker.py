"""Layerwise coordinates: linear algebra of NumPy, and a covariance that is a Kronecker product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_bae import decoders, models
from gpflow_bae.core.tracing import compiled
from gpflow_bae.inference.preconditioning import kronecker, linear_map
from gpflow_bae.inference.preconditioning.kronecker import basis_sizes, fisher_maps
from gpflow_bae.inference.preconditioning.linear_map import KroneckerMap
from gpflow_bae.inference.preconditioning.prior import prior_precision
from tests.inference.amortized_models import L, P, network

SHAPE = (2, 3, 4)  # a matrix of 6 x 4, and 24 numbers


@pytest.fixture
def small_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 numbers are not taken as one column."""
    for module in (kronecker, linear_map):
        monkeypatch.setattr(module, "LARGEST_SIDE", 10)


def orthogonal(size: int, seed: int) -> tf.Tensor:
    return tf.constant(np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0])


def some_factor() -> KroneckerMap:
    scale = np.random.default_rng(0).uniform(0.5, 2.0, SHAPE)
    return KroneckerMap(tf.constant(scale), (orthogonal(6, 1),), (orthogonal(4, 2),))


def matrix_of(factor: KroneckerMap) -> np.ndarray:
    """The map from coordinates to values, as a matrix of 24 x 24."""
    units = tf.reshape(tf.eye(24, dtype=tf.float64), [24, *SHAPE])
    return tf.reshape(factor.forward(units), [24, 24]).numpy().T


@pytest.mark.usefixtures("small_sides")
@pytest.mark.parametrize("chains", [(), (5,)])
def test_values_and_gradients_are_those_of_a_matrix(chains: tuple[int, ...]) -> None:
    factor = some_factor()
    matrix = matrix_of(factor)
    u = np.random.default_rng(3).normal(size=(*chains, *SHAPE))
    value = factor.forward(tf.constant(u))
    flat = u.reshape(*chains, 24)
    np.testing.assert_allclose(np.reshape(value, flat.shape), flat @ matrix.T, atol=1e-12)
    np.testing.assert_allclose(factor.inverse(value), u, atol=1e-12)
    slopes = factor.pullback(tf.constant(u))
    np.testing.assert_allclose(np.reshape(slopes, flat.shape), flat @ matrix, atol=1e-12)


def drawn_factors(
    prior: float, relative_damping: float
) -> tuple[tuple[KroneckerMap, ...], np.ndarray]:
    """Of gradients left^1/2 E right^1/2, whose covariance is the product of left and right."""
    a, b = (
        q @ np.diag(v) @ q.T
        for q, v in zip(
            (orthogonal(6, 5).numpy(), orthogonal(4, 6).numpy()),
            (np.geomspace(0.1, 100.0, 6), np.geomspace(1.0, 50.0, 4)),
            strict=True,
        )
    )
    roots = [tf.constant(np.linalg.cholesky(m)) for m in (a, b)]

    def draw(seed: tf.Tensor) -> list[tf.Tensor]:
        noise = tf.random.stateless_normal([6, 4], seed, dtype=tf.float64)
        return [tf.reshape(roots[0] @ noise @ tf.transpose(roots[1]), SHAPE)]

    seeds = tf.constant([[7, i] for i in range(20_000)])
    precision = [prior * tf.ones(SHAPE, tf.float64)]
    found = compiled(lambda: fisher_maps(draw, seeds, precision, relative_damping))()
    return found, np.kron(a, b)


@pytest.mark.usefixtures("small_sides")
def test_coordinates_whiten_a_posterior_whose_information_is_a_kronecker_product() -> None:
    """L L^T = (F + prior)^-1. Variances of 20,000 draws are known to 1 per cent."""
    (factor,), fisher = drawn_factors(prior=2.0, relative_damping=0.0)
    matrix = matrix_of(factor)
    whitened = matrix.T @ (fisher + 2.0 * np.eye(24)) @ matrix
    np.testing.assert_allclose(np.diag(whitened), 1.0, rtol=0.06)
    np.testing.assert_allclose(whitened, np.eye(24), atol=0.08)


def test_damping_is_a_share_of_the_mean_information() -> None:
    (factor,), fisher = drawn_factors(prior=1e-9, relative_damping=0.1)
    mean = np.trace(fisher) / 24
    assert np.max(factor.scale) <= (0.1 * 0.97 * mean) ** -0.5
    least = np.linalg.eigvalsh(fisher)[0]
    assert least < 0.01 * mean  # else the bound above would say nothing


def test_few_numbers_have_a_basis_of_their_own() -> None:
    """Of F + prior, whatever F is and however precise the prior is of each number."""
    rng = np.random.default_rng(8)
    root = rng.normal(size=(6, 6)) * np.geomspace(0.1, 10.0, 6)
    prior = np.geomspace(0.1, 10.0, 6).reshape(2, 3)

    def draw(seed: tf.Tensor) -> list[tf.Tensor]:
        noise = tf.random.stateless_normal([6, 1], seed, dtype=tf.float64)
        return [tf.reshape(tf.constant(root) @ noise, [2, 3])]

    seeds = tf.constant([[7, i] for i in range(20_000)])
    (factor,) = compiled(lambda: fisher_maps(draw, seeds, [tf.constant(prior)]))()
    matrix = tf.reshape(factor.forward(tf.reshape(tf.eye(6, dtype=tf.float64), [6, 2, 3])), [6, 6])
    whitened = matrix @ (root @ root.T + np.diag(prior.ravel())) @ tf.transpose(matrix)
    np.testing.assert_allclose(whitened, np.eye(6), atol=0.06)  # errors of 1 per cent


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((), ((), ())),
        ((1,), ((), ())),
        ((5,), ((5,), ())),
        ((1200,), ((), ())),
        ((5, 200), ((1000,), ())),
        ((3, 3, 8, 16), ((72,), (16,))),
        ((500, 1024), ((500,), ())),
        ((3000, 4), ((), (4,))),
    ],
)
def test_vectors_and_sides_too_large_have_no_bases(shape: tuple[int, ...], sizes: Any) -> None:
    assert basis_sizes(tf.TensorShape(shape)) == sizes


def test_a_side_without_a_basis_is_scaled_as_it_is() -> None:
    """Gradients whose rows are correlated and whose 1,200 columns are not, as of a layer whose
    outputs have noise of their own: white all the same, with variances of 2,000 draws (3 %).
    """
    root = np.linalg.cholesky(np.array([[4.0, 1.8], [1.8, 1.0]]))
    columns = np.geomspace(0.1, 10.0, 1200)

    def draw(seed: tf.Tensor) -> list[tf.Tensor]:
        noise = tf.random.stateless_normal([2, 1200], seed, dtype=tf.float64)
        return [tf.constant(root) @ noise * np.sqrt(columns)]

    seeds = tf.constant([[7, i] for i in range(2000)])
    precision = [tf.fill([2, 1200], tf.constant(1e-3, tf.float64))]
    (factor,) = compiled(lambda: fisher_maps(draw, seeds, precision))()
    assert not factor.right
    gradients = tf.stack([factor.pullback(draw(seed)[0]) for seed in tf.unstack(seeds[:500])])
    np.testing.assert_allclose(np.mean(np.square(gradients), 0), 1.0, atol=0.4)  # 6 errors of 6 %
    crossed = np.mean(gradients[:, 0] * gradients[:, 1])
    np.testing.assert_allclose(crossed, 0.0, atol=0.02)  # 1.8 / 2 before


def test_the_precision_of_priors() -> None:
    """1 / scale^2 of normal ones; the least where a log density is convex: a log-normal far out."""
    model = models.TemperedBAE(
        network(P, L), network(L, P), weight_prior=decoders.normal_prior(0.5)
    )
    model.likelihood.variance.assign(30.0)
    precision = dict(
        zip(
            model.sampled.paths,
            prior_precision(model.sampled, model.sampled.values(), 0.125),
            strict=True,
        )
    )
    np.testing.assert_allclose(precision[".decoder.weights[0]"], 4.0, rtol=1e-6)
    assert precision[".decoder.weights[0]"].shape == (L, 4)
    assert float(precision[".likelihood.variance"]) == 0.125
