"""Early stopping by the predictive density of held-out cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from ..core.tracing import compiled
from ..data import mask_missing, prepare_data
from ..models import VariationalAutoencoder
from ..posteriors.conditionals import latent_moments, log_density_of

__all__ = ["HeldOut", "held_back"]

_MOST_GIVEN, _MOST_PREDICTED = 20_000, 1000  # most cells to condition on, and most cells to predict
_CODES = 32
_SHARE = 0.1  # of the cells, that are held back
_PATIENCE = 4  # calls without a better density after which it is enough


class HeldOut:
    """Predictive density of held-out cells, and the parameters with the best one so far."""

    def __init__(
        self,
        model: VariationalAutoencoder,
        fitted: Any,
        values: Callable[[], Sequence[Any]],
        data: Any,
        held: Any,
    ):
        """
        :param fitted: the fitted module: the model, or Gaussians of its parameters.
        :param values: returns the model's present unconstrained parameters.
        :param data: X [N, D + K + 2] and counts [N, P] of the fitted cells.
        :param held: X and counts of the held-out cells.
        """
        self._fitted = fitted
        self.begin()
        given = prepare_data(model, tuple(_evenly_spaced(v, _MOST_GIVEN) for v in data))
        X, Y = (_evenly_spaced(v, _MOST_PREDICTED) for v in held)
        counts, seen = mask_missing((Y.toarray() if scipy.sparse.issparse(Y) else Y)[None])
        at = tf.constant(X[None])

        def density() -> tf.Tensor:
            parameters, weights = list(values()), list(model.amortized.variables)
            seed = tf.constant([0, 0x4E1D])
            known = (given.X, given.Y, given.mask)
            moments = latent_moments(model, parameters, weights, [], seed, known, at, num_draws=1)
            cells = log_density_of(
                model, parameters, weights, moments, seed, at, tf.constant(counts),
                tf.constant(seen), _CODES, True, True,
            )  # fmt: skip
            weight = tf.cast(seen, cells.dtype)
            return tf.reduce_sum(cells * weight) / tf.reduce_sum(weight)

        self._density = compiled(density)

    def begin(self) -> None:
        """Reset the scores and the best parameters to the present ones."""
        self.scores: list[float] = []
        self._best, self._best_values = -math.inf, self._values()

    def _values(self) -> list[np.ndarray]:
        return [v.numpy() for v in self._fitted.variables]

    def enough(self, number: int, loss: float) -> bool:
        """Update the score after each call of the fit; return whether to stop."""
        self.scores.append(float(self._density()))
        if self.scores[-1] > self._best:
            self._best, self._best_values = self.scores[-1], self._values()
        since = len(self.scores) - 1 - int(np.argmax(self.scores))
        return since >= _PATIENCE

    def restore(self) -> None:
        """Assign the best parameters to the model."""
        for variable, value in zip(self._fitted.variables, self._best_values, strict=True):
            variable.assign(value)


def _evenly_spaced(values: Any, most: int) -> Any:
    """Take at most ``most`` evenly spaced rows; rows are ordered by place."""
    return values[:: -(-values.shape[0] // most)]


def held_back(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random into fitted and held-out ones, at least one of each."""
    order = np.random.default_rng([seed, 0x4E1D]).permutation(number)
    count = min(max(1, round(_SHARE * number)), number - 1)
    return np.sort(order[count:]), np.sort(order[:count])
