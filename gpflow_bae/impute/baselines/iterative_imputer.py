"""scikit-learn's IterativeImputer: each column regressed on the others of its row, in rounds.

It knows no neighbouring rows; what it is given of time are the calendar's sines and cosines. How
many rounds it makes, and whether it sees the inputs beside the calendar, is chosen by its error on
gaps that are hidden from it once more, shaped like the table's own; its uncertainty is the spread
of those errors, a number for each column. scikit-learn has none for what is filled in jointly.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable, Standardiser
from ..gaps import hide_gaps

__all__ = ["ROUNDS", "fit_predict", "impute"]

ROUNDS = (1, 3, 10, 30)
_HIDDEN = 0.1
_TRUST = 20.0  # hidden cells from which a column's own spread weighs as much as that of all


@check_shapes(
    "table.Y: [T, N, P]",
    "features: [T, N, F]",
    "return[0]: [T, N, P]",
    "return[1]: [T, N, P]",
)
def fit_predict(
    table: MultiOutputTable, seed: int = 0, *, features: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of all rows that are no padding.

    :param seed: of the gaps that choose the number of rounds.
    :param features: of the calendar, of each row; none if None.
    :raises ImportError: without scikit-learn.
    :raises ValueError: If an output is never observed or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    rows = table.rows
    Z = scale.transform(table.Y)
    calendar = np.zeros((*rows.shape, 0)) if features is None else features
    inputs = np.concatenate([calendar, table.X], axis=-1)
    shown = dataclasses.replace(table, Y=Z, truth=Z, test_mask=np.zeros(Z.shape, bool))
    hidden = hide_gaps(shown, _HIDDEN, seed)
    mask = hidden.table.test_mask
    best, lowest, errors = (ROUNDS[0], calendar), np.inf, np.zeros(0)
    for beside in (calendar, inputs):
        for rounds in ROUNDS:
            found = impute(hidden.table.Y[rows], beside[rows], rounds)
            missed = (found - Z[rows])[mask[rows]]
            if np.mean(np.square(missed)) < lowest:
                best, lowest, errors = (rounds, beside), float(np.mean(missed**2)), missed
    columns = np.nonzero(mask[rows])[1]
    variance = np.full(Z.shape[-1], lowest)
    for p in np.unique(columns):
        own = np.square(errors[columns == p])
        weight = len(own) / (len(own) + _TRUST)
        variance[p] = weight * own.mean() + (1.0 - weight) * lowest
    mean = np.full(Z.shape, np.nan)
    mean[rows] = impute(Z[rows], best[1][rows], best[0])
    spread = np.where(rows[..., None], np.maximum(variance, 1e-6), np.nan)
    return scale.inverse_moments(mean, spread)


@check_shapes("Z: [rows, P]", "features: [rows, F]", "return: [rows, P]")
def impute(Z: np.ndarray, features: np.ndarray, rounds: int) -> np.ndarray:
    """What the imputer makes of a table; observed cells stay.

    :param Z: standardised outputs; NaN where missing.
    :param features: without holes; they are standardised here.
    """
    try:
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer
    except ImportError as error:
        raise ImportError(
            "IterativeImputer, which the check compares with, is scikit-learn's: "
            "pip install scikit-learn."
        ) from error

    spread = features.std(0)
    features = (features - features.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says after every number of rounds that it might go on
        imputer = IterativeImputer(max_iter=rounds, tol=1e-6, random_state=0)
        # A column without any observation would be dropped, and is its mean here.
        empty = np.isnan(Z).all(0)
        found = np.zeros(Z.shape)
        together = np.concatenate([Z[:, ~empty], features], axis=-1)
        found[:, ~empty] = imputer.fit_transform(together)[:, : np.count_nonzero(~empty)]
    return found
