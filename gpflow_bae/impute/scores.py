"""How good predictions of the test cells are: per output, then averaged over outputs."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes

from .. import metrics
from ..data import MultiOutputTable

__all__ = ["score", "score_outputs"]


@check_shapes("table.Y: [T, N, P]", "mean: [T, N, P]", "variance: [T, N, P]")
def score(table: MultiOutputTable, mean: np.ndarray, variance: np.ndarray) -> dict[str, float]:
    """``smse``, ``mae``, ``rmse``, ``nll`` and ``coverage_90``, averaged over the tested outputs.

    Ashman et al. (2020) and Tran et al. (2023) average the same way.

    :param mean: Predictive means, in the units of the outputs.
    :param variance: Predictive variances, observation noise included.
    :raises ValueError: If the table has no test cell, or a prediction there is not valid.
    """
    per_output = list(score_outputs(table, mean, variance).values())
    return {name: float(np.mean([s[name] for s in per_output])) for name in per_output[0]}


@check_shapes("table.Y: [T, N, P]", "mean: [T, N, P]", "variance: [T, N, P]")
def score_outputs(
    table: MultiOutputTable, mean: np.ndarray, variance: np.ndarray
) -> dict[str, dict[str, float]]:
    """:func:`score` of each output that has test cells, by its name."""
    truth = table.test_truth
    tested = [p for p in range(table.num_outputs) if table.test_mask[..., p].any()]
    if not tested:
        raise ValueError(
            "table has no test cell, so there is nothing to score. Hide some with hold_out."
        )
    scores = {}
    for p in tested:
        column = (truth[..., p, None], mean[..., p, None])
        spread = variance[..., p, None]
        scores[table.output_names[p]] = {
            "smse": metrics.smse(*column),
            "mae": metrics.mae(*column),
            "rmse": metrics.rmse(*column),
            "nll": metrics.nll(*column, spread),
            "coverage_90": metrics.coverage(*column, spread, 0.9),
        }
    return scores
