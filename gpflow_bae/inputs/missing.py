"""Entries of X that nobody recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.arguments import as_numbers, check_arguments, check_integer, varies
from .base import InputModel
from .circle import UniformOnCircle
from .tables import InputTable, check_prior

__all__ = ["MissingColumn", "MissingInputs"]

tfd = tfp.distributions


class MissingColumn(NamedTuple):
    """The missing entries of one column of X, H of them."""

    column: int
    rows: np.ndarray  # [H], which of the incomplete points each is in
    number: np.ndarray  # [R], which entry each incomplete point lacks; -1 for none


class MissingInputs(InputModel):
    """X with holes, each with a prior and a value or a distribution of its own.

    It belongs to the X that it is made of: NaN elsewhere is refused. Everything else of X, other
    complete inputs among it, stays as it is.
    """

    @check_arguments(seed=0)
    def __init__(
        self,
        X: TensorType,
        periods: Mapping[int, float] | None = None,
        priors: Mapping[int, Any] | None = None,
        q: Literal["point", "gaussian"] = "point",
        initial_scale: float = 0.3,
        flows: Mapping[int, tfp.bijectors.Bijector] | None = None,
        seed: int = 0,
    ):
        """
        :param X: inputs [N, D] or [T, N, D], NaN where missing. With several tasks and [N, D] all
            tasks share the inputs.
        :param periods: of columns that come round again, such as ``{1: 2 * np.pi}`` for an angle in
            column 1; those are uniform on the circle.
        :param priors: of other columns, TFP distributions of a number on the whole line; by default
            Normal with mean and standard deviation of what is known of the column.
        :param q: "point", for a fit that finds a value for each or a chain that samples them;
            "gaussian", for a variational fit that finds a Gaussian for each
            (:class:`InputTable`).
        :param initial_scale: of those Gaussians, see :class:`InputTable`.
        :param flows: of columns without a period, bijectors over single numbers [..., 1] that bend
            the Gaussians of all entries of a column, such as
            ``{0: gpflow_bae.bijectors.planar_flow(1)}``.
        :param seed: of the values at the start of a column that is circular, or has a prior of
            yours: draws of it. Others start at the prior's mean.
        :raises ValueError: for X without holes or with infinities, a column that does not exist,
            one with both a period and a prior, and one of which nothing is known, with no prior.
        """
        super().__init__(name=None)
        X = as_numbers(X, "X", gpflow.default_float())
        if X.ndim not in (2, 3):
            raise ValueError(f"X must have shape [N, D] or [T, N, D], got {X.shape}.")
        X = X[None] if X.ndim == 2 else X
        if np.isinf(X).any():
            raise ValueError("X holds infinity; missing entries are NaN.")
        self.missing = np.isnan(X)
        if not self.missing.any():
            raise ValueError("X has no missing entry (NaN), so there is nothing to infer.")
        periods, priors, flows = (dict(v or {}) for v in (periods, priors, flows))
        self._check_columns(periods=periods, priors=priors, flows=flows)
        incomplete = self.missing.any(-1)
        #: Task and point [R, 2] of each incomplete point.
        self.places = np.argwhere(incomplete)
        self._row_numbers = np.full(incomplete.shape, -1)
        self._row_numbers[incomplete] = np.arange(len(self.places))
        self.columns: list[MissingColumn] = []
        self.tables: list[InputTable] = []
        for column in np.flatnonzero(self.missing.any((0, 1))):
            holes = self.missing[incomplete][:, column]
            number = np.where(holes, np.cumsum(holes) - 1, -1)
            self.columns.append(MissingColumn(int(column), np.flatnonzero(holes), number))
            known = X[..., column][~self.missing[..., column]]
            prior, start = _start(
                int(column), known, periods.get(column), priors.get(column), int(holes.sum()), seed
            )
            flow = flows.get(int(column))
            self.tables.append(InputTable(start, prior, q, initial_scale, flow))

    def _check_columns(self, **given: dict[int, Any]) -> None:
        for name, columns in given.items():
            for column in columns:
                check_integer(f"a column of {name}", column, 0, self.num_columns - 1)
        if both := sorted(set(given["periods"]) & set(given["priors"])):
            raise ValueError(
                f"column {both[0]} has both a period and a prior; a column with a period is uniform"
                " on its circle: leave one of them out."
            )

    @property
    def num_columns(self) -> int:
        """Columns D of the inputs."""
        return int(self.missing.shape[-1])

    @property
    def draws(self) -> bool:
        """Whether entries have distributions of their own."""
        return self.tables[0].has_density

    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """The same [batch..., N, D + 1]: zeros where missing, and the number of each incomplete
        point in a last column, -1 of others.

        :raises ValueError: for other holes than those that this was made of, or another width.
        """
        X = np.asarray(X, gpflow.default_float())
        if X.shape[-1] != self.num_columns:
            raise ValueError(
                f"{name} has {X.shape[-1]} columns, and the inputs with missing entries have "
                f"{self.num_columns}."
            )
        holes = np.isnan(X)
        number = np.full(X.shape[:-1], -1)
        if holes.any():
            own = self.missing[0] if X.ndim == 2 and len(self.missing) == 1 else self.missing
            if holes.shape != own.shape or (holes != own).any():
                where = np.argwhere(holes != own)[0] if holes.shape == own.shape else None
                found = f"shape {X.shape}" if where is None else f"a difference at {where.tolist()}"
                raise ValueError(
                    f"{name} is NaN where there is no distribution of what is missing: "
                    f"MissingInputs was made of X of shape {self.missing.shape} with "
                    f"{int(self.missing.sum())} missing entries, and {name} has {found}. Give "
                    "complete inputs, or make MissingInputs of these."
                )
            number = self._row_numbers[0] if X.ndim == 2 else self._row_numbers
        return np.concatenate([np.where(holes, 0.0, X), number[..., None]], -1)

    def num_user_columns(self, num_columns: int) -> int:
        return self.num_columns

    def prepare_tensor(self, X: tf.Tensor) -> tf.Tensor:
        if X.shape[-1] != self.num_columns:
            return X
        return tf.concat([X, -tf.ones_like(X[..., :1])], -1)

    @check_shapes("X: [batch..., N, .]", "return: [batch..., N, .]")
    def complete(self, X: TensorType) -> tf.Tensor:
        """Inputs [batch..., N, D]: of prepared ones, or of complete ones, which are returned."""
        X = tf.convert_to_tensor(X)
        if X.shape[-1] == self.num_columns:
            return X
        number = tf.cast(tf.round(X[..., -1]), tf.int32)
        columns = tf.unstack(X[..., :-1], axis=-1)
        for i, (own, table) in enumerate(zip(self.columns, self.tables, strict=True)):
            entry = self._entries(own, number)
            found = table.at(tf.maximum(entry, 0), self._table_seed(i))[..., 0]
            columns[own.column] = tf.where(entry >= 0, found, columns[own.column])
        return tf.stack(columns, axis=-1)

    @staticmethod
    def _entries(own: MissingColumn, number: tf.Tensor) -> tf.Tensor:
        """Which entry of a column points of these numbers lack, -1 for none."""
        entry = tf.gather(tf.constant(own.number, tf.int32), tf.maximum(number, 0))
        return tf.where(number >= 0, entry, -tf.ones_like(entry))

    def _table_seed(self, i: int) -> tf.Tensor | None:
        return None if self._seed is None else tf.random.fold_in(self._seed, i, alg="philox")

    def divergence(self, X: TensorType, point_scale: TensorType, scale: TensorType) -> tf.Tensor:
        total = tf.zeros([], gpflow.default_float())
        number = tf.cast(tf.round(X[..., -1]), tf.int32)
        for i, (own, table) in enumerate(zip(self.columns, self.tables, strict=True)):
            entry = self._entries(own, number)
            costs = tf.gather(table.divergences(self._table_seed(i)), tf.maximum(entry, 0))
            total += tf.reduce_sum(tf.where(entry >= 0, costs, tf.zeros_like(costs)))
        if len(self.missing) > 1:
            return total
        # Tasks that share their inputs share what these cost.
        share = tf.cast(point_scale, total.dtype) / tf.cast(scale, total.dtype)
        return total * share

    def filled(self, X: TensorType) -> np.ndarray:
        """X with its holes at their present values, or means."""
        X = as_numbers(X, "X", gpflow.default_float())
        return self.complete(self.prepare(X)).numpy()


def _start(
    column: int, known: np.ndarray, period: float | None, prior: Any, count: int, seed: int
) -> tuple[Any, np.ndarray]:
    """A column's prior, and its missing entries at the start [H, 1]."""
    own_seed = tf.constant([seed, column], tf.int32)
    if period is not None:
        prior = UniformOnCircle(period)
    elif prior is None:
        spread = float(known.std()) if varies(known) else 0.0
        if not spread > 0:
            raise ValueError(
                f"Of column {column} of X {len(known)} entries are known, with a standard deviation"
                f" of {spread:g}, which says nothing of the others: give a prior of it, such as "
                f"priors={{{column}: tfp.distributions.Normal(loc, scale)}}, or leave the column "
                "out."
            )
        location, scale = (gpflow.utilities.to_default_float(v) for v in (known.mean(), spread))
        return tfd.Normal(location, scale), np.full((count, 1), known.mean())
    else:
        check_prior(prior)
    start = prior.sample([count, 1], seed=own_seed)
    return prior, np.asarray(start, np.float64)
