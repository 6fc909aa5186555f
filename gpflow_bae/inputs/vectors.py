"""Learnt vectors of objects whose ids are in the inputs."""

from __future__ import annotations

from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from .base import InputModel
from .tables import InputTable

__all__ = ["LearntVectors", "checked_ids", "split_ids"]

tfd = tfp.distributions


class LearntVectors(InputModel):
    """A model of inputs that replaces a column of ids by learnt vectors of W numbers.

    This is the GP-LVM part of the inputs of Jazbec et al. (2021) and Casale et al. (2018).
    Completed inputs, and inducing points, are [the other columns..., vector], D - 1 + W columns.
    """

    @check_arguments(column=0)
    def __init__(
        self,
        vectors: TensorType,
        column: int = 0,
        prior: Any = None,
        q: Literal["point", "gaussian"] = "point",
        initial_scale: float = 0.3,
        flow: tfp.bijectors.Bijector | None = None,
    ):
        """
        :param vectors: initial vectors [num_objects, W]; ids are row numbers.
        :param column: the column of ids in X.
        :param prior: prior of each number; default N(0, s^2), s the root mean square of
            ``vectors``.
        :param q, initial_scale, flow: see :class:`InputTable`.
        :raises ValueError: for vectors that are not a finite matrix, or all 0 without a prior.
        """
        super().__init__(name=None)
        start = as_numbers(vectors, "vectors", gpflow.default_float())
        if prior is None:
            size = float(np.sqrt(np.mean(np.square(start)))) if start.size else 0.0
            if size == 0:
                raise ValueError(
                    "vectors are all 0, so their size gives no scale for a prior: start from other "
                    "values, or pass a prior."
                )
            zero, scale = (gpflow.utilities.to_default_float(v) for v in (0.0, size))
            prior = tfd.Normal(zero, scale)
        self.column = int(column)
        self.table = InputTable(start, prior, q, initial_scale, flow)

    @property
    def num_objects(self) -> int:
        """Number of objects; ids run from 0 to ``num_objects - 1``."""
        return int(self.table.location.shape[0])

    @property
    def draws(self) -> bool:
        """Whether vectors have variational distributions."""
        return self.table.has_density

    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """Return ``X`` after a check of its ids."""
        return checked_ids(X, self.column, self.num_objects, name)

    @check_shapes("X: [batch..., N, .]", "return: [batch..., N, .]")
    def complete(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        ids, others = split_ids(X, self.column)
        return tf.concat([others, self.table.at(ids, self._seed)], -1)

    def known(self, X: np.ndarray) -> np.ndarray:
        """As every input model has it; the vector of an id that is NaN is NaN too."""
        filled, has_none = np.array(X), np.isnan(X[..., self.column])
        filled[has_none, self.column] = 0.0
        found = np.array(super().known(filled))
        found[has_none, X.shape[-1] - 1 :] = np.nan
        return found

    def divergence(self, X: TensorType, point_scale: TensorType, scale: TensorType) -> tf.Tensor:
        # The sum is over all objects, not only those of the batch.
        total = tf.reduce_sum(self.table.divergences(self._seed))
        return total / tf.cast(scale, total.dtype)


def split_ids(X: tf.Tensor, column: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ids [batch..., N] as integers, and the other columns."""
    # A cast truncates, and arithmetic on X may have left rounding errors.
    ids = tf.cast(tf.round(X[..., column]), tf.int32)
    return ids, tf.concat([X[..., :column], X[..., column + 1 :]], -1)


def checked_ids(X: np.ndarray, column: int, num_objects: int, name: str) -> np.ndarray:
    """Return inputs [batch..., N, D] after a check that the ids in a column are row numbers.

    :param num_objects: number of rows.
    :raises ValueError: if not, with the first wrong id, and for NaN.
    """
    X = np.asarray(X, gpflow.default_float())
    if np.isnan(X).any():
        raise ValueError(f"{name} holds NaN; its column {column} holds ids of objects.")
    if X.shape[-1] <= column or X.shape[-1] < 2:
        raise ValueError(
            f"{name} needs an id in column {column} and at least one other column, got shape "
            f"{X.shape}."
        )
    ids = X[..., column]
    valid = (ids == np.round(ids)) & (ids >= 0) & (ids < num_objects)
    if not valid.all():
        raise ValueError(
            f"{name} holds the id {ids[~valid][0]:g} in column {column}; ids are whole numbers "
            f"from 0 to {num_objects - 1}."
        )
    return X
