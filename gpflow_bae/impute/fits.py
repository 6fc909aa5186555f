"""One interface to what fills a table: a fit that predicts standardised cells of any table."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints

from ..data import MultiOutputTable, Observations, Standardiser
from ..files import digest
from ..inducing_variables import uniform
from ..output_transforms import Log
from ..posteriors import Posterior
from . import coregionalisation, fitting
from .coregionalisation import CoregionalisationPlan, CoregionalisationPosterior
from .plans import Plan, build_model, plan_for_table
from .problems import warn
from .user_table import UserTable

__all__ = ["MODELS", "AnyPlan", "AnyPosterior", "Fit", "fit_table", "make_plan"]

MODELS = ("lmc", "sgp_vae", "sgp_bae")

_USELESS = 0.97  # of the error of column means
_BEYOND = 0.25  # standard deviations beyond observed ones that a predicted logarithm can have

_NO_LIMITS = np.array([[-np.inf], [np.inf]])

AnyPlan: TypeAlias = Plan | CoregionalisationPlan
AnyPosterior: TypeAlias = Posterior | CoregionalisationPosterior


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A plan, the scale of the outputs that its model sees, what was fitted, and to which table.

    * limits [2, P]: least and largest standardised value that the fit saw of outputs whose
      logarithm is modelled; infinite for others.
    * table: the digest of all that the table holds, cells that a check hid included; "" if loaded.
    """

    plan: AnyPlan
    standardiser: Standardiser
    posterior: AnyPosterior
    limits: np.ndarray
    table: str = ""

    def predict(
        self,
        user: UserTable,
        table: MultiOutputTable | None = None,
        where: np.ndarray | None = None,
        *,
        of_fit: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of standardised outputs, noise included.

        A straight line through logarithms becomes an exponential, and a row that is extreme in many
        columns would be given many times the largest value ever seen. So a predicted logarithm lies
        at most a quarter of a standard deviation beyond all observed ones, of the fit or of this
        table, and what was taken from it is added to its uncertainty.

        :param user: the table, with its calendar.
        :param table: the same with other cells hidden; ``user.table`` if None.
        :param where: cells that are wanted; others may be NaN. All if None.
        :param of_fit: whether this is the table of the fit.
        """
        table = user.table if table is None else table
        Z = self.standardiser.transform(table.Y)
        if isinstance(self.posterior, CoregionalisationPosterior):
            moments = self.posterior.predict(table, Z, user.calendar, where)
        else:
            given = None if of_fit else (table.X, table.Y)
            if not of_fit:
                warn(_outside(self.posterior, table))
            moments = fitting.predict_standardised(self.posterior, self.standardiser, given)
        return _within(*moments, _joined(self.limits, _limits(self.standardiser, Z)))

    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the fit, in sentences."""
        found = self.posterior
        if not isinstance(found, CoregionalisationPosterior) or not found.gap_error > _USELESS:
            return ()
        return (
            "On gaps like this table's own the fit is no better than column means (its error is "
            f"{found.gap_error:.0%} of theirs): do not rely on filled values. Name more inputs, or "
            "add columns that go together with these.",
        )

    def save(self, path: pathlib.Path) -> dict[str, Any]:
        """Writes the posterior to a file, and returns what else :meth:`load` needs."""
        if isinstance(self.posterior, CoregionalisationPosterior):
            self.posterior.save(path)
            return {"plan": dataclasses.asdict(self.plan), "limits": self.limits.tolist()}
        inducing = self.posterior.model.latent_prior.inducing_variable.Z
        box, boxed = inducing.transform, hasattr(inducing.transform, "low")
        _without_table(self.posterior).save(path)
        engines = ("variational", "schedule", "sampler")
        return {
            "plan": {
                f.name: getattr(self.plan, f.name)
                for f in dataclasses.fields(self.plan)
                if f.name not in engines
            },
            "limits": self.limits.tolist(),
            "num_inducing": len(inducing.numpy()),
            # Sampled values are those on the real line: of which box they are has to be known.
            "inducing_box": [np.asarray(v).tolist() for v in (box.low, box.high)]
            if boxed
            else None,
        }

    @classmethod
    def load(
        cls, folder: pathlib.Path, record: Mapping[str, Any], standardiser: Standardiser
    ) -> Fit:
        """What :meth:`save` wrote.

        :param record: what it returned, and ``input_centre``.
        """
        path, fields = folder / "posterior.npz", dict(record["plan"])
        limits = np.array(record["limits"])
        if fields["model"] == "lmc":
            fields["periods"] = tuple(fields["periods"])
            plan = CoregionalisationPlan(**fields)
            return cls(plan, standardiser, CoregionalisationPosterior.load(path, plan), limits)
        for name in ("encoder_widths", "decoder_widths"):
            fields[name] = tuple(fields[name])
        settings = Plan(**fields)
        X = np.zeros((1, 1, len(record["input_centre"])))
        Y = np.zeros((1, 1, len(standardiser.mean)))
        if record["inducing_box"] is None:
            Z = InducingPoints(np.zeros((record["num_inducing"], X.shape[-1])))
        else:
            low, high = np.array(record["inducing_box"])
            Z = uniform(np.tile((low + high) / 2.0, (record["num_inducing"], 1)), low, high)
        model = build_model(settings, MultiOutputTable(X, Y), Z)
        return cls(settings, standardiser, Posterior.load(path, model), limits)


def make_plan(
    model: str,
    user: UserTable,
    latent_dim: int | None,
    num_inducing: int,
    num_steps: int | None,
    settings: Mapping[str, Any],
    *,
    has_time: bool,
) -> AnyPlan:
    """The plan of a model for a table.

    :param settings: in the place of the model's own.
    :param has_time: whether the first input is time.
    :raises ValueError: for a model or setting that there is not.
    """
    if model not in MODELS:
        raise ValueError(f"model is {model!r}; expected one of {MODELS}.")
    num_outputs = user.table.num_outputs
    if model != "lmc":
        return plan_for_table(model, num_outputs, latent_dim, num_inducing, num_steps, **settings)
    periods = coregionalisation.visible_periods(user.calendar, user.interval)
    found: dict[str, Any] = {"periods": periods}
    if has_time and np.isfinite(user.interval):
        found["step"] = user.interval / user.time_scale
    if "hour" in periods:
        found["day"] = coregionalisation.PERIODS["hour"][0] / user.time_scale
    given = {name: value for name, value in settings.items() if name != "log_outputs"}
    latent_dim = given.pop("latent_dim", latent_dim)
    num_steps = given.pop("num_steps", num_steps)
    return coregionalisation.plan_of_table(num_outputs, latent_dim, num_steps, **(found | given))


def fit_table(
    plan: AnyPlan,
    user: UserTable,
    table: MultiOutputTable,
    *,
    seed: int,
    progress: bool,
    start: Fit | None = None,
) -> Fit:
    """Fits a plan's model to what is observed of a table.

    :param user: the table, with its kinds of columns and its calendar.
    :param table: the same, perhaps with cells hidden.
    :param start: a fit of the same table with cells hidden, which saves steps of the model "lmc".
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
    if isinstance(plan, Plan):
        posterior: AnyPosterior = fitting.fit(
            plan, table, standardiser, seed=seed, progress=progress
        )
        return Fit(plan, standardiser, posterior, limits, of)
    begin = None
    if start is not None and start.plan == plan:
        begin = start.posterior
    posterior = coregionalisation.fit(
        plan,
        table,
        Z,
        user.calendar,
        seed=seed,
        progress=progress,
        start=begin,  # type: ignore[arg-type]
    )
    return Fit(plan, standardiser, posterior, limits, of)


def _outside(posterior: Posterior, table: MultiOutputTable) -> tuple[str, ...]:
    """What to know of rows that no inducing input is near: a sparse GP knows nothing there."""
    Z = np.asarray(posterior.model.latent_prior.inducing_variable.Z)
    margin = np.ptp(Z, axis=0) / len(Z) ** (1.0 / Z.shape[1]) + 0.5  # inputs have deviation 1
    X = table.X[table.rows]
    count = np.count_nonzero(((X < Z.min(0) - margin) | (X > Z.max(0) + margin)).any(-1))
    if count == 0:
        return ()
    return (
        f"{count} of {len(X)} rows have inputs ({', '.join(table.input_names)}) outside of those "
        "that the fit saw. Its model knows nothing of other rows there: fit it to a table with "
        "such rows, or fit the model 'lmc'.",
    )


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


def _without_table(posterior: Posterior) -> Posterior:
    """The posterior as other rows need it: the inducing inputs stand in the place of its table."""
    bank = dataclasses.replace(posterior.bank, latents=None, trace={})
    X = tf.convert_to_tensor(posterior.model.latent_prior.inducing_variable.Z)[None]
    Y = tf.zeros((1, X.shape[1], posterior.data.num_outputs))
    return Posterior(posterior.model, bank, Observations(X, Y, None))
