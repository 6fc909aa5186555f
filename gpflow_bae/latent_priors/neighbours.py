"""An ordering of locations, and nearest neighbours among earlier locations.

Vecchia's density is a product over points of densities given a few earlier points of an ordering.
Its accuracy depends on the ordering: one that puts distant points first (maximin, Guinness 2018)
gives every point near and far neighbours, one along a coordinate only neighbours on one side.

References:

- Vecchia (1988). Estimation and model identification for continuous spatial processes. JRSS B 50.
- Guinness (2018). Permutation and grouping methods for sharpening Gaussian process approximations.
  Technometrics 60.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

__all__ = [
    "Neighbourhoods",
    "children_of",
    "earlier_neighbours",
    "maximin_order",
    "nearest",
]

_LEVELS = 20  # the finest cells are about a millionth of the region wide
_MIN_DISTANCE = 0.6  # least distance between places of a level, in cell widths
_QUERY_FACTOR = 4  # factor of neighbours to query: on average half of them come earlier


class Neighbourhoods:
    """Tables of neighbours among the points of one task [N, D] or of several [T, N, D].

    Each table is computed on first use, and shared by all copies of a prior.
    """

    def __init__(
        self,
        X: np.ndarray,
        scales: np.ndarray,
        num_neighbours: int,
        lengths: Sequence[int] | None = None,
    ):
        """
        :param X: locations.
        :param scales: length scales [D] of the distances.
        :param lengths: points of each task [T], of several; later ones are padding, which is no
            point's neighbour, and has no neighbours. None for N.
        """
        self.X, self._places, self.lengths = X, X / scales, lengths
        self._count = num_neighbours

    def __deepcopy__(self, memo: Any) -> Neighbourhoods:
        return self

    @functools.cached_property
    def earlier(self) -> tf.Tensor:
        """Nearest earlier points of each point [(T,) N, m], filled up with -1."""
        return self._table(lambda X: earlier_neighbours(X, maximin_order(X), self._count))

    @functools.cached_property
    def near(self) -> tf.Tensor:
        """Each point itself and its m nearest others [(T,) N, m + 1]; -1 where there are fewer."""
        return self._table(lambda X: nearest(X, self._count + 1))

    def _table(self, of_task: Callable[[np.ndarray], np.ndarray]) -> tf.Tensor:
        with tf.init_scope():  # the table outlives a tf.function that uses it first
            if self._places.ndim == 2:
                return tf.constant(of_task(self._places), tf.int32)
            number = self._places.shape[1]
            lengths = [number] * len(self._places) if self.lengths is None else self.lengths
            tables = [of_task(X[:n]) for X, n in zip(self._places, lengths, strict=True)]
            found = np.full((len(tables), number, max(v.shape[1] for v in tables)), -1)
            for whole, table in zip(found, tables, strict=True):
                whole[: len(table), : table.shape[1]] = table
            return tf.constant(found, tf.int32)


def maximin_order(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a permutation [N] of ``X [N, D]`` from coarse to fine, close to maximin.

    In each level every grid cell without a chosen place gets the one furthest from all chosen
    ones, except where two would be nearer than about half a cell; the next level's cells are half
    as wide. This is the maximin order up to a factor of about two, in time N log N. Repeated
    places come last.

    :param seed: seed for ties of the distance.
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
            free, distance = (v[distance > _MIN_DISTANCE * cell] for v in (free, distance))
        by_distance = np.argsort(-distance, kind="stable")
        _, first = np.unique(keys[free[by_distance]], return_index=True)
        candidates = free[by_distance[np.sort(first)]]  # the furthest first
        found = candidates[_spread_out(X[candidates], _MIN_DISTANCE * cell)]
        chosen = np.concatenate([chosen, found])
        is_left = np.ones(number, bool)
        is_left[chosen] = False
        left = left[is_left[left]]
    return np.concatenate([chosen, left])


def _spread_out(X: np.ndarray, distance: float) -> np.ndarray:
    """Return a mask of places at least ``distance`` apart; earlier places have precedence."""
    kept = np.ones(len(X), bool)
    pairs = cKDTree(X).query_pairs(distance, output_type="ndarray")
    pairs.sort(axis=1)
    undecided = pairs
    while undecided.size:
        # A place without undecided earlier ones is kept, and its later neighbours are dropped.
        waits = np.zeros(len(X), bool)
        waits[undecided[:, 1]] = True
        dropped = undecided[~waits[undecided[:, 0]], 1]
        kept[dropped] = False
        undecided = undecided[kept[undecided].all(axis=1)]
    return kept


def _keys(cells: np.ndarray, level: int) -> np.ndarray:
    """Return an integer key [N] for each of ``cells [N, D]``, with 2**level cells per side."""
    dimension = cells.shape[1]
    if (level + 1) * dimension > 62:  # more cells than int64 can count
        return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    return cells.astype(np.int64) @ (2 ** ((level + 1) * np.arange(dimension, dtype=np.int64)))


def earlier_neighbours(X: np.ndarray, order: np.ndarray, num_neighbours: int) -> np.ndarray:
    """Return the m nearest earlier places of each place [N, m], nearest first.

    Entries are rows of ``X``. The i-th place of the order has i earlier ones, so the first rows
    are filled up with -1. The search uses trees of the first 64 (or 2 m) places of the order, of
    the first 128, and so on, with a few times m neighbours, and more for places with too few
    earlier ones among those.

    :param order: a permutation [N].
    :param num_neighbours: m; reduced to N - 1 if larger.
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
    """Fill ``found[rows]`` for rows among the first ``stop`` places."""
    m, tree, asked = found.shape[1], cKDTree(ordered[:stop]), _QUERY_FACTOR * found.shape[1] + 1
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
    """Return the children of each point, that is, the points that have it as a neighbour.

    Points early in a maximin order have many, late ones few or none; the mean is at most m.

    :param table: neighbours [N, m], -1 where a point has fewer than m.
    :return: splits [N + 1] and points [splits[-1]], both int32: the children of point n, in
        increasing order, are ``points[splits[n]:splits[n + 1]]``.
    """
    point, column = np.nonzero(table >= 0)
    parent = table[point, column]
    counts = np.bincount(parent, minlength=len(table))
    splits = np.concatenate([[0], np.cumsum(counts)])
    children = point[np.argsort(parent, kind="stable")]
    return splits.astype(np.int32), children.astype(np.int32)


def nearest(X: np.ndarray, count: int) -> np.ndarray:
    """Return each place, first, and its ``count - 1`` nearest others: [N, count]."""
    number = len(X)
    count = min(count, number)
    _, near = cKDTree(X).query(X, count, workers=-1)
    near = near.reshape(number, count)
    own = np.arange(number)
    # Of repeated places another may be found before the place itself, or instead of it.
    at = np.where(near == own[:, None], np.arange(count), count - 1).min(axis=1)
    near[own, at] = near[:, 0]
    near[:, 0] = own
    return near
