"""Blocks of neighbouring rows of a table, with observed cells around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

__all__ = [
    "Block",
    "BlockSizes",
    "Place",
    "block_at",
    "joined",
    "leaves",
    "places_of_blocks",
]

_MOST_TOGETHER = 128  # cells of joined blocks, which take little longer than one of a few cells
_GROWTH = 1.6  # growth factor of the distances between cells beyond a block's neighbours


class Block(NamedTuple):
    """Observed cells, and cells to predict, of the same rows, of one task or of several."""

    X: np.ndarray  # [n, D]
    task: np.ndarray  # [n], number of each row's task; tasks are independent
    row: np.ndarray  # [C], row of X of each cell
    column: np.ndarray  # [C]
    value: np.ndarray  # [C]
    target_row: np.ndarray  # [K]
    target_column: np.ndarray  # [K]


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """Numbers of rows of a block, of rows next to it, and of cells per column farther away."""

    rows: int
    near: int
    far: int

    @classmethod
    def of_task(cls, cells: int, observed: np.ndarray) -> BlockSizes:
        """Return sizes for about ``cells`` observed cells: one block of all rows if they are few.

        Nearly half of them are in the block, a third are next to it, and the others are far away,
        which include the nearest observations of a column with a long gap.

        :param observed: whether the cells of the task are observed [N, P].
        """
        total, (rows, num_columns) = int(np.count_nonzero(observed)), observed.shape
        if total <= 1.3 * cells:
            return cls(rows, 0, 1)
        per_row = max(total / rows, 0.3)
        near = max(2, round(0.35 * cells / per_row))
        return cls(max(2, round(0.45 * cells / per_row)), near, max(1, cells // (10 * num_columns)))


class Place(NamedTuple):
    """Location of a block: its task, the rows of its leaf, and its sizes.

    With one input, also the task's rows in its order, and where the leaf begins among them.
    """

    task: int
    leaf: np.ndarray  # [rows], indices
    sizes: BlockSizes
    order: np.ndarray | None = None  # [N]
    start: int = 0


@check_shapes("X: [N, D]")
def leaves(X: np.ndarray, rows: int) -> list[np.ndarray]:
    """Split rows into boxes of at most ``rows`` neighbours, by halving the widest side."""

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


@check_shapes("X: [T, N, D]", "Y: [T, N, P]", "lengths: [T]")
def places_of_blocks(
    X: np.ndarray, Y: np.ndarray, lengths: np.ndarray, cells: int, *, of_empty: bool = False
) -> list[Place]:
    """Return the locations of all blocks, with about ``cells`` observed cells each.

    :param Y: values, NaN where missing.
    :param lengths: number of rows of each task.
    :param of_empty: whether tasks without observed cells have a block too.
    """
    found = []
    for t, length in enumerate(lengths):
        observed = ~np.isnan(Y[t, :length])
        if observed.any():
            sizes = BlockSizes.of_task(cells, observed)
            parts = leaves(X[t, :length], sizes.rows)
            # Leaves of one input are its intervals.
            order = np.concatenate(parts) if X.shape[2] == 1 and len(parts) > 1 else None
            starts = np.cumsum([0, *(len(leaf) for leaf in parts)])
            found += [
                Place(t, leaf, sizes, order, int(start))
                for leaf, start in zip(parts, starts, strict=False)
            ]
        elif of_empty:
            found.append(Place(t, np.arange(length), BlockSizes(int(length), 0, 1)))
    return found


def block_at(
    X: np.ndarray, Y: np.ndarray, lengths: np.ndarray, place: Place, mask: np.ndarray | None = None
) -> tuple[Block, np.ndarray]:
    """Return the observed cells in and around a leaf, and its cells to predict.

    Other arguments as in :func:`places_of_blocks`.

    :param mask: cells to predict [T, N, P], of which those in the leaf are; None for none.
    :return: the block, and rows and columns of its targets [K, 2].
    """
    t, leaf, sizes = place[:3]
    inside = np.argwhere(mask[t, leaf]) if mask is not None else np.zeros((0, 2), dtype=int)
    targets = np.stack([leaf[inside[:, 0]], inside[:, 1]], axis=-1)
    X, Y = X[t, : lengths[t]], Y[t, : lengths[t]]
    for rows, is_all in _around(X, place):
        found, is_full = _observed_cells(X[rows], Y[rows], np.searchsorted(rows, leaf), sizes)
        if is_full or is_all:
            break
    found[:, 0] = rows[found[:, 0]]
    used, at = np.unique(np.concatenate([found[:, 0], targets[:, 0]]), return_inverse=True)
    at = at.ravel().astype(np.int32)
    block = Block(
        X[used],
        np.zeros(len(used), np.int32),
        at[: len(found)],
        found[:, 1].astype(np.int32),
        Y[found[:, 0], found[:, 1]],
        at[len(found) :],
        targets[:, 1].astype(np.int32),
    )
    return block, targets


def _around(X: np.ndarray, place: Place) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield rows around a leaf in ascending order, more each time, and whether these are all.

    With one input they are all rows of an interval of it.
    """
    order, margin = place.order, 4 * (place.sizes.near + place.sizes.far)
    while order is not None:
        first, last = place.start - margin, place.start + len(place.leaf) - 1 + margin
        if first <= 0 and last >= len(order) - 1:
            break
        first, last = max(first, 0), min(last, len(order) - 1)
        while first > 0 and X[order[first - 1], 0] == X[order[first], 0]:
            first -= 1
        while last < len(order) - 1 and X[order[last + 1], 0] == X[order[last], 0]:
            last += 1
        yield np.sort(order[first : last + 1]), False
        margin *= 4
    yield np.arange(len(X)), True


def _observed_cells(
    X: np.ndarray, Y: np.ndarray, leaf: np.ndarray, sizes: BlockSizes
) -> tuple[np.ndarray, bool]:
    """Return row and column of the observed cells of a block [C, 2].

    Also whether there were enough on each side, so that rows farther away would change nothing.

    :param X, Y: rows of the task, all of an interval with one input.
    :param leaf: indices of the rows of the leaf.
    """
    observed = ~np.isnan(Y)
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
    is_full = True
    for column in range(Y.shape[1]):
        for side in sides:
            seen = side[observed[side, column]]
            chosen = seen[places[places < len(seen)]]
            is_full = is_full and len(chosen) == len(places)
            cells.append(np.stack([chosen, np.full(len(chosen), column)], axis=-1))
    return np.concatenate(cells), is_full


def joined(blocks: Sequence[Block]) -> list[tuple[Block, list[int]]]:
    """Join small blocks, in their order, where evaluations of each would take longer.

    Rows of different blocks get different task numbers, so they are independent.

    :return: joined blocks, and the indices of the blocks that are in each.
    """
    groups: list[list[int]] = []
    cells = np.inf
    for i, block in enumerate(blocks):
        size = max(len(block.value), len(block.target_row))
        cells += size
        if cells > _MOST_TOGETHER:
            groups.append([])
            cells = size
        groups[-1].append(i)
    return [(_join([blocks[i] for i in group]), group) for group in groups]


def _join(blocks: Sequence[Block]) -> Block:
    """Return one block with the rows and cells of all."""
    if len(blocks) == 1:
        return blocks[0]
    first = np.cumsum([0, *(len(block.X) for block in blocks[:-1])])
    moved = [
        block._replace(
            task=np.full(len(block.X), number, np.int32),
            row=(block.row + start).astype(np.int32),
            target_row=(block.target_row + start).astype(np.int32),
        )
        for number, (block, start) in enumerate(zip(blocks, first, strict=True))
    ]
    return Block(*(np.concatenate(parts) for parts in zip(*moved, strict=True)))
