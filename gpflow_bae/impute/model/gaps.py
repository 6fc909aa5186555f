"""Hide observed cells of a table in gaps that are shaped like its own.

Cells that are missing at random are easier to predict than the gaps of real tables, such as hours
of a sensor or days of a station. An honest test of a method hides gaps of the same shapes.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ...data import MultiOutputTable
from ..baselines.linear_interpolation import series_of
from ..reading.indicators import groups

__all__ = ["MOST_TESTED", "HiddenGaps", "hide_gaps", "hide_gaps_if_any", "with_outputs"]

MOST_TESTED = 40_000
"""Number of hidden cells that is enough to compare and calibrate methods."""

_LEAST_GAPS = 10
_MOST = 0.3  # share of a column's observed cells that may be hidden
_LONGEST = 0.125  # share of them that one gap may hide
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)  # multiples of it, modulo 1, are spread evenly
_TRIES = 40  # places that are tried for each gap


class _Gap(NamedTuple):
    """Columns that are missing together, and the number of rows of the series."""

    columns: np.ndarray
    length: int


@dataclasses.dataclass(frozen=True)
class HiddenGaps:
    """A table with further gaps.

    * table: the hidden cells are its test cells.
    * gap [T, N, P]: number of the gap that a hidden cell belongs to, from 0; -1 elsewhere.
    * shaped: whether the gaps are shaped like the table's own; if it has none, they are single
      cells.
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

    def of_outputs(self, Z: np.ndarray) -> HiddenGaps:
        """The same gaps in a table of other outputs [T, N, P]."""
        hidden = np.where(self.table.test_mask, np.nan, Z)
        return dataclasses.replace(self, table=dataclasses.replace(self.table, Y=hidden, truth=Z))

    def describe(self) -> str:
        """A description of the hidden cells, in words."""
        cells = f"{self.num_cells} observed cells in {self.num_gaps} gaps"
        if not self.shaped:
            return f"{cells}, single cells at random, because the table has no gaps of its own"
        longest = max(np.bincount(self.gap[self.gap >= 0]))
        return f"{cells} shaped like the table's own, of 1 to {longest} cells"


def hide_gaps(
    table: MultiOutputTable,
    fraction: float,
    seed: int,
    *,
    least_gaps: int = _LEAST_GAPS,
    evenly: bool = False,
    most_cells: int | None = None,
) -> HiddenGaps:
    """Hide a share of the observed cells, in gaps whose shapes are drawn from the table's own.

    A gap is a run of missing cells of one column along its series (rows of a task that agree in all
    inputs but the first), with the runs of other columns that cover most of the same rows. Complete
    columns stay complete: nothing has to be filled there. A gap longer than an eighth of the
    observed cells of its columns is cut to that. In a table without missing cells single cells of
    all columns are hidden. Columns of one category are hidden together. The last cell that differs
    from a column's most frequent value stays, such as the only one of a category.

    :param table: the table; its test cells are ignored.
    :param fraction: share of the observed cells of the columns with holes, in (0, 1); more where
        that would make fewer gaps than ``least_gaps``, up to 0.3.
    :param seed: of the choice of gaps and places.
    :param evenly: whether long and short gaps alternate, so that whatever is hidden has the table's
        share of both: the error grows with the length, and few long gaps have many of the cells.
    :param most_cells: number of cells after which no further gap is hidden; None for no limit.
    :raises ValueError: for a fraction outside of its range, or one that hides no cell.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction is {fraction!r}; it must lie strictly between 0 and 1.")
    rng = np.random.default_rng(seed)
    task, row, real = series_of(table)
    shown = table.observed[task, row] & real[..., None]  # [G, L, P]
    # By their names, so that the choice does not depend on the order of the columns.
    by_name = np.argsort([str(name) for name in table.output_names], kind="stable")
    missing = ~shown & real[..., None]
    gaps = [_Gap(by_name[columns], length) for columns, length in _gaps(missing[..., by_name])]
    shaped = bool(gaps)
    rank = np.argsort(by_name)
    together = sorted(groups(table.output_names), key=lambda columns: rank[columns[0]])
    if not shaped:
        gaps = [_Gap(np.array(columns), 1) for columns in together]
    elif len(together) < table.num_outputs:  # one column of a category would tell the others
        gaps = [
            _Gap(np.concatenate([c for c in together if np.isin(c, gap.columns).any()]), gap.length)
            for gap in gaps
        ]
    columns = np.unique(np.concatenate([gap.columns for gap in gaps]))
    count = shown.sum((0, 1))
    allowed = np.maximum(max(_MOST, fraction) * count, 1.0)
    allowed[count < 2] = 0.0  # a column keeps at least one cell
    longest = np.maximum(_LONGEST * count, 1.0)
    unusual = _unusual(np.where(shown, table.Y[task, row], np.nan))
    left = unusual.sum((0, 1))
    wanted = fraction * count[columns].sum()
    if most_cells is not None:
        wanted = min(wanted, most_cells)
    number = np.full(shown.shape, -1)
    hidden = np.zeros(len(count))
    placed = 0
    begin = 0.0
    if evenly:
        begin = rng.random()
        gaps = [gaps[i] for i in rng.permutation(len(gaps))]
        gaps.sort(key=lambda gap: gap.length * len(gap.columns))
    for k in range(least_gaps + int(wanted)):
        if hidden.sum() >= wanted and placed >= least_gaps:
            break
        share = (begin + _GOLDEN * k) % 1.0 * len(gaps) if evenly else rng.integers(len(gaps))
        gap = gaps[int(share)]
        # All tries are for the same gap: long gaps, for which few places have room, would otherwise
        # be rarer than in the table.
        for _ in range(_TRIES):
            length = min(gap.length, int(longest[gap.columns].min()))
            series = rng.integers(len(task))
            end = int(real[series].sum())
            length = min(length, end)
            first = rng.integers(max(1, end - length + 1))
            window = np.ix_(np.array([series]), np.arange(first, first + length), gap.columns)
            numbers = number[window]
            cells = shown[window] & (numbers < 0)
            more = cells.sum((0, 1))
            # Most of the window must be free, or long gaps would be cut to pieces by earlier ones.
            if 2 * cells.sum() < cells.size or (more > (allowed - hidden)[gap.columns]).any():
                continue
            gone = (cells & unusual[window]).sum((0, 1))
            if ((gone > 0) & (gone >= left[gap.columns])).any():
                continue
            left[gap.columns] -= gone
            number[window] = np.where(cells, placed, numbers)
            hidden[gap.columns] += more
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


def hide_gaps_if_any(
    table: MultiOutputTable,
    fraction: float,
    seed: int,
    *,
    least_gaps: int = 1,
    most_cells: int | None = None,
) -> HiddenGaps | None:
    """Hide gaps as :func:`hide_gaps` does; None where no cell can be hidden."""
    try:
        return hide_gaps(table, fraction, seed, least_gaps=least_gaps, most_cells=most_cells)
    except ValueError:
        return None


def with_outputs(table: MultiOutputTable, Y: np.ndarray) -> MultiOutputTable:
    """The table with other values [T, N, P] of its outputs, and without test cells."""
    return dataclasses.replace(table, Y=Y, truth=Y, test_mask=np.zeros(Y.shape, bool))


def _unusual(values: np.ndarray) -> np.ndarray:
    """Which values [G, L, P] differ from their column's most frequent one; NaN do not."""
    found = ~np.isnan(values)
    for p in range(values.shape[-1]):
        column = values[..., p]
        distinct, counts = np.unique(column[found[..., p]], return_counts=True)
        if len(distinct):
            found[..., p] &= column != distinct[np.argmax(counts)]
    return found


def _gaps(missing: np.ndarray) -> list[_Gap]:
    """Runs of missing cells [G, L, P] along the second axis; overlapping runs are joined."""
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
            # A series without any observation of a column shows no shape of a gap.
            if last - first < len(series):
                found.append(_Gap(np.array(joined), int(last - first)))
    return found
