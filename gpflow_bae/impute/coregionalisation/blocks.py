"""Which cells are seen together: blocks of neighbouring rows, with what lies around them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from .model import Block

__all__ = ["BlockSizes", "block_at", "block_of", "blocks_of_table", "leaves"]

_GROWTH = 1.6  # cells beyond a block's neighbours are taken at distances that grow by this factor


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """Rows of a block, rows next to it, and cells of each column beyond those, on each side."""

    rows: int
    near: int
    far: int

    @classmethod
    def of_cells(cls, cells: int, per_row: float, num_columns: int) -> BlockSizes:
        """For about so many observed cells, of which ``per_row`` are in a row.

        Nearly half of them are the block's own, a third are next to it, the others far away: where
        a column has a long gap its nearest observations are among those.
        """
        near = max(2, round(0.35 * cells / per_row))
        return cls(max(2, round(0.45 * cells / per_row)), near, max(1, cells // (10 * num_columns)))


@check_shapes("X: [N, D]")
def leaves(X: np.ndarray, rows: int) -> list[np.ndarray]:
    """Indices of the rows, in boxes of at most so many neighbours: halves of the widest side."""

    def split(index: np.ndarray) -> list[np.ndarray]:
        if len(index) <= rows:
            return [index]
        widest = int(np.argmax(np.ptp(X[index], axis=0)))
        ordered = index[np.argsort(X[index, widest], kind="stable")]
        if X.shape[1] == 1:
            return np.array_split(ordered, -(-len(ordered) // rows))
        half = len(ordered) // 2
        return split(ordered[:half]) + split(ordered[half:])

    return split(np.arange(len(X)))


@check_shapes("X: [N, D]", "Z: [N, P]", "leaf: [rows]", "targets: [K, 2]")
def block_of(
    X: np.ndarray, Z: np.ndarray, leaf: np.ndarray, sizes: BlockSizes, targets: np.ndarray
) -> Block:
    """The observed cells around a leaf, and those to predict.

    :param Z: values, NaN where missing.
    :param targets: row and column of each, all in the leaf.
    """
    observed = ~np.isnan(Z)
    low, high = X[leaf].min(0), X[leaf].max(0)
    outside = np.maximum(low - X, 0.0) + np.maximum(X - high, 0.0)
    beyond = np.ones(len(X), dtype=bool)
    beyond[leaf] = False
    order = np.argsort(np.square(outside).sum(-1), kind="stable")
    order = order[beyond[order]]
    rows = np.concatenate([leaf, order[: sizes.near]])
    inner = np.argwhere(observed[rows])
    cells = [np.stack([rows[inner[:, 0]], inner[:, 1]], axis=-1)]
    rest = order[sizes.near :]
    before = X[rest, 0] < low[0]
    sides = [rest[before], rest[~before]] if X.shape[1] == 1 else [rest]
    places = np.unique(np.round(_GROWTH ** np.arange(sizes.far)).astype(int)) - 1
    for column in range(Z.shape[1]):
        for side in sides:
            seen = side[observed[side, column]]
            chosen = seen[places[places < len(seen)]]
            cells.append(np.stack([chosen, np.full(len(chosen), column)], axis=-1))
    found = np.concatenate(cells)
    used, place = np.unique(np.concatenate([found[:, 0], targets[:, 0]]), return_inverse=True)
    place = place.ravel().astype(np.int32)
    return Block(
        X[used],
        place[: len(found)],
        found[:, 1].astype(np.int32),
        Z[found[:, 0], found[:, 1]],
        place[len(found) :],
        targets[:, 1].astype(np.int32),
    )


def _sizes(plan_cells: int, observed: np.ndarray, rows: int) -> BlockSizes:
    """Of the blocks of a task: one of all its rows if there are no more cells than that."""
    total = int(np.count_nonzero(observed))
    if total <= 1.3 * plan_cells:
        return BlockSizes(rows, 0, 1)
    return BlockSizes.of_cells(plan_cells, max(total / rows, 0.3), observed.shape[-1])


def blocks_of_table(
    table: MultiOutputTable, Z: np.ndarray, cells: int
) -> list[tuple[int, np.ndarray, BlockSizes]]:
    """Task, rows and sizes of all blocks of a table."""
    found = []
    for t, length in enumerate(table.lengths):
        observed = ~np.isnan(Z[t, :length])
        if observed.any():
            sizes = _sizes(cells, observed, int(length))
            found += [(t, leaf, sizes) for leaf in leaves(table.X[t, :length], sizes.rows)]
    return found


def block_at(
    table: MultiOutputTable, Z: np.ndarray, place: tuple[int, np.ndarray, BlockSizes], mask: Any
) -> tuple[Block, np.ndarray]:
    """The block of a leaf, and the rows and columns of its targets."""
    t, leaf, sizes = place
    inside = np.argwhere(mask[t, leaf]) if mask is not None else np.zeros((0, 2), dtype=int)
    targets = np.stack([leaf[inside[:, 0]], inside[:, 1]], axis=-1)
    length = table.lengths[t]
    return block_of(table.X[t, :length], Z[t, :length], leaf, sizes, targets), targets
