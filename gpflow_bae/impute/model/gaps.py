"""Gaps shaped like a table's own, laid over cells that are known.

Cells that are missing at random are easier to guess than what real tables miss: hours of a sensor,
days of a station. So whoever asks how good a method is has to hide what looks like the holes.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...data import MultiOutputTable
from .series import series_of

__all__ = ["HiddenGaps", "hide_gaps"]

_LEAST_GAPS = 10
_MOST = 0.3  # share of a column's observed cells that may be hidden
_LONGEST = 0.125  # and that one gap may have
_TRIES = 40  # places that are tried for each gap


class _Gap(NamedTuple):
    """Columns that are missing together, and for how many rows of a series."""

    columns: np.ndarray
    length: int


@dataclasses.dataclass(frozen=True)
class HiddenGaps:
    """A table with more gaps than it had.

    * table: its ``test_mask`` shows what was hidden.
    * gap [T, N, P]: which gap a hidden cell belongs to, from 0; -1 elsewhere.
    * shaped: whether the gaps are shaped like the table's own, or single cells, as it has none.
    """

    table: MultiOutputTable
    gap: np.ndarray
    shaped: bool

    @property
    def num_gaps(self) -> int:
        """Number of gaps."""
        return int(self.gap.max()) + 1

    @property
    def num_cells(self) -> int:
        """Number of hidden cells."""
        return int(np.count_nonzero(self.table.test_mask))

    def describe(self) -> str:
        """What was hidden, in words."""
        cells = f"{self.num_cells} observed cells in {self.num_gaps} gaps"
        if not self.shaped:
            return f"{cells}, single cells at random, because the table has no gaps of its own"
        longest = max(np.bincount(self.gap[self.gap >= 0]))
        return f"{cells} shaped like the table's own, of 1 to {longest} cells"


def hide_gaps(
    table: MultiOutputTable, fraction: float, seed: int, *, least_gaps: int = _LEAST_GAPS
) -> HiddenGaps:
    """Hides a share of the observed cells, in gaps drawn from those that the table has.

    A gap is a run of missing cells of one column along its series (:func:`.series.series_of`), with
    the runs of other columns that cover most of the same rows. Columns without any hole are left
    alone: nothing has to be filled there. A gap longer than an eighth of what its columns have
    observed is cut to that. In a table without holes single cells of all columns are hidden.

    :param table: whose test cells are forgotten.
    :param fraction: share of the observed cells of the columns with holes, in (0, 1); more where
        that would make fewer gaps than ``least_gaps``, up to 0.3.
    :param seed: of the choice of gaps and places.
    :raises ValueError: for a fraction outside of its range, or one that hides no cell.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction is {fraction!r}; it must lie strictly between 0 and 1.")
    rng = np.random.default_rng(seed)
    task, row, real = series_of(table)
    shown = table.observed[task, row] & real[..., None]  # [G, L, P]
    gaps = _gaps(~shown & real[..., None])
    shaped = bool(gaps)
    if not shaped:
        gaps = [_Gap(np.array([p]), 1) for p in range(table.num_outputs)]
    columns = np.unique(np.concatenate([gap.columns for gap in gaps]))
    count = shown.sum((0, 1))
    allowed = np.maximum(max(_MOST, fraction) * count, 1.0)
    allowed[count < 2] = 0.0  # a column keeps at least one cell
    longest = np.maximum(_LONGEST * count, 1.0)
    wanted = fraction * count[columns].sum()
    number = np.full(shown.shape, -1)
    hidden = np.zeros(len(count))
    placed = 0
    for _ in range(least_gaps + int(wanted)):
        if hidden.sum() >= wanted and placed >= least_gaps:
            break
        gap = gaps[rng.integers(len(gaps))]
        # Places are tried for this gap: with another one for each place, long gaps, which few
        # places have room for, would come out rarer than the table has them.
        for _ in range(_TRIES):
            length = min(gap.length, int(longest[gap.columns].min()))
            series = rng.integers(len(task))
            end = int(real[series].sum())
            length = min(length, end)
            first = rng.integers(max(1, end - length + 1))
            window = np.zeros(shown.shape[1:], dtype=bool)
            window[first : first + length, gap.columns] = True
            cells = window & shown[series] & (number[series] < 0)
            # Else long gaps would come out as the crumbs that other gaps leave.
            if 2 * cells.sum() < window.sum() or (cells.sum(0) > allowed - hidden).any():
                continue
            number[series][cells] = placed
            hidden += cells.sum(0)
            placed += 1
            break
    if placed == 0:
        raise ValueError(
            f"fraction {fraction:g} hides no cell: the columns with holes, "
            f"{[table.output_names[p] for p in columns]}, have {count[columns].tolist()} observed "
            "cells. Check the model on a table that has more."
        )
    gap_of = np.full(table.Y.shape, -1)
    gap_of[task[real], row[real]] = number[real]
    mask = gap_of >= 0
    covered = dataclasses.replace(
        table, Y=np.where(mask, np.nan, table.Y), truth=table.Y, test_mask=mask
    )
    return HiddenGaps(covered, gap_of, shaped)


def _gaps(missing: np.ndarray) -> list[_Gap]:
    """Runs of missing cells [G, L, P] along the second axis; those that mostly overlap are one."""
    found = []
    for series in missing:
        edges = np.diff(np.pad(series.astype(np.int8), ((1, 1), (0, 0))), axis=0)
        runs = [
            (p, first, last)
            for p in range(series.shape[1])
            for first, last in zip(
                np.flatnonzero(edges[:, p] == 1), np.flatnonzero(edges[:, p] == -1), strict=True
            )
        ]
        runs.sort(key=lambda run: (run[1], -run[2]))
        free = np.ones(len(runs), dtype=bool)
        first_rows = np.array([run[1] for run in runs])
        for i, (column, first, last) in enumerate(runs):
            if not free[i]:
                continue
            joined = [column]
            for j in range(i + 1, int(np.searchsorted(first_rows, last))):
                other, start, end = runs[j]
                both = min(last, end) - start
                if free[j] and other not in joined and 2 * both >= max(last, end) - first:
                    joined.append(other)
                    free[j] = False
            # A column without any observation here has no shape to learn from.
            if last - first < len(series):
                found.append(_Gap(np.array(joined), int(last - first)))
    return found
