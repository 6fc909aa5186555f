"""k-means: what its centres are, and what they do not depend on."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.inducing_variables import k_means

CENTRES = np.array([[-5.0, 0.0], [0.0, 10.0], [10.0, 0.0]])


def _clusters() -> np.ndarray:
    """Three tight clusters of 20 points each, whose means are known to be ``CENTRES``."""
    offsets = np.random.default_rng(0).normal(scale=0.1, size=(3, 20, 2))
    return CENTRES[:, None] + offsets - offsets.mean(1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_well_separated_clusters_are_found(seed: int) -> None:
    """Their centres are the clusters' means, sorted by the first column."""
    np.testing.assert_allclose(k_means(_clusters(), 3, seed), CENTRES, atol=1e-10)


def test_units_do_not_decide() -> None:
    """Columns are standardised: rescaling and shifting the inputs does the same to the centres."""
    X = np.random.default_rng(1).normal(size=(40, 2))
    scale, shift = np.array([1e-3, 50.0]), np.array([7.0, -2.0])
    np.testing.assert_allclose(k_means(X * scale + shift, 5), k_means(X, 5) * scale + shift)


def test_centres_are_fixed_points() -> None:
    """Lloyd's condition: each centre is the mean of the (standardised) points nearest to it.

    scipy stops after ten sweeps; for four groups this clear they have settled.
    """
    X = np.concatenate([_clusters().reshape(-1, 2), [[30.0, 30.0], [30.2, 30.1]]])
    scale = X.std(0)
    centres = k_means(X, 4)
    nearest = np.argmin((((X[:, None] - centres) / scale) ** 2).sum(-1), 1)
    means = [X[nearest == i].mean(0) for i in range(4)]
    np.testing.assert_allclose(centres, means, atol=1e-10)


def test_repeated_inputs_carry_no_more_weight() -> None:
    """Tasks that share a grid: the same centres as of one task."""
    X = np.random.default_rng(1).normal(size=(1, 30, 2))
    np.testing.assert_array_equal(k_means(np.repeat(X, 4, 0), 5), k_means(X, 5))


def test_as_many_as_distinct_inputs_are_the_inputs() -> None:
    """Then FITC is the exact GP."""
    X = np.array([[2.0], [0.0], [1.0], [0.0]])
    np.testing.assert_array_equal(k_means(X, 3), [[0.0], [1.0], [2.0]])


def test_equal_seeds_equal_centres() -> None:
    """Reproducible, and independent of NumPy's global state."""
    X = np.random.default_rng(1).normal(size=(40, 2))
    np.testing.assert_array_equal(k_means(X, 5, seed=3), k_means(X, 5, seed=3))


def test_constant_column_stays_constant() -> None:
    """A column without spread must not be divided by it."""
    X = np.column_stack([np.random.default_rng(1).normal(size=20), np.full(20, 3.0)])
    np.testing.assert_allclose(k_means(X, 4)[:, 1], 3.0)


def test_rounding_decides_nothing() -> None:
    """A column of one value, up to the last place, has no say in the clusters of the others."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 1))
    X = np.concatenate([x, 48.85 + 1e-14 * rng.integers(0, 3, (20, 1))], axis=1)
    found = k_means(X, 4)
    np.testing.assert_allclose(found[:, :1], k_means(x, 4), rtol=1e-12)
    np.testing.assert_allclose(found[:, 1], 48.85, rtol=1e-14)


@pytest.mark.parametrize("num_inducing", [0, -1, 4])
def test_number_must_fit(num_inducing: int) -> None:
    """More centres than distinct inputs would coincide."""
    with pytest.raises(ValueError, match=f"between 1 and the 3 distinct.*got {num_inducing}"):
        k_means(np.array([[0.0], [1.0], [2.0], [2.0]]), num_inducing)
