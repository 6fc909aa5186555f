"""Fit chained regressions by scikit-learn's IterativeImputer, which is an extra."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import BayesianRidge

from ...core.scales import spread
from ...data import MultiOutputTable
from .chains import Chain, ChainSetup, Forest, Line, Regression, columns_beside

__all__ = ["ROUNDS", "fit_chains"]

ROUNDS = (1, 3, 10, 30)
_ROUNDS_OF_TREES = (1, 3)
_TREES = 50
_LEAST_LEAF = 2  # rows in a leaf
_MOST_ROWS = 5000  # that a forest is grown from
_MOST_COLUMNS = 20  # that are tried for a branch
_LONG = 0.1  # seconds of a regression above which its trees are grown by all cores


def fit_chains(
    table: MultiOutputTable,
    features: np.ndarray | None,
    *,
    with_inputs: bool,
    trees: bool = False,
    rounds: Sequence[int] | None = None,
    budget: float = np.inf,
    complete: bool = False,
) -> list[Chain]:
    """Fit the regressions of all rounds, and return those after each number of rounds.

    :param table: of nearly standardised outputs.
    :param features: the calendar's features [T, N, F] of each row; none if None.
    :param rounds: numbers of rounds, increasing; those that are usual if None.
    :param budget: work that there is, in seconds of a usual core; rounds beyond it are left out. It
        is reckoned from the table's size, so that a busy machine fits the same.
    :param complete: whether columns that have no missing cell here are regressed too, for other
        tables: once, on the filled table.
    """
    rounds = rounds or (_ROUNDS_OF_TREES if trees else ROUNDS)
    beside = columns_beside(table, features, with_inputs)
    centre, unit = beside.mean(0), spread(beside)
    Z = table.Y[table.rows]
    hole = np.isnan(Z).astype(np.float32)
    together = hole.T @ hole > 0.0
    columns = np.concatenate([Z, (beside - centre) / unit], axis=-1)
    known = np.flatnonzero(~np.isnan(columns).all(0))  # scikit-learn drops the others
    columns = columns[:, known]
    missing = np.isnan(columns).sum(0)
    holes = np.flatnonzero(missing)
    predicted = float(missing[holes].mean()) if len(holes) else 0.0
    seconds = _seconds(len(columns), columns.shape[1], trees, predicted)
    model: Any = BayesianRidge()
    if trees:
        model = ExtraTreesRegressor(
            _TREES,
            min_samples_leaf=_LEAST_LEAF,
            max_features=min(1.0, _MOST_COLUMNS / columns.shape[1]),
            random_state=0,
            n_jobs=-1 if seconds > _LONG else None,
        )
    most = budget / (max(len(holes), 1) * seconds)
    rounds = sorted({min(number, int(min(most, rounds[-1]))) for number in rounds} - {0})
    if not rounds:
        return []
    imputer = IterativeImputer(
        _OfSomeRows(model), max_iter=rounds[-1], tol=1e-6, random_state=0, skip_complete=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        filled = imputer.fit_transform(columns)
    sequence = imputer.imputation_sequence_
    done = len(sequence) // len(holes) if len(holes) else 0
    if len(holes) and not done:  # a single column has no others
        return []
    others: list[tuple[int, Regression]] = []
    if complete:
        for i in np.flatnonzero(known < Z.shape[1]):
            if i not in holes and columns.shape[1] > 1:
                other = _OfSomeRows(model).fit(np.delete(filled, i, 1), filled[:, i])
                others.append((int(known[i]), _read(other.estimator_)))
    steps = [(int(known[step.feat_idx]), _read(step.estimator.estimator_)) for step in sequence]
    found = []
    for number in rounds:
        last = min(number, done)  # it stops when nothing changes
        models = [*steps[: last * len(holes)], *others]
        own, rest = np.split(np.arange(len(models)), [last * len(holes)])
        own = own.reshape(last, len(holes))
        order: list[int] = []
        for r in range(number if others else last):
            order += [*own[min(r, last - 1)], *rest] if last else [*rest]
        setup = ChainSetup(number, with_inputs, trees)
        found.append(Chain(setup, models, order, known, Z.shape[1], centre, unit, together))
    return found


def _seconds(rows: int, columns: int, trees: bool, predicted: float) -> float:
    """About how long a regression takes on a usual core, for given numbers of rows and columns.

    :param predicted: number of rows that it predicts.
    """
    if trees:
        rows = min(rows, _MOST_ROWS)
        grown = 5e-7 * rows * float(np.log2(rows + 1)) * min(columns, _MOST_COLUMNS)
        return 0.01 + grown + 3e-5 * predicted
    return 1e-3 + 2e-8 * rows * columns + 7e-10 * rows * columns * min(rows, columns)


class _OfSomeRows(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regression; a forest is grown from some of many rows."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: np.ndarray, y: np.ndarray) -> _OfSomeRows:
        if isinstance(self.model, ExtraTreesRegressor) and len(X) > _MOST_ROWS:
            rows = np.random.default_rng(0).choice(len(X), _MOST_ROWS, replace=False)
            X, y = X[rows], y[rows]
        self.estimator_ = clone(self.model).fit(X, y)
        # Threads would add up predictions in an order of their own, and fits differ in last digits.
        if isinstance(self.model, ExtraTreesRegressor):
            self.estimator_.set_params(n_jobs=None)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.estimator_.predict(X))


def _read(model: Any) -> Regression:
    """The arrays of a fitted regression of scikit-learn."""
    if isinstance(model, BayesianRidge):
        return Line(np.array(model.coef_), np.array(model.intercept_))
    parts = [tree.tree_ for tree in model.estimators_]
    roots = np.cumsum([0, *(part.node_count for part in parts)])[:-1]

    def joined(name: str, moved: bool = False) -> np.ndarray:
        arrays = [np.ravel(getattr(part, name)) for part in parts]
        if moved:
            arrays = [np.where(a >= 0, a + r, -1) for a, r in zip(arrays, roots, strict=True)]
        return np.concatenate(arrays)

    return Forest(
        roots,
        joined("children_left", moved=True).astype(np.int32),
        joined("children_right", moved=True).astype(np.int32),
        np.maximum(joined("feature"), 0).astype(np.int32),
        joined("threshold"),
        joined("value").astype(np.float32),
    )
