"""Chained regressions: each column on the others of its row, in rounds.

They ignore neighbouring rows; their only features of time are the calendar's sines and cosines. The
regressions are linear or forests of extremely randomised trees. scikit-learn fits them
(:mod:`.chain_fitting`); to predict, and to be saved as plain arrays, they do without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...data import MultiOutputTable

__all__ = ["Chain", "ChainSetup", "Forest", "Line", "Regression", "columns_beside", "mean_squares"]

_CHUNK = 4096  # rows that a forest predicts at once
_TRUST = 20.0  # hidden cells at which a column's own variance weighs as much as that of all


class ChainSetup(NamedTuple):
    """Number of rounds; whether inputs are features too; whether the regressions are forests."""

    rounds: int
    with_inputs: bool
    trees: bool = False


class Line(NamedTuple):
    """A linear regression."""

    weights: np.ndarray
    constant: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X @ self.weights + self.constant


class Forest(NamedTuple):
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
        row, node = np.repeat(np.arange(len(X)), len(self.roots)), np.tile(self.roots, len(X))
        moving = np.flatnonzero(self.left[node] >= 0)
        while len(moving):
            at = node[moving]
            goes_left = X[row[moving], self.column[at]] <= self.threshold[at]
            node[moving] = at = np.where(goes_left, self.left[at], self.right[at])
            moving = moving[self.left[at] >= 0]
        return np.asarray(self.value[node].reshape(len(X), -1).mean(1))


Regression = Line | Forest


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """Regressions of each output on all other columns of its row, applied in rounds.

    * setup: number of rounds, and the kind of the regressions.
    * models: pairs of the number of an output and its regression.
    * order: numbers of the pairs in the order in which they are applied, as
      ``IterativeImputer.transform`` does: those of the first round, of the second, and so on. At
      the end of each round are those of columns that had no missing cell in the fit.
    * known: numbers of the columns that regressions have; others had no observation.
    * width: number of outputs P; further columns are features.
    * centre, unit: of the features.
    * together [P, P]: pairs of outputs that some row of the fit misses, Booleans.
    """

    setup: ChainSetup
    models: Sequence[tuple[int, Regression]]
    order: Sequence[int]
    known: np.ndarray
    width: int
    centre: np.ndarray
    unit: np.ndarray
    together: np.ndarray

    def knows(self, table: MultiOutputTable) -> np.ndarray:
        """Return which cells [T, N, P] are missing beside no others than those of the fit are.

        Regressions of other cells have inputs that the fit never had to guess.
        """
        hole = np.isnan(table.Y)
        strange = hole.astype(np.float32) @ (~self.together).astype(np.float32)
        return np.asarray(~hole | (strange == 0.0))

    def predict(
        self, table: MultiOutputTable, features: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means [T, N, P] of standardised outputs, observed ones themselves; and ones.

        Cells begin at the column's mean, zero.
        """
        beside = (columns_beside(table, features, self.setup.with_inputs) - self.centre) / self.unit
        columns = np.concatenate([table.Y[table.rows], beside], axis=-1)
        hole = np.isnan(columns)
        columns = np.where(hole, 0.0, columns)
        for i in self.order:
            p, model = self.models[i]
            rows = hole[:, p]
            if rows.any():
                columns[rows, p] = model(columns[rows][:, self.known[self.known != p]])
        mean = np.full(table.Y.shape, np.nan)
        mean[table.rows] = columns[:, : self.width]
        return mean, np.where(np.isnan(mean), np.nan, 1.0)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name, as :meth:`from_arrays` takes them."""
        arrays = {
            f"{i}.{name}": value
            for i, (_, model) in enumerate(self.models)
            for name, value in model._asdict().items()
        }
        return arrays | {
            "setup": np.array(self.setup, dtype=int),
            "outputs": np.array([p for p, _ in self.models], dtype=int),
            "order": np.array(self.order, dtype=int),
            "known": self.known,
            "width": np.array(self.width),
            "centre": self.centre,
            "unit": self.unit,
            "together": self.together,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Chain:
        """The inverse of :meth:`to_arrays`."""
        rounds, with_inputs, trees = (int(v) for v in arrays["setup"])
        kind: Any = Forest if trees else Line
        models = [
            (int(p), kind(*(arrays[f"{i}.{name}"] for name in kind._fields)))
            for i, p in enumerate(arrays["outputs"])
        ]
        setup = ChainSetup(rounds, bool(with_inputs), bool(trees))
        known, width, centre, unit = (arrays[k] for k in ("known", "width", "centre", "unit"))
        order = arrays["order"].tolist()
        together = arrays["together"].astype(bool)
        return cls(setup, models, order, known, int(width), centre, unit, together)


def columns_beside(
    table: MultiOutputTable, features: np.ndarray | None, with_inputs: bool
) -> np.ndarray:
    """Complete columns [n, F] of all rows beside the outputs."""
    parts = [] if features is None else [features[table.rows]]
    parts += [table.X[table.rows]] if with_inputs else []
    return np.concatenate([np.zeros((np.count_nonzero(table.rows), 0)), *parts], axis=-1)


def mean_squares(missed: np.ndarray, columns: np.ndarray, number: int) -> np.ndarray:
    """Mean squared error of each column [P], shrunk towards that of all."""
    together = float(np.mean(np.square(missed)))
    found = np.full(number, together)
    for p in np.unique(columns):
        own = np.square(missed[columns == p])
        weight = len(own) / (len(own) + _TRUST)
        found[p] = weight * own.mean() + (1.0 - weight) * together
    return np.maximum(found, 1e-6)
