"""Small tables with hidden cells, and short fits, for the tests of the baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.data import MultiOutputTable

NAN = np.nan


def make_table(truth: np.ndarray, hidden: np.ndarray, X: np.ndarray | None = None, **more: Any):
    """Outputs [T, N, P] at the inputs 0, 1, ..., with hidden test cells."""
    if X is None:
        X = np.tile(np.arange(float(truth.shape[1]))[:, None], (len(truth), 1, 1))
    return MultiOutputTable(X, np.where(hidden, NAN, truth), truth, hidden, **more)


def waves(num_tasks: int = 1, num_rows: int = 30, num_outputs: int = 1) -> MultiOutputTable:
    """Noisy sines, every third cell of the last output hidden."""
    rng = np.random.default_rng(0)
    phase = rng.random((num_tasks, 1, num_outputs)) * 6.0
    rows = np.arange(float(num_rows))[:, None]
    truth = 5.0 + 3.0 * np.sin(rows / 4.0 + phase)
    truth += 0.3 * rng.standard_normal(truth.shape)
    hidden = np.zeros(truth.shape, bool)
    hidden[:, 1::3, -1] = True
    return make_table(truth, hidden)


def mixed_sines(num_tasks: int = 1, N: int = 24) -> MultiOutputTable:
    """Three outputs that mix one sine; the last third of the last is the test."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, N)
    curve = np.sin(2 * np.pi * x + rng.uniform(0, 6, (num_tasks, 1)))
    truth = curve[..., None] * [1.0, -2.0, 3.0] + 0.1 * rng.standard_normal((num_tasks, N, 3))
    mask = np.zeros(truth.shape, bool)
    mask[:, 2 * N // 3 :, 2] = True
    X = np.broadcast_to(x[:, None], (num_tasks, N, 1))
    return MultiOutputTable(X, np.where(mask, np.nan, truth), truth, mask)


def every_row_but_padding_is_predicted(baseline: Any, **options: Any) -> None:
    """Finite moments for every row of a task, NaN for its padding; unknown outputs are named."""
    table = waves(2, 8, 2)
    Y, truth, mask = np.array(table.Y), np.array(table.truth), np.array(table.test_mask)
    Y[1, 6:], truth[1, 6:], mask[1, 6:] = NAN, NAN, False
    Y[0, 3] = NAN  # a row without any output
    padded = MultiOutputTable(table.X, Y, truth, mask & np.isnan(Y), lengths=np.array([8, 6]))
    mean, variance = baseline.fit_predict(padded, 0, **options)
    for moment in (mean, variance):
        np.testing.assert_array_equal(
            np.isfinite(moment), np.broadcast_to(padded.rows[..., None], Y.shape)
        )
    assert (variance[padded.rows] > 0.0).all()
    half_empty = make_table(np.ones((1, 4, 2)) * [[1.0, NAN]], np.zeros((1, 4, 2), bool))
    with pytest.raises(ValueError, match="Output 'y1' is never observed"):
        baseline.fit_predict(half_empty, 0, **options)


#: What the columns of :func:`stations` are.
COLUMNS = {"outputs": ["a", "b"], "time": "day", "inputs": [], "task": "station"}


def stations(num_days: int = 40, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two outputs that mix one smooth curve of time, for two stations; and the same with holes."""
    rng = np.random.default_rng(seed)
    parts = []
    for station in ("north", "south"):
        t = np.arange(num_days)
        curve = np.sin(t / 4.0 + rng.uniform(0, 6))
        parts.append(
            pd.DataFrame(
                {
                    "station": station,
                    "day": pd.date_range("2024-01-01", periods=num_days).strftime("%Y-%m-%d"),
                    "remark": "0010",
                    "a": 10.0 + 2.0 * curve + 0.1 * rng.standard_normal(num_days),
                    "b": -50.0 * curve + 2.0 * rng.standard_normal(num_days),
                }
            )
        )
    whole = pd.concat(parts, ignore_index=True).round(4)
    holes = whole.copy()
    for column in ("a", "b"):
        holes.loc[rng.choice(len(whole), len(whole) // 5, replace=False), column] = np.nan
    return whole, holes
