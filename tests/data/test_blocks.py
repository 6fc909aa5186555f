"""Blocks of neighbouring rows of a table."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.data.blocks import block_at, places_of_blocks


@pytest.mark.parametrize("cells", [30, 200])
@pytest.mark.parametrize("grid", [None, 7])
def test_rows_far_away_change_no_block(cells: int, grid: int | None) -> None:
    """Blocks of one input look at an interval around them, and are as if they saw all rows.

    Rows are in no order, inputs are repeated (``grid`` values of them, or hardly ever), one column
    has a long gap, another is observed in a few rows alone, and tasks are of unequal lengths.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (2, 900, 1))
    X = X if grid is None else np.floor(grid * X)
    X[:, 100:105] = X[:, :5]
    Y = rng.normal(size=(2, 900, 4))
    Y[rng.uniform(size=Y.shape) < 0.4] = np.nan
    Y[..., 1][(X[..., 0] > 0.3 * X.max()) & (X[..., 0] < 0.8 * X.max())] = np.nan
    Y[:, 20:, 2] = np.nan
    lengths, mask = np.array([900, 700]), np.isnan(Y)
    seen = 0
    for place in places_of_blocks(X, Y, lengths, cells):
        assert place.order is not None
        block, targets = block_at(X, Y, lengths, place, mask)
        of_all, targets_of_all = block_at(X, Y, lengths, place._replace(order=None), mask)
        np.testing.assert_array_equal(targets, targets_of_all)
        for mine, all_rows in zip(block, of_all, strict=True):
            np.testing.assert_array_equal(mine, all_rows)
        seen += len(block.value) > 0
    assert seen > 10
