"""scikit-learn's IterativeImputer, with rounds and inputs chosen by the error on hidden gaps.

The gaps are shaped like the table's own. The variance is the mean squared error there, for each
column: scikit-learn has none for cells that are filled jointly.
"""

from __future__ import annotations

import warnings

import numpy as np
from check_shapes import check_shapes
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from gpflow_bae.core.scales import spread
from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute.baselines.chain_fitting import fit_chains
from gpflow_bae.impute.baselines.chains import mean_squares
from gpflow_bae.impute.model.gaps import hide_gaps, with_outputs

__all__ = ["fit_predict", "impute"]

_HIDDEN = 0.1  # share of the observed cells that is hidden


@check_shapes(
    "table.Y: [T, N, P]",
    "features: [T, N, F]",
    "return[0]: [T, N, P]",
    "return[1]: [T, N, P]",
)
def fit_predict(
    table: MultiOutputTable,
    seed: int = 0,
    *,
    features: np.ndarray | None = None,
    trees: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of all rows but padding.

    :param seed: seed of the gaps by which the number of rounds is chosen.
    :param features: the calendar's features of each row; none if None.
    :param trees: whether the regressions are forests.
    :raises ValueError: If an output is never observed or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    shown = with_outputs(table, scale.transform(table.Y))
    hidden = hide_gaps(shown, _HIDDEN, seed)
    mask = hidden.table.test_mask
    missed = {}
    for with_inputs in (False, True):
        for chain in fit_chains(hidden.table, features, with_inputs=with_inputs, trees=trees):
            found = chain.predict(hidden.table, features)[0]
            missed[chain.setup] = (found - shown.Y)[mask]
    best = min(missed, key=lambda setup: float(np.mean(np.square(missed[setup]))))
    chain = fit_chains(
        shown, features, with_inputs=best.with_inputs, trees=trees, rounds=(best.rounds,)
    )[-1]
    mean, _ = chain.predict(shown, features)
    columns = np.nonzero(mask)[2]
    variance = np.where(np.isnan(mean), np.nan, mean_squares(missed[best], columns, chain.width))
    return scale.inverse_moments(mean, variance)


@check_shapes("Z: [rows, P]", "features: [rows, F]", "return: [rows, P]")
def impute(Z: np.ndarray, features: np.ndarray, rounds: int) -> np.ndarray:
    """Fill a table as scikit-learn does; observed cells stay.

    :param Z: standardised outputs; NaN where missing.
    :param features: complete columns; they are standardised here.
    """
    features = (features - features.mean(0)) / spread(features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        imputer = IterativeImputer(max_iter=rounds, tol=1e-6, random_state=0)
        # scikit-learn drops a column without any observation; here it has its mean.
        empty = np.isnan(Z).all(0)
        found = np.zeros(Z.shape)
        together = np.concatenate([Z[:, ~empty], features], axis=-1)
        found[:, ~empty] = imputer.fit_transform(together)[:, : np.count_nonzero(~empty)]
    return found
