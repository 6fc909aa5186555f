"""Independent Gaussian processes: one regression for each output."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
from check_shapes import check_shapes

from experiments.baselines import gp_fitting
from gpflow_bae.core.scales import spread
from gpflow_bae.data import MultiOutputTable, Standardiser

__all__ = ["fit_predict"]


@check_shapes("table.Y: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
def fit_predict(
    table: MultiOutputTable,
    seed: int = 0,
    *,
    settings: gp_fitting.FitSettings | None = None,
    columns: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Regression of each standardised output on the inputs; squared exponential kernel with ARD.

    IGP of Requeima et al. (2019) and Ashman et al. (2020). Exact (GPR) up to
    ``settings.max_points`` points a task, sparse (SGPR) above.

    :param seed: Seed of the restarts.
    :param settings: Settings of the fit of an output.
    :param columns: Outputs to predict; others are NaN. All if None.
    :raises ValueError: If an output is never observed or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    Y, rows = scale.transform(table.Y), table.rows
    deviations = spread(table.X[rows])
    first, *others = [
        lambda share=share: gpflow.kernels.SquaredExponential(lengthscales=share * deviations)
        for share in gp_fitting.STARTS
    ]
    mean, variance = np.full(Y.shape, np.nan), np.full(Y.shape, np.nan)
    for p in range(table.num_outputs) if columns is None else columns:
        fitted = gp_fitting.fit(table.X, Y[..., p], first, seed, settings, alternatives=others)
        for t in range(table.num_tasks):
            mean[t, rows[t], p], variance[t, rows[t], p] = fitted.predict(t, table.X[t, rows[t]])
    return scale.inverse_moments(mean, variance)
