"""A fit of a table: how its columns are read, the scale that the model sees, and the model."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.files import digest
from ...core.output_transforms import Log
from ...data import MultiOutputTable, Standardiser
from .. import saved_fits
from ..reading.columns import FittedColumns
from ..reading.user_table import CellPredictions, UserTable
from .calendar import PERIODS, visible_periods
from .fitting import fit
from .plan import Plan
from .posterior import TablePosterior

__all__ = ["Fit", "fit_table", "make_plan"]

_MOST_CHANNELS = 20
_USELESS = 0.97  # of the error of column means
_BEYOND = 0.25  # standard deviations beyond observed ones that a predicted logarithm can have

_NO_LIMITS = np.array([[-np.inf], [np.inf]])


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model of a table.

    * columns: how the columns of tables are read.
    * standardiser: the scale of the outputs that the model sees.
    * posterior: the model of standardised outputs, given scaled inputs.
    * limits [2, P]: least and largest standardised value in the fit of outputs whose logarithm is
      modelled; infinite for others.
    * table: the digest of the whole table, cells that a check hid included; "" if loaded.
    """

    columns: FittedColumns
    standardiser: Standardiser
    posterior: TablePosterior
    limits: np.ndarray
    table: str = ""

    def predict(
        self,
        user: UserTable,
        table: MultiOutputTable | None = None,
        where: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of standardised outputs, noise included.

        The model extrapolates logarithms linearly, hence values exponentially. So the mean of a
        predicted logarithm is kept within a quarter of a standard deviation of the observed range,
        of the fit and of this table, and the square of the correction is added to its variance.

        :param table: ``user.table`` with further cells hidden; ``user.table`` itself if None.
        :param where: cells to predict, Booleans [T, N, P]; others may be NaN. All if None.
        """
        table = user.table if table is None else table
        Z = self.standardiser.transform(table.Y)
        mean, variance = self.posterior.predict(table, Z, user.calendar, where)
        low, high = _limits(self.standardiser, Z)
        inside = np.clip(mean, np.minimum(self.limits[0], low), np.maximum(self.limits[1], high))
        kept = inside + _BEYOND * np.tanh((mean - inside) / _BEYOND)
        return kept, variance + np.square(np.minimum(np.abs(mean - kept), 2.0 * _BEYOND))

    def predict_cells(self, user: UserTable, where: np.ndarray | None = None) -> CellPredictions:
        """The same in the units of the outputs, with the ends of 90 % intervals."""
        scale, moments = self.standardiser, self.predict(user, where=where)
        ends = (scale.inverse_quantile(*moments, probability) for probability in (0.05, 0.95))
        return CellPredictions(*scale.inverse_moments(*moments), *ends)

    def warnings(self) -> tuple[str, ...]:
        """Warnings about the fit for the user, in sentences."""
        found = self.posterior
        if not found.gap_error > _USELESS:
            return ()
        return (
            "On gaps like this table's own the fit is no better than column means (its error is "
            f"{found.gap_error:.0%} of theirs): do not rely on filled values. Name more inputs, or "
            "add columns that go together with these.",
        )

    def save(self, folder: str | pathlib.Path, arguments: Mapping[str, Any]) -> None:
        """Write the folder of the fit.

        :param arguments: of the Imputer's constructor.
        """
        more = {
            "mean": self.standardiser.mean,
            "std": self.standardiser.std,
            "plan": self.posterior.plan.to_dict(),
            "limits": self.limits,
        }
        saved_fits.write(folder, self.posterior.save, arguments, self.columns, more)

    @classmethod
    def load(cls, folder: pathlib.Path, record: Mapping[str, Any]) -> Fit:
        """Read what :meth:`save` wrote.

        :param record: what ``fit.json`` in the folder holds.
        :raises ValueError: for a fit of a model that the imputer no longer has.
        """
        settings = dict(record["plan"])
        model = settings.pop("model", "lmc")  # files of earlier versions name one
        if model != "lmc":
            raise ValueError(
                f"{folder} holds a fit of the model {model!r}, which the imputer no longer has: "
                "fit the table again."
            )
        columns = saved_fits.fitted_columns(record)
        return cls(
            columns,
            Standardiser(
                np.array(record["mean"]),
                np.array(record["std"]),
                transforms=tuple(kind.transform for kind in columns.kinds),
            ),
            TablePosterior.load(folder / saved_fits.POSTERIOR, Plan.from_dict(settings)),
            np.array(record["limits"]),
        )


def make_plan(
    user: UserTable,
    latent_dim: int | None,
    num_steps: int | None,
    settings: Mapping[str, Any],
    *,
    has_time: bool,
) -> Plan:
    """The plan for a table, with a channel for each output, of at most twenty, by default.

    :param settings: settings that replace those that follow from the table.
    :param has_time: whether the first input is time.
    :raises ValueError: for an unknown setting, or a value out of its range.
    """
    interval, unit = user.interval, user.time_scale if user.inputs else 1.0
    periods = visible_periods(user.calendar, interval)
    found: dict[str, Any] = {
        "latent_dim": min(user.table.num_outputs, _MOST_CHANNELS),
        "periods": periods,
    }
    if has_time and np.isfinite(interval):
        found["step"] = interval / unit
    if "hour" in periods:
        found["day"] = PERIODS["hour"][0] / unit
    given = {"latent_dim": latent_dim, "num_steps": num_steps, **settings}
    for name in ("latent_dim", "num_steps"):
        if given[name] is None:
            del given[name]
    given.pop("log_outputs", None)  # a setting of the columns
    return Plan.from_dict(found | given)


def fit_table(
    plan: Plan,
    user: UserTable,
    table: MultiOutputTable,
    start: Fit | None = None,
    *,
    seed: int,
    progress: bool,
) -> Fit:
    """Fit a plan's model to the observed cells of a table.

    :param table: ``user.table``, perhaps with cells hidden.
    :param start: a fit of the same table with cells hidden, which saves steps.
    :raises ValueError: for a start that is a fit of another table.
    """
    of = digest(user.table.X, user.table.Y, user.table.lengths)
    if start is not None and getattr(start, "table", None) != of:
        raise ValueError(
            "start is no fit of this table: pass checked_ of the Imputer whose check had the same "
            "table, or leave it out."
        )
    standardiser = user.standardiser(table)
    Z = standardiser.transform(table.Y)
    begin = start.posterior if start is not None and start.posterior.plan == plan else None
    binary = np.array([kind.kind == "binary" for kind in user.columns.kinds])
    posterior = fit(
        plan,
        table,
        Z,
        user.calendar,
        seed=seed,
        progress=progress,
        start=begin,
        rates=np.where(binary, standardiser.mean, np.nan),
    )
    return Fit(user.columns, standardiser, posterior, _limits(standardiser, Z), of)


def _limits(standardiser: Standardiser, Z: np.ndarray) -> np.ndarray:
    """Least and largest value [2, P] of outputs [T, N, P] that are seen as logarithms."""
    logged = np.array([isinstance(t, Log) for t in standardiser.transforms])
    if not logged.any():
        return np.tile(_NO_LIMITS, len(logged))
    low = np.fmin.reduce(Z, (0, 1), initial=np.inf)
    high = np.fmax.reduce(Z, (0, 1), initial=-np.inf)
    return np.where(logged, [low, high], _NO_LIMITS)
