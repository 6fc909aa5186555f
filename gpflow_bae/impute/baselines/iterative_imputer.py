"""scikit-learn's IterativeImputer: each column is regressed on the others of its row, in rounds.

It ignores neighbouring rows; its only features of time are the calendar's sines and cosines. The
regressions are linear or forests of extremely randomised trees. The number of rounds, and whether
inputs are features too, are chosen by the error on hidden gaps, shaped like the table's own. The
variance is the mean squared error there, for each column: scikit-learn has none for cells that are
filled jointly.
"""

from __future__ import annotations

import contextlib
import functools
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from check_shapes import check_shapes

from ...core.scales import spread
from ...data import MultiOutputTable, Standardiser
from ..model.gaps import hide_gaps, with_outputs

__all__ = ["ROUNDS", "Chain", "ChainSetup", "fit_chains", "fit_predict", "impute", "mean_squares"]

ROUNDS = (1, 3, 10, 30)
_ROUNDS_OF_TREES = (1, 3)
_TREES = 50
_LEAST_LEAF = 2  # rows in a leaf
_MOST_ROWS = 5000  # that a forest is grown from
_MOST_COLUMNS = 20  # that are tried for a branch
_CHUNK = 4096  # rows that a forest predicts at once
_HIDDEN = 0.1  # share of the observed cells that is hidden
_TRUST = 20.0  # hidden cells at which a column's own variance weighs as much as that of all


class ChainSetup(NamedTuple):
    """Number of rounds; whether inputs are features too; whether the regressions are forests."""

    rounds: int
    with_inputs: bool
    trees: bool = False


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
    :raises ImportError: without scikit-learn.
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


def mean_squares(missed: np.ndarray, columns: np.ndarray, number: int) -> np.ndarray:
    """Mean squared error of each column [P], shrunk towards that of all."""
    together = float(np.mean(np.square(missed)))
    found = np.full(number, together)
    for p in np.unique(columns):
        own = np.square(missed[columns == p])
        weight = len(own) / (len(own) + _TRUST)
        found[p] = weight * own.mean() + (1.0 - weight) * together
    return np.maximum(found, 1e-6)


def fit_chains(
    table: MultiOutputTable,
    features: np.ndarray | None,
    *,
    with_inputs: bool,
    trees: bool = False,
    rounds: Sequence[int] | None = None,
    seconds: float = np.inf,
    complete: bool = False,
) -> list[Chain]:
    """Fit the regressions of all rounds, and return those after each number of rounds.

    :param table: of nearly standardised outputs.
    :param features: the calendar's features [T, N, F] of each row; none if None.
    :param rounds: numbers of rounds, increasing; those that are usual if None.
    :param seconds: no regression starts after that time; numbers of rounds that are not reached are
        left out, but for the last complete round.
    :param complete: whether columns that have no missing cell here are regressed too, at the end,
        for other tables.
    :raises ImportError: without scikit-learn.
    """
    library = _sklearn()
    rounds = rounds or (_ROUNDS_OF_TREES if trees else ROUNDS)
    beside = _beside(table, features, with_inputs)
    centre, unit = beside.mean(0), spread(beside)
    Z = table.Y[table.rows]
    columns = np.concatenate([Z, (beside - centre) / unit], axis=-1)
    known = np.flatnonzero(~np.isnan(columns).all(0))  # scikit-learn drops the others
    columns = columns[:, known]
    kind = library.ExtraTreesRegressor if trees else library.BayesianRidge
    options = {
        "n_estimators": _TREES,
        "min_samples_leaf": _LEAST_LEAF,
        "max_features": min(1.0, _MOST_COLUMNS / columns.shape[1]),
        "random_state": 0,
    }
    timed = library.Timed(kind, options if trees else {}, time.monotonic() + seconds)
    imputer = library.IterativeImputer(
        timed, max_iter=rounds[-1], tol=1e-6, random_state=0, skip_complete=True
    )
    filled, late = columns, True
    with warnings.catch_warnings(), contextlib.suppress(_OutOfTimeError):
        warnings.simplefilter("ignore")  # that it has not converged
        filled, late = imputer.fit_transform(columns), False
    sequence = getattr(imputer, "imputation_sequence_", [])
    holes = np.flatnonzero(np.isnan(columns).any(0))
    done = len(sequence) // len(holes) if len(holes) else 0
    others: dict[int, _Regression] = {}
    if complete and not late:
        for i in np.flatnonzero(known < Z.shape[1]):
            if i not in holes and columns.shape[1] > 1:
                model = kind(**options if trees else {})
                model.fit(*_few(np.delete(filled, i, 1), filled[:, i], trees))
                others[int(known[i])] = _read(model, trees)
    found = []
    for number in rounds if done and not late else sorted({min(r, done) for r in rounds} - {0}):
        last = min(number, done)  # it stops when nothing changes
        models = {
            int(known[step.feat_idx]): _read(step.estimator.estimator_, trees)
            for step in sequence[len(holes) * (last - 1) : len(holes) * last]
        }
        setup = ChainSetup(number, with_inputs, trees)
        found.append(Chain(setup, models | others, known, Z.shape[1], centre, unit))
    return found


class _Line(NamedTuple):
    """A linear regression."""

    weights: np.ndarray
    constant: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X @ self.weights + self.constant


class _Forest(NamedTuple):
    """Trees of a forest, their nodes one after the other; a leaf has no left branch (-1).

    * roots [K]: the first node of each tree.
    * left, right, column, threshold, value [nodes].
    """

    roots: np.ndarray
    left: np.ndarray
    right: np.ndarray
    column: np.ndarray
    threshold: np.ndarray
    value: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        chunks = [X[first : first + _CHUNK] for first in range(0, len(X), _CHUNK)]
        return np.concatenate([np.zeros(0), *map(self._predict, chunks)])

    def _predict(self, X: np.ndarray) -> np.ndarray:
        X = X.astype(np.float32)  # as scikit-learn does
        rows = np.arange(len(X))[:, None]
        node = np.tile(self.roots, (len(X), 1))
        while (inner := self.left[node] >= 0).any():
            goes_left = X[rows, self.column[node]] <= self.threshold[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
        return self.value[node].mean(1)


_Regression = _Line | _Forest


def _read(model: Any, trees: bool) -> _Regression:
    """The arrays of a fitted regression of scikit-learn."""
    if not trees:
        return _Line(np.array(model.coef_), np.array(model.intercept_))
    parts = [tree.tree_ for tree in model.estimators_]
    roots = np.cumsum([0, *(part.node_count for part in parts)])[:-1]

    def joined(name: str, moved: bool = False) -> np.ndarray:
        arrays = [np.ravel(getattr(part, name)) for part in parts]
        if moved:
            arrays = [np.where(a >= 0, a + r, -1) for a, r in zip(arrays, roots, strict=True)]
        return np.concatenate(arrays)

    return _Forest(
        roots,
        joined("children_left", moved=True).astype(np.int32),
        joined("children_right", moved=True).astype(np.int32),
        np.maximum(joined("feature"), 0).astype(np.int32),
        joined("threshold"),
        joined("value").astype(np.float32),
    )


class Chain:
    """Regressions of each output on all other columns of its row, applied in rounds.

    * setup: number of rounds, and the kind of the regressions.
    * models: by number of the output, in the order in which they are applied.
    * known: numbers of the columns that regressions have; others had no observation.
    * width: number of outputs P; further columns are features.
    * centre, unit: of the features.
    """

    def __init__(
        self,
        setup: ChainSetup,
        models: Mapping[int, _Regression],
        known: np.ndarray,
        width: int,
        centre: np.ndarray,
        unit: np.ndarray,
    ) -> None:
        self.setup, self.models, self.known, self.width = setup, models, known, width
        self.centre, self.unit = centre, unit

    def predict(
        self, table: MultiOutputTable, features: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means [T, N, P] of standardised outputs, observed ones themselves; and ones.

        Cells begin at the column's mean, zero.
        """
        beside = (_beside(table, features, self.setup.with_inputs) - self.centre) / self.unit
        columns = np.concatenate([table.Y[table.rows], beside], axis=-1)
        hole = np.isnan(columns)
        columns = np.where(hole, 0.0, columns)
        for _ in range(self.setup.rounds):
            for p, model in self.models.items():
                rows = hole[:, p]
                if rows.any():
                    columns[rows, p] = model(columns[rows][:, self.known[self.known != p]])
        mean = np.full(table.Y.shape, np.nan)
        mean[table.rows] = columns[:, : self.width]
        return mean, np.where(np.isnan(mean), np.nan, 1.0)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name, as :meth:`from_arrays` takes them."""
        arrays = {
            f"{p}.{name}": value
            for p, model in self.models.items()
            for name, value in model._asdict().items()
        }
        return arrays | {
            "setup": np.array(self.setup, dtype=int),
            "order": np.array(list(self.models), dtype=int),
            "known": self.known,
            "width": np.array(self.width),
            "centre": self.centre,
            "unit": self.unit,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Chain:
        """The inverse of :meth:`to_arrays`."""
        rounds, with_inputs, trees = (int(v) for v in arrays["setup"])
        kind: Any = _Forest if trees else _Line
        models = {
            int(p): kind(*(arrays[f"{p}.{name}"] for name in kind._fields)) for p in arrays["order"]
        }
        setup = ChainSetup(rounds, bool(with_inputs), bool(trees))
        rest = (arrays[name] for name in ("known", "width", "centre", "unit"))
        known, width, centre, unit = rest
        return cls(setup, models, known, int(width), centre, unit)


def _beside(table: MultiOutputTable, features: np.ndarray | None, with_inputs: bool) -> np.ndarray:
    """Complete columns [n, F] of all rows beside the outputs."""
    parts = [] if features is None else [features[table.rows]]
    parts += [table.X[table.rows]] if with_inputs else []
    return np.concatenate([np.zeros((np.count_nonzero(table.rows), 0)), *parts], axis=-1)


def _few(X: np.ndarray, y: np.ndarray, trees: bool) -> tuple[np.ndarray, np.ndarray]:
    """So many rows that a forest is grown from."""
    if not trees or len(X) <= _MOST_ROWS:
        return X, y
    rows = np.random.default_rng(0).choice(len(X), _MOST_ROWS, replace=False)
    return X[rows], y[rows]


@check_shapes("Z: [rows, P]", "features: [rows, F]", "return: [rows, P]")
def impute(Z: np.ndarray, features: np.ndarray, rounds: int) -> np.ndarray:
    """Fill a table as scikit-learn does; observed cells stay.

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


class _OutOfTimeError(Exception):
    """A regression would start after the time that there is."""


@functools.cache
def _sklearn() -> types.SimpleNamespace:
    """The classes used of scikit-learn, which is an extra."""
    try:
        from sklearn.base import BaseEstimator, RegressorMixin
        from sklearn.ensemble import ExtraTreesRegressor
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer
        from sklearn.linear_model import BayesianRidge
    except ImportError as error:
        raise ImportError(
            "IterativeImputer, which the check compares with, is scikit-learn's: "
            "pip install scikit-learn."
        ) from error

    class Timed(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        """A regression that is not begun after a time."""

        def __init__(self, kind: Any, options: Any, until: float) -> None:
            self.kind, self.options, self.until = kind, options, until

        def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
            if time.monotonic() > self.until:
                raise _OutOfTimeError
            trees = self.kind is ExtraTreesRegressor
            self.estimator_ = self.kind(**self.options).fit(*_few(X, y, trees))
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return self.estimator_.predict(X)

    return types.SimpleNamespace(
        IterativeImputer=IterativeImputer,
        BayesianRidge=BayesianRidge,
        ExtraTreesRegressor=ExtraTreesRegressor,
        Timed=Timed,
    )
