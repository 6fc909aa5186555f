"""A model of missing entries of X."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers, check_integer
from ..core.scales import varies
from ..data.unequal_tasks import TaskRows, padded_inputs, unequal_lengths
from .base import InputModel
from .circle import UniformOnCircle
from .tables import InputTable, check_prior

__all__ = ["MissingColumn", "MissingInputs"]

tfd = tfp.distributions


class MissingColumn(NamedTuple):
    """The H missing entries of one column of X."""

    column: int
    rows: np.ndarray  # [H], the number of each entry's incomplete point
    number: np.ndarray  # [R], the number of each incomplete point's entry; -1 for none


class MissingInputs(InputModel):
    """Missing entries of X, each with a prior, and a value or a distribution.

    It is specific to this X: NaN elsewhere raises an error. Known entries, and complete
    inputs, are not changed.
    """

    _padding: np.ndarray | None = None
    """For tasks of unequal lengths, numbers [T, N, D] in the place of NaN in padding, else NaN."""

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
        :param X: inputs [N, D] or [T, N, D], NaN where missing, or a list of [N_t, D] if tasks have
            unequal lengths. With several tasks and [N, D] all tasks share the inputs.
        :param periods: periods of periodic columns, such as ``{1: 2 * np.pi}`` for an angle in
            column 1; their prior is uniform on the circle.
        :param priors: priors of other columns, scalar TFP distributions on the whole line; by
            default Normal with mean and standard deviation of the column's known entries.
        :param q: "point" for values, which are optimised or sampled by a chain;
            "gaussian" for a Gaussian variational posterior of each (:class:`InputTable`).
        :param initial_scale: initial scale of the Gaussians, see :class:`InputTable`.
        :param flows: bijectors over single numbers [..., 1] that transform the Gaussians of all
            entries of a column without a period, such as
            ``{0: gpflow_bae.bijectors.planar_flow(1)}``.
        :param seed: seed of initial values in columns that are periodic or in ``priors``, which
            are draws from the prior. Others start at the prior's mean.
        :raises ValueError: for X without missing entries or with infinities, a column that does not
            exist or has both a period and a prior, and one without known entries and prior.
        """
        super().__init__(name=None)
        lengths = unequal_lengths(X)
        X = as_numbers(padded_inputs(X), "X", gpflow.default_float())
        if X.ndim not in (2, 3):
            raise ValueError(f"X must have shape [N, D] or [T, N, D], got {X.shape}.")
        X = X[None] if X.ndim == 2 else X
        if np.isinf(X).any():
            raise ValueError("X holds infinity; missing entries are NaN.")
        self.missing = np.isnan(X)
        seen = ~self.missing
        if lengths is not None:  # padding repeats a task's last row, and has no entries of its own
            own = (np.arange(X.shape[1]) < np.array(lengths)[:, None])[..., None]
            self._padding = np.where(self.missing & ~own, 0.0, np.nan)
            self.missing, seen = self.missing & own, seen & own
        if not self.missing.any():
            raise ValueError("X has no missing entry (NaN), so there is nothing to infer.")
        periods, priors, flows = (dict(v or {}) for v in (periods, priors, flows))
        self._check_columns(periods=periods, priors=priors, flows=flows)
        incomplete = self.missing.any(-1)
        #: Task and point index [R, 2] of each incomplete point.
        self.places = np.argwhere(incomplete)
        self._row_numbers = np.full(incomplete.shape, -1)
        self._row_numbers[incomplete] = np.arange(len(self.places))
        self.columns: list[MissingColumn] = []
        self.tables: list[InputTable] = []
        for column in np.flatnonzero(self.missing.any((0, 1))):
            holes = self.missing[incomplete][:, column]
            number = np.where(holes, np.cumsum(holes) - 1, -1)
            self.columns.append(MissingColumn(int(column), np.flatnonzero(holes), number))
            known = X[..., column][seen[..., column]]
            prior, start = _prior_and_start(
                int(column), known, periods.get(column), priors.get(column), int(holes.sum()), seed
            )
            if self._padding is not None:
                self._padding[..., column] += start.mean()
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
        """Whether entries have variational distributions."""
        return self.tables[0].has_density

    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """Return inputs [batch..., N, D + 1] with zeros where missing.

        The last column is the number of each incomplete point, -1 for other points.

        :raises ValueError: for other missing entries than those of the original X, or another
            width.
        """
        X = np.asarray(X, gpflow.default_float())
        if X.shape[-1] != self.num_columns:
            raise ValueError(
                f"{name} has {X.shape[-1]} columns, and the inputs with missing entries have "
                f"{self.num_columns}."
            )
        holes = np.isnan(X)
        number, known = np.full(X.shape[:-1], -1), np.where(holes, 0.0, X)
        if holes.any():
            own = self.missing[0] if X.ndim == 2 and len(self.missing) == 1 else self.missing
            if self._padding is not None:
                own = own | ~np.isnan(self._padding)
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
            if self._padding is not None:
                known = np.where(holes, np.nan_to_num(self._padding), X)
        return np.concatenate([known, number[..., None]], -1)

    def num_user_columns(self, num_columns: int) -> int:
        return self.num_columns

    def prepare_tensor(self, X: tf.Tensor) -> tf.Tensor:
        if X.shape[-1] != self.num_columns:
            return X
        return tf.concat([X, -tf.ones_like(X[..., :1])], -1)

    @check_shapes("X: [batch..., N, .]", "return: [batch..., N, .]")
    def complete(self, X: TensorType) -> tf.Tensor:
        """Complete prepared inputs: [batch..., N, D]. Complete inputs are returned unchanged."""
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
        """Return the numbers of a column's missing entries at incomplete points, -1 for none."""
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
        # Tasks that share their inputs share one divergence.
        share = tf.cast(point_scale, total.dtype) / tf.cast(scale, total.dtype)
        return total * share

    def filled(self, X: TensorType) -> np.ndarray:
        """Return X with missing entries replaced by their current values or means.

        Of a list of tasks of unequal lengths [T, N, D], NaN in rows that a task does not have.
        """
        rows = TaskRows(True, unequal_lengths(X))
        X = as_numbers(padded_inputs(X), "X", gpflow.default_float())
        return rows.of(self.complete(self.prepare(X)).numpy())


def _prior_and_start(
    column: int, known: np.ndarray, period: float | None, prior: Any, count: int, seed: int
) -> tuple[Any, np.ndarray]:
    """Return a column's prior, and the initial values [H, 1] of its missing entries."""
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
