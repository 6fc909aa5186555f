"""scikit-learn's IterativeImputer: each column is regressed on the others of its row, in rounds.

It ignores neighbouring rows; its only features of time are the calendar's sines and cosines. The
number of rounds, and whether inputs are features too, are chosen by the error on further hidden
gaps, shaped like the table's own. Its variance is the mean squared error there, for each column:
scikit-learn has none for cells that are filled jointly.
"""

from __future__ import annotations

import time
import types
import warnings
from collections.abc import Sequence

import numpy as np
from check_shapes import check_shapes

from ...core.arguments import spread
from ...data import MultiOutputTable, Standardiser
from ..model.gaps import hide_gaps, with_outputs

__all__ = ["ROUNDS", "affordable", "fit_predict", "impute"]

ROUNDS = (1, 3, 10, 30)
_HIDDEN = 0.1  # share of the observed cells that is hidden
_TRUST = 20.0  # hidden cells at which a column's own variance weighs as much as that of all


def affordable(
    table: MultiOutputTable, seconds: float, *, features: np.ndarray | None = None
) -> tuple[int, ...]:
    """Those of :data:`ROUNDS` that :func:`fit_predict` has time for, judged by one regression.

    :param seconds: limit of the time for trying them and for the final imputation.
    :raises ImportError: without scikit-learn.
    """
    BayesianRidge = _sklearn().BayesianRidge
    Y, rows = table.Y[table.rows], table.rows
    parts = [Y, table.X[rows], *([] if features is None else [features[rows]])]
    columns = np.nan_to_num(np.concatenate(parts, axis=-1))
    taken = []
    for _ in range(2):  # the first one also loads libraries
        started = time.perf_counter()
        BayesianRidge().fit(columns[:, 1:], columns[:, 0])
        taken.append(time.perf_counter() - started)
    a_round = min(taken) * np.count_nonzero(np.isnan(Y).any(0))
    wanted = [a_round * (2 * sum(ROUNDS[: i + 1]) + ROUNDS[i]) for i in range(len(ROUNDS))]
    return tuple(rounds for rounds, cost in zip(ROUNDS, wanted, strict=True) if cost <= seconds)


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
    rounds: Sequence[int] = ROUNDS,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of all rows but padding.

    :param seed: seed of the gaps by which the number of rounds is chosen.
    :param features: the calendar's features of each row; none if None.
    :param rounds: numbers of rounds to choose from.
    :raises ImportError: without scikit-learn.
    :raises ValueError: If an output is never observed or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    rows = table.rows
    Z = scale.transform(table.Y)
    calendar = np.zeros((*rows.shape, 0)) if features is None else features
    inputs = np.concatenate([calendar, table.X], axis=-1)
    hidden = hide_gaps(with_outputs(table, Z), _HIDDEN, seed)
    mask = hidden.table.test_mask
    best, lowest, errors = (rounds[0], calendar), np.inf, np.zeros(0)
    for beside in (calendar, inputs):
        for number in rounds:
            found = impute(hidden.table.Y[rows], beside[rows], number)
            missed = (found - Z[rows])[mask[rows]]
            if np.mean(np.square(missed)) < lowest:
                best, lowest, errors = (number, beside), float(np.mean(missed**2)), missed
    columns = np.nonzero(mask[rows])[1]
    variance = np.full(Z.shape[-1], lowest)
    for p in np.unique(columns):
        own = np.square(errors[columns == p])
        weight = len(own) / (len(own) + _TRUST)
        variance[p] = weight * own.mean() + (1.0 - weight) * lowest
    mean = np.full(Z.shape, np.nan)
    mean[rows] = impute(Z[rows], best[1][rows], best[0])
    doubt = np.where(rows[..., None], np.maximum(variance, 1e-6), np.nan)
    return scale.inverse_moments(mean, doubt)


@check_shapes("Z: [rows, P]", "features: [rows, F]", "return: [rows, P]")
def impute(Z: np.ndarray, features: np.ndarray, rounds: int) -> np.ndarray:
    """Fill a table; observed cells stay.

    :param Z: standardised outputs; NaN where missing.
    :param features: complete columns; they are standardised here.
    """
    IterativeImputer = _sklearn().IterativeImputer
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


def _sklearn() -> types.SimpleNamespace:
    """The classes used of scikit-learn, which is an extra."""
    try:
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer
        from sklearn.linear_model import BayesianRidge
    except ImportError as error:
        raise ImportError(
            "IterativeImputer, which the check compares with, is scikit-learn's: "
            "pip install scikit-learn."
        ) from error
    return types.SimpleNamespace(IterativeImputer=IterativeImputer, BayesianRidge=BayesianRidge)
