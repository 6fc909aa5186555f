"""A fit of a table: its model, the scale that the model sees, and the values it has seen."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.files import digest
from ...core.output_transforms import Log
from ...data import MultiOutputTable, Standardiser
from ..reading.user_table import UserTable
from .calendar import PERIODS, visible_periods
from .fitting import fit
from .plan import Plan, plan_of_table
from .posterior import TablePosterior

__all__ = ["Fit", "fit_table", "make_plan"]

_USELESS = 0.97  # of the error of column means
_BEYOND = 0.25  # standard deviations beyond observed ones that a predicted logarithm can have

_NO_LIMITS = np.array([[-np.inf], [np.inf]])


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A plan, the scale of the outputs that its model sees, what was fitted, and to which table.

    * limits [2, P]: least and largest standardised value that the fit saw of outputs whose
      logarithm is modelled; infinite for others.
    * table: the digest of all that the table holds, cells that a check hid included; "" if loaded.
    """

    plan: Plan
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

        A straight line through logarithms becomes an exponential, and a row that is extreme in many
        columns would be given many times the largest value ever seen. So a predicted logarithm lies
        at most a quarter of a standard deviation beyond all observed ones, of the fit or of this
        table, and what was taken from it is added to its uncertainty.

        :param user: the table, with its calendar.
        :param table: the same with other cells hidden; ``user.table`` if None.
        :param where: cells that are wanted; others may be NaN. All if None.
        """
        table = user.table if table is None else table
        Z = self.standardiser.transform(table.Y)
        moments = self.posterior.predict(table, Z, user.calendar, where)
        return _within(*moments, _joined(self.limits, _limits(self.standardiser, Z)))

    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the fit, in sentences."""
        found = self.posterior
        if not found.gap_error > _USELESS:
            return ()
        return (
            "On gaps like this table's own the fit is no better than column means (its error is "
            f"{found.gap_error:.0%} of theirs): do not rely on filled values. Name more inputs, or "
            "add columns that go together with these.",
        )

    def save(self, path: pathlib.Path) -> dict[str, Any]:
        """Writes the posterior to a file, and returns what else :meth:`load` needs."""
        self.posterior.save(path)
        return {"plan": self.plan.to_dict(), "limits": self.limits.tolist()}

    @classmethod
    def load(
        cls, folder: pathlib.Path, record: Mapping[str, Any], standardiser: Standardiser
    ) -> Fit:
        """What :meth:`save` wrote.

        :param record: what it returned, and ``input_centre``.
        """
        settings = dict(record["plan"])
        model = settings.pop("model", "lmc")  # files of earlier versions name one
        if model != "lmc":
            raise ValueError(
                f"{folder} holds a fit of the model {model!r}, which the imputer no longer has: "
                "fit the table again."
            )
        plan = Plan.from_dict(settings)
        posterior = TablePosterior.load(folder / "posterior.npz", plan)
        return cls(plan, standardiser, posterior, np.array(record["limits"]))


def make_plan(
    user: UserTable,
    latent_dim: int | None,
    num_steps: int | None,
    settings: Mapping[str, Any],
    *,
    has_time: bool,
) -> Plan:
    """The plan for a table.

    :param settings: in the place of those that follow from the table.
    :param has_time: whether the first input is time.
    :raises ValueError: for a setting that there is not.
    """
    periods = visible_periods(user.calendar, user.interval)
    found: dict[str, Any] = {"periods": periods}
    if has_time and np.isfinite(user.interval):
        found["step"] = user.interval / user.time_scale
    if "hour" in periods:
        found["day"] = PERIODS["hour"][0] / user.time_scale
    given = {name: value for name, value in settings.items() if name != "log_outputs"}
    latent_dim = given.pop("latent_dim", latent_dim)
    num_steps = given.pop("num_steps", num_steps)
    return plan_of_table(user.table.num_outputs, latent_dim, num_steps, **(found | given))


def fit_table(
    plan: Plan,
    user: UserTable,
    table: MultiOutputTable,
    start: Fit | None = None,
    *,
    seed: int,
    progress: bool,
) -> Fit:
    """Fits a plan's model to what is observed of a table.

    :param user: the table, with its kinds of columns and its calendar.
    :param table: the same, perhaps with cells hidden.
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
    limits = _limits(standardiser, Z)
    begin = start.posterior if start is not None and start.plan == plan else None
    posterior = fit(plan, table, Z, user.calendar, seed=seed, progress=progress, start=begin)
    return Fit(plan, standardiser, posterior, limits, of)


def _limits(standardiser: Standardiser, Z: np.ndarray) -> np.ndarray:
    """Least and largest value [2, P] of outputs [T, N, P] that are seen as logarithms."""
    logged = np.array([isinstance(t, Log) for t in standardiser.transforms])
    if not logged.any():
        return np.tile(_NO_LIMITS, len(logged))
    low = np.fmin.reduce(Z, (0, 1), initial=np.inf)
    high = np.fmax.reduce(Z, (0, 1), initial=-np.inf)
    return np.where(logged, [low, high], _NO_LIMITS)


def _joined(limits: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.stack([np.minimum(limits[0], others[0]), np.maximum(limits[1], others[1])])


def _within(
    mean: np.ndarray, variance: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments whose mean is hardly outside of the limits: by less than ``_BEYOND``."""
    inside = np.clip(mean, *limits)
    kept = inside + _BEYOND * np.tanh((mean - inside) / _BEYOND)
    return kept, variance + np.square(np.minimum(np.abs(mean - kept), 2.0 * _BEYOND))
