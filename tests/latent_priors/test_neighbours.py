"""Orderings and neighbours against all distances."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.latent_priors.neighbours import (
    earlier_neighbours,
    maximin_order,
    nearest,
)

ORDERS = {
    "maximin": maximin_order,
    "coordinate": lambda X: np.argsort(X.sum(axis=1), kind="stable"),
}


def places(number: int, dimension: int) -> np.ndarray:
    """Uniform, with two of them equal."""
    X = np.random.default_rng(0).uniform(size=(number, dimension))
    X[-1] = X[number // 2]
    return X


@pytest.mark.parametrize("dimension", [1, 2, 7])
@pytest.mark.parametrize("name", sorted(ORDERS))
def test_earlier_neighbours_are_the_nearest_of_those_before(name: str, dimension: int) -> None:
    """400 places are in trees of several sizes."""
    X, m = places(400, dimension), 6
    order = ORDERS[name](X)
    np.testing.assert_array_equal(np.sort(order), np.arange(400))
    table = earlier_neighbours(X, order, m)
    assert table.shape == (400, m)
    for position, point in enumerate(order):
        found, before = table[point], order[:position]
        there = found[found >= 0]
        assert len(there) == min(position, m) and np.isin(there, before).all()
        distances = np.sort(np.linalg.norm(X[before] - X[point], axis=1))[:m]
        np.testing.assert_allclose(np.linalg.norm(X[there] - X[point], axis=1), distances)


def test_maximin_goes_from_coarse_to_fine() -> None:
    """Each place is about as far from all before as in the exact order, and not as in any."""
    X = places(600, 2)[:-1]
    exact, gap = [0], np.linalg.norm(X - X[0], axis=1)
    for _ in range(len(X) - 1):
        exact.append(int(gap.argmax()))
        gap = np.minimum(gap, np.linalg.norm(X - X[exact[-1]], axis=1))
    spreads = []
    for order in (maximin_order(X), exact, np.random.default_rng(1).permutation(len(X))):
        nearest_before = [
            np.linalg.norm(X[order[:i]] - X[order[i]], axis=1).min() * np.sqrt(i)
            for i in range(10, 300)
        ]
        spreads.append(np.quantile(nearest_before, [0.1, 0.5]))
    found, best, random = spreads
    assert np.all(found > [0.65 * best[0], 0.85 * best[1]])
    assert found[0] > 1.5 * random[0]


def test_repeated_places_come_last() -> None:
    X = places(300, 2)
    assert set(maximin_order(X)[-1:].tolist()) <= {150, 299}


def test_nearest_begins_with_the_place_itself() -> None:
    X = places(50, 2)
    table = nearest(X, 5)
    np.testing.assert_array_equal(table[:, 0], np.arange(50))
    for n, row in enumerate(table):
        assert len(set(row.tolist())) == 5
        distances = np.linalg.norm(X - X[n], axis=1)
        np.testing.assert_allclose(np.sort(distances[row]), np.sort(distances)[:5])


def test_all_places_equal() -> None:
    """There is no order from coarse to fine, and each is as near as any other."""
    X = np.ones((9, 2))
    table = earlier_neighbours(X, maximin_order(X), 4)
    np.testing.assert_array_equal(np.sort((table >= 0).sum(1)), [0, 1, 2, 3, 4, 4, 4, 4, 4])
    near = nearest(X, 20)
    np.testing.assert_array_equal(np.sort(near, axis=1), np.tile(np.arange(9), (9, 1)))
    np.testing.assert_array_equal(near[:, 0], np.arange(9))
