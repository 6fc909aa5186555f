"""Linear interpolation of the nearest observations, see :mod:`gpflow_bae.impute.baselines`."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes

from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute.baselines.linear_interpolation import Lines
from gpflow_bae.impute.model.gaps import with_outputs

__all__ = ["fit_predict"]


@check_shapes("table.Y: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
def fit_predict(table: MultiOutputTable, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Interpolation along the first input.

    :param seed: Has no effect; every baseline takes one.
    :raises ValueError: If an output is never observed, or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    seen = with_outputs(table, scale.transform(table.Y))
    return scale.inverse_moments(*Lines.fit(seen).predict(seen))
