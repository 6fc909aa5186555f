"""Columns that never fall, or never rise, along a series, such as the readings of a meter."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .column_kind import ColumnKind

__all__ = ["between_neighbours", "with_directions"]

_LEAST_STEPS = 20  # observed steps from which a column is known to go one way


def with_directions(
    kinds: Sequence[ColumnKind],
    names: Sequence[Any],
    Y: np.ndarray,
    tasks: np.ndarray,
    X: np.ndarray,
    said: Mapping[Any, Any] | str | None,
) -> tuple[ColumnKind, ...]:
    """The kinds, with the direction of columns that go one way along each series.

    A column does so if none of its observed steps, of which there are twenty, goes back, and half
    of them go on. Of columns without order one in a million would, by chance.

    :param names: names of the outputs [Q].
    :param Y: outputs [rows, Q], NaN where missing.
    :param tasks: the name of each row's series [rows].
    :param X: inputs [rows, D]; without a single one rows are no series.
    :param said: kinds that the user names, by column, or the one of all; these have no direction.
    """
    if X.shape[1] != 1 or isinstance(said, str):
        return tuple(kinds)
    found, series = [], list(_series(tasks, X))
    for kind in kinds:
        column = Y[:, list(names).index(kind.name)]
        steps = [np.diff(v[~np.isnan(v)]) for v in (column[r] for r in series)]
        moved = np.concatenate([np.zeros(0), *steps])
        direction = 0
        for sign in (1, -1):
            goes_on = len(moved) >= _LEAST_STEPS and np.mean(sign * moved > 0.0) >= 0.5
            direction = sign if goes_on and (sign * moved >= 0.0).all() else direction
        free = kind.kind != "binary" and kind.name not in (said or ())
        found.append(dataclasses.replace(kind, direction=direction) if free else kind)
    return tuple(found)


def between_neighbours(
    direction: int,
    column: np.ndarray,
    tasks: np.ndarray,
    X: np.ndarray,
    values: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Values of missing cells that go one way, between the observed ones on both sides.

    Series whose observed cells do not go that way are left as they are.

    :param direction: 1 of a column that never falls, -1 of one that never rises.
    :param column: its cells [rows], NaN where missing.
    :param values: fills, or ends of their intervals, each [rows].
    """
    found = [np.array(v) for v in values]
    for rows in _series(tasks, X):
        seen = direction * column[rows]
        known = ~np.isnan(seen)
        low = np.maximum.accumulate(np.where(known, seen, -np.inf))
        high = np.minimum.accumulate(np.where(known, seen, np.inf)[::-1])[::-1]
        if (low > high).any():
            continue
        for array in found:
            own = np.where(known, seen, np.clip(direction * array[rows], low, high))
            array[rows] = np.where(known, array[rows], direction * np.maximum.accumulate(own))
    return found


def _series(tasks: np.ndarray, X: np.ndarray) -> Iterator[np.ndarray]:
    """Numbers of the rows of each series, in the order of their input."""
    order = np.lexsort((X[:, 0], tasks))
    _, first = np.unique(tasks[order], return_index=True)
    yield from np.split(order, first[1:])
