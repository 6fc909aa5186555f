"""Gaps that are hidden look like those of the table, and touch nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute.model.gaps import hide_gaps


def holed(runs: dict[int, list[tuple[int, int]]], N: int = 400, P: int = 4) -> MultiOutputTable:
    """One series of noise with runs of missing rows, by column."""
    Y = np.random.default_rng(0).standard_normal((1, N, P))
    for column, gaps in runs.items():
        for first, last in gaps:
            Y[0, first:last, column] = np.nan
    return MultiOutputTable(np.arange(float(N))[None, :, None], Y)


def test_gaps_have_the_lengths_and_columns_of_the_tables_own() -> None:
    """Runs of 8 rows of columns 0 and 1 together, and single cells of column 2."""
    both = [(20, 28), (100, 108), (300, 308)]
    table = holed({0: both, 1: both, 2: [(5, 6), (77, 78)]})
    found = hide_gaps(table, 0.1, 0)
    assert found.shaped and found.num_gaps >= 10
    assert not found.table.test_mask[..., 3].any()  # nothing has to be filled there
    assert not (found.table.test_mask & ~table.observed).any()
    np.testing.assert_array_equal(found.table.test_mask, found.gap >= 0)
    whole = {"joint": 0, "single": 0}
    for number in range(found.num_gaps):
        own = found.gap[0] == number
        if own[:, 2].any():
            assert own.sum() == 1
            whole["single"] += 1
        else:
            rows = np.flatnonzero(own.any(-1))
            assert set(np.flatnonzero(own.any(0))) <= {0, 1} and np.ptp(rows) < 8
            whole["joint"] += int(own[:, :2].sum() == 16)
    # Few of ten gaps lie across an older one and lose cells to it.
    assert whole["joint"] >= 2 and whole["single"] >= 2
    share = found.num_cells / np.count_nonzero(table.observed[..., :3])
    assert 0.1 <= share <= 0.3
    again, other = hide_gaps(table, 0.1, 0), hide_gaps(table, 0.1, 1)
    np.testing.assert_array_equal(again.gap, found.gap)
    assert (other.gap != found.gap).any()
    np.testing.assert_array_equal(found.table.truth, table.Y)


def test_without_holes_single_cells_of_all_columns_are_hidden() -> None:
    found = hide_gaps(holed({}), 0.1, 0)
    assert not found.shaped and "no gaps of its own" in found.describe()
    assert np.bincount(found.gap[found.gap >= 0]).max() == 1
    np.testing.assert_allclose(found.table.test_mask.mean(), 0.1, atol=1e-3)
    assert (found.table.test_mask.any((0, 1))).all()


def test_a_gap_longer_than_what_is_left_is_cut() -> None:
    """A column that ends early: 150 rows are missing of 400, and 250 / 8 = 31 may be in a gap."""
    found = hide_gaps(holed({1: [(250, 400)]}), 0.1, 0)
    lengths = np.bincount(found.gap[found.gap >= 0])
    assert lengths.max() <= 31 and found.num_cells <= 0.3 * 250
    assert found.table.test_mask[..., 1].sum() == found.num_cells


def test_series_of_other_tasks_and_padding_are_left_alone() -> None:
    Y = np.random.default_rng(0).standard_normal((2, 30, 2))
    Y[1, 20:] = np.nan
    Y[0, 3:6, 0] = np.nan
    table = MultiOutputTable(
        np.tile(np.arange(30.0)[:, None], (2, 1, 1)), Y, lengths=np.array([30, 20])
    )
    found = hide_gaps(table, 0.2, 3)
    assert not found.table.test_mask[1, 20:].any() and not found.table.test_mask[..., 1].any()


def test_what_hides_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fraction is 1\.0; it must lie strictly between 0 and 1"):
        hide_gaps(holed({}), 1.0, 0)
    table = MultiOutputTable(np.arange(2.0)[None, :, None], np.array([[[1.0], [np.nan]]]))
    with pytest.raises(ValueError, match="hides no cell: the columns with holes"):
        hide_gaps(table, 0.1, 0)


@pytest.mark.parametrize("runs", [{}, {0: [(20, 28), (60, 61)], 1: [(20, 28)], 3: [(20, 28)]}])
def test_gaps_do_not_depend_on_the_order_of_columns_and_rows(runs) -> None:
    """Rows come in any order, because their inputs say which follows which."""
    table, rng = holed(runs), np.random.default_rng(0)
    found = hide_gaps(table, 0.1, 0).gap
    for _ in range(3):
        rows, columns = rng.permutation(400), rng.permutation(4)
        names = tuple(table.output_names[p] for p in columns)
        moved = MultiOutputTable(
            table.X[:, rows], table.Y[:, rows][..., columns], output_names=names
        )
        np.testing.assert_array_equal(hide_gaps(moved, 0.1, 0).gap, found[:, rows][..., columns])


def test_evenly_drawn_gaps_have_the_tables_share_of_long_ones() -> None:
    """Of 40 gaps in a table 10 are of eight cells, and so are a quarter of those that are hidden.

    Random draws differ from seed to seed; alternating ones by one gap, or two where one of them
    had no room.
    """
    truth = np.random.default_rng(0).standard_normal((1, 800, 1))
    Y = truth.copy()
    for i, first in enumerate(range(10, 770, 19)):
        Y[0, first : first + (8 if i % 4 == 0 else 1)] = np.nan
    table = MultiOutputTable(np.arange(800.0)[None, :, None], Y)

    def long_ones(evenly: bool) -> list[float]:
        found = []
        for seed in range(20):
            gaps = hide_gaps(table, 0.1, seed, evenly=evenly)
            cells = np.bincount(gaps.gap[gaps.gap >= 0])
            found.append(np.count_nonzero(cells > 1) - 0.25 * len(cells))
        return found

    assert np.abs(long_ones(True)).max() <= 2.0 < np.abs(long_ones(False)).max()


def test_the_only_cell_of_a_value_stays() -> None:
    """A column of zeros and ones with one 1 would be constant without it."""
    Y = np.random.default_rng(0).standard_normal((1, 40, 2))
    Y[0, :, 1] = np.arange(40) == 7
    table = MultiOutputTable(np.zeros((1, 40, 0)), Y)
    for seed in range(30):
        left = hide_gaps(table, 0.3, seed).table.Y
        assert left[0, 7, 1] == 1.0 and np.nanmin(left[..., 1]) == 0.0


def test_no_more_gaps_than_a_test_needs() -> None:
    """Of a large table a given number of cells is hidden, and not many more than the last gap."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(1, 900, 3))
    for start in range(0, 900, 30):
        Y[0, start : start + 5, start // 30 % 3] = np.nan
    table = MultiOutputTable(np.arange(900.0)[None, :, None], Y)
    assert hide_gaps(table, 0.2, 0).num_cells > 300
    few = hide_gaps(table, 0.2, 0, most_cells=100)
    assert 100 <= few.num_cells < 105 and few.num_gaps >= 20
