"""Orderings of locations, and nearest neighbours among those that come before.

Vecchia's density is a product over points of densities given a few that come before them in some
order. How good it is depends on the order: one that puts far points first (maximin, Guinness 2018)
leaves every point with near and far neighbours, one along a coordinate only with those on one side.

References:

- Vecchia (1988). Estimation and model identification for continuous spatial processes. JRSS B 50.
- Guinness (2018). Permutation and grouping methods for sharpening Gaussian process approximations.
  Technometrics 60.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

__all__ = [
    "Neighbourhoods",
    "Ordering",
    "children_of",
    "coordinate_order",
    "earlier_neighbours",
    "maximin_order",
    "nearest",
]

Ordering: TypeAlias = Literal["maximin", "coordinate"]

_LEVELS = 20  # tell places apart that are a millionth of the region from each other
_APART = 0.6  # of a cell's width, that places of a level are from each other
_MANY = 4  # times as many neighbours are asked for as are wanted: half of them come before


class Neighbourhoods:
    """Tables of the neighbours of points, of one task [N, D] or of several [T, N, D].

    Each is made when it is first asked for, and shared by all copies of a prior.
    """

    def __init__(self, X: np.ndarray, scales: np.ndarray, num_neighbours: int, ordering: Ordering):
        """
        :param X: places.
        :param scales: lengths [D] in which distances are measured.
        """
        self.X, self._places = X, X / scales
        self._count, self._ordering = num_neighbours, ordering

    def __deepcopy__(self, memo: Any) -> Neighbourhoods:
        return self

    @functools.cached_property
    def earlier(self) -> tf.Tensor:
        """Of each point those that come before it, -1 where there are fewer: [(T,) N, m]."""
        order_of = maximin_order if self._ordering == "maximin" else coordinate_order
        return self._table(lambda X: earlier_neighbours(X, order_of(X), self._count))

    @functools.cached_property
    def near(self) -> tf.Tensor:
        """Of each point itself and the nearest of all others: [(T,) N, m + 1]."""
        return self._table(lambda X: nearest(X, self._count + 1))

    def _table(self, of_task: Callable[[np.ndarray], np.ndarray]) -> tf.Tensor:
        with tf.init_scope():  # it outlives the function in which it may be asked for first
            if self._places.ndim == 2:
                return tf.constant(of_task(self._places), tf.int32)
            return tf.constant(np.stack([of_task(X) for X in self._places]), tf.int32)


def coordinate_order(X: np.ndarray) -> np.ndarray:
    """Places in the order of the sum of their coordinates, a permutation [N] of ``X [N, D]``."""
    return np.argsort(X.sum(axis=1), kind="stable")


def maximin_order(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """Places from coarse to fine, a permutation [N] of ``X [N, D]``.

    Each level has in every cell of a grid that has none yet the place that is furthest from all
    before, without those that are nearer to each other than about half a cell, which wait; the
    next level's cells are half as wide. That is the maximin order up to a factor of two or so, in
    a time of N log N. Repeated places come last.

    :param seed: of the order of places that are as far as each other.
    """
    number = len(X)
    rng = np.random.default_rng(seed)
    low, width = X.min(axis=0), float(np.ptp(X, axis=0).max())
    left = rng.permutation(number)
    if width == 0.0:
        return left
    chosen = left[:0]
    for level in range(_LEVELS):
        if not left.size:
            break
        cell = width * (1.0 + 1e-12) / 2.0**level
        keys = _keys(np.floor((X - low) / cell), level)
        free = left[~np.isin(keys[left], keys[chosen])]
        distance = np.full(len(free), np.inf)
        if chosen.size:
            distance, _ = cKDTree(X[chosen]).query(X[free], workers=-1)
            free, distance = (v[distance > _APART * cell] for v in (free, distance))
        by_distance = np.argsort(-distance, kind="stable")
        _, first = np.unique(keys[free[by_distance]], return_index=True)
        candidates = free[by_distance[np.sort(first)]]  # the furthest first
        found = candidates[_spread_out(X[candidates], _APART * cell)]
        chosen = np.concatenate([chosen, found])
        is_left = np.ones(number, bool)
        is_left[chosen] = False
        left = left[is_left[left]]
    return np.concatenate([chosen, left])


def _spread_out(X: np.ndarray, distance: float) -> np.ndarray:
    """Which places to keep so that none are nearer to each other; first come, first kept."""
    kept = np.ones(len(X), bool)
    pairs = cKDTree(X).query_pairs(distance, output_type="ndarray")
    pairs.sort(axis=1)
    undecided = pairs
    while undecided.size:
        # Who has nobody before that is undecided stays, and drops all who come after.
        waits = np.zeros(len(X), bool)
        waits[undecided[:, 1]] = True
        dropped = undecided[~waits[undecided[:, 0]], 1]
        kept[dropped] = False
        undecided = undecided[kept[undecided].all(axis=1)]
    return kept


def _keys(cells: np.ndarray, level: int) -> np.ndarray:
    """One number [N] for each of ``cells [N, D]``, of which there are 2**level along a side."""
    dimension = cells.shape[1]
    if (level + 1) * dimension > 62:  # more cells than int64 can count
        return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    return cells.astype(np.int64) @ (2 ** ((level + 1) * np.arange(dimension, dtype=np.int64)))


def earlier_neighbours(X: np.ndarray, order: np.ndarray, num_neighbours: int) -> np.ndarray:
    """The nearest places before each in an order: [N, m], those of ``X``, nearest first.

    The i-th place of the order has i before it, so -1 fills up the rows of the first ones. Found
    by trees of the first 2, 4, 8, ... m places of the order, with a few times as many neighbours
    as are wanted, and again with more for places where too few of those came before.

    :param order: a permutation [N].
    :param num_neighbours: m; at most N - 1 of them exist.
    """
    number = len(X)
    m = min(num_neighbours, number - 1)
    ordered = np.ascontiguousarray(X[order])
    found = np.full((number, m), -1, np.int64)
    stop = min(number, max(64, 2 * m))
    _among_first(ordered, found, np.arange(stop), stop)
    while stop < number:
        start, stop = stop, min(number, 2 * stop)
        _among_first(ordered, found, np.arange(start, stop), stop)
    result = np.full((number, m), -1, np.int64)
    result[order] = np.where(found < 0, -1, order[found])
    return result


def _among_first(ordered: np.ndarray, found: np.ndarray, rows: np.ndarray, stop: int) -> None:
    """Fill ``found[rows]``, of which all are among the first ``stop`` places."""
    m, tree, asked = found.shape[1], cKDTree(ordered[:stop]), _MANY * found.shape[1] + 1
    while rows.size and m:
        asked = min(asked, stop)
        _, near = tree.query(ordered[rows], asked, workers=-1)
        near = near.reshape(len(rows), asked)
        before = near < rows[:, None]
        rank = np.cumsum(before, axis=1)
        enough = (rank[:, -1] >= np.minimum(rows, m)) | (asked == stop)
        which, column = np.nonzero(before & (rank <= m) & enough[:, None])
        found[rows[which], rank[which, column] - 1] = near[which, column]
        rows, asked = rows[~enough], 2 * asked


def children_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each point those that have it as a neighbour: the inverse of a table of neighbours.

    Points early in a maximin order have many, late ones few or none; the mean is m.

    :param table: [N, m], -1 where a point has fewer than m.
    :return: splits [N + 1] and points [their sum], both int32: the children of point n, from the
        smallest on, are ``points[splits[n]:splits[n + 1]]``.
    """
    point, column = np.nonzero(table >= 0)
    parent = table[point, column]
    counts = np.bincount(parent, minlength=len(table))
    splits = np.concatenate([[0], np.cumsum(counts)])
    children = point[np.argsort(parent, kind="stable")]
    return splits.astype(np.int32), children.astype(np.int32)


def nearest(X: np.ndarray, count: int) -> np.ndarray:
    """Each place and the ``count - 1`` nearest others: [N, count], itself first."""
    number = len(X)
    count = min(count, number)
    _, near = cKDTree(X).query(X, count, workers=-1)
    near = near.reshape(number, count)
    own = np.arange(number)
    # Of places that are repeated, another may be found before itself, or itself not at all.
    at = np.where(near == own[:, None], np.arange(count), count - 1).min(axis=1)
    near[own, at] = near[:, 0]
    near[:, 0] = own
    return near
