"""Cells at places that a fit does not see, and when it has found what it can of them."""

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
from ..posteriors.conditionals import latent_given_pseudo, log_density_of

__all__ = ["HeldOut", "held_back"]

_MOST_GIVEN, _MOST_ASKED = 20_000, 1000  # cells by which held-out ones are predicted, and of those
_CODES = 32
_SHARE = 0.1  # of the cells, that are held back
_PATIENCE = 4  # calls without a better density after which it is enough


class HeldOut:
    """Density of cells at places that a fit does not see, and its best values so far."""

    def __init__(
        self,
        model: VariationalAutoencoder,
        fitted: Any,
        values: Callable[[], Sequence[Any]],
        data: Any,
        held: Any,
    ):
        """
        :param fitted: what is fitted, the model or Gaussians of its parameters.
        :param values: the model's unconstrained parameters, at present.
        :param data: X [N, D + 2] and counts [N, P] that are fitted to.
        :param held: the same of the others.
        """
        self._fitted = fitted
        self.begin()
        given = prepare_data(model, tuple(_some(v, _MOST_GIVEN) for v in data))
        X, Y = (_some(v, _MOST_ASKED) for v in held)
        counts, seen = mask_missing((Y.toarray() if scipy.sparse.issparse(Y) else Y)[None])
        at = tf.constant(X[None])

        def density() -> tf.Tensor:
            parameters, weights = list(values()), list(model.amortized.variables)
            seed = tf.constant([0, 0x4E1D])
            moments = latent_given_pseudo(
                model, parameters, weights, seed, (given.X, given.Y, given.mask), at, 1
            )
            cells = log_density_of(
                model, parameters, weights, moments, seed, at, tf.constant(counts),
                tf.constant(seen), _CODES, True, True,
            )  # fmt: skip
            weight = tf.cast(seen, cells.dtype)
            return tf.reduce_sum(cells * weight) / tf.reduce_sum(weight)

        self._density = compiled(density)

    def begin(self) -> None:
        """Without scores, from the values at present."""
        self.scores: list[float] = []
        self._best, self._best_values = -math.inf, self._values()

    def _values(self) -> list[np.ndarray]:
        return [v.numpy() for v in self._fitted.variables]

    def enough(self, number: int, loss: float) -> bool:
        """After each call of a fit: whether its last ones were no better."""
        self.scores.append(float(self._density()))
        if self.scores[-1] > self._best:
            self._best, self._best_values = self.scores[-1], self._values()
        since = len(self.scores) - 1 - int(np.argmax(self.scores))
        return since >= _PATIENCE

    def restore(self) -> None:
        """The best values, into the model."""
        for variable, value in zip(self._fitted.variables, self._best_values, strict=True):
            variable.assign(value)


def _some(values: Any, most: int) -> Any:
    """Rows at equal distances, of all places as rows are in their order."""
    return values[:: -(-values.shape[0] // most)]


def held_back(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are fitted to, and others, at least one of either."""
    order = np.random.default_rng([seed, 0x4E1D]).permutation(number)
    count = min(max(1, round(_SHARE * number)), number - 1)
    return np.sort(order[count:]), np.sort(order[:count])
