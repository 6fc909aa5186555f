"""Small tables with hidden cells, and short fits, for the tests of the baselines."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.baselines import gp_fitting
from gpflow_bae.data import MultiOutputTable

ONE_RUN = gp_fitting.FitSettings(num_restarts=1)
# For what holds at any hyperparameters.
SHORT_RUN = gp_fitting.FitSettings(num_restarts=1, max_iterations=5)
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
