"""An estimator that fills the holes of a table, with uncertainty, and says whether to trust it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..data import MultiOutputTable, Observations, Standardiser, hold_out
from ..inducing_variables import uniform
from ..posteriors import Posterior
from ..versions import __version__
from . import fitting, saved_fits, scores
from .baselines import independent_gps, linear_interpolation, mean
from .check_result import CheckResult
from .columns import FittedColumns
from .plans import Plan, build_model, plan_for_table
from .problems import warn
from .table_format import TableFormat
from .user_table import CellPredictions, UserTable, from_arrays

__all__ = ["MODELS", "Imputer"]

MODELS = ("sgp_vae", "sgp_bae")

_RIVALS = {
    "independent GPs": independent_gps,
    "linear interpolation": linear_interpolation,
    "column means": mean,
}


@dataclasses.dataclass(eq=False)
class Imputer:
    """Fills the holes of a table by a Gaussian-process autoencoder of its rows.

    A table is a pandas DataFrame, whose columns the arguments name, or two arrays: inputs X [N, D]
    or [T, N, D], and outputs Y [N, P] or [T, N, P] with NaN where missing. Tasks are independent
    series that share everything but their latent functions.

    :param outputs: columns to fill; names of the columns of ``Y``, for arrays.
    :param time: column of numbers or ISO dates; the first input of the GP.
    :param inputs: further numeric columns that every row has, such as coordinates.
    :param task: column that names the series a row belongs to; one series if None.
    :param model: ``"sgp_vae"``, fitted by variational inference, or ``"sgp_bae"``, sampled.
    :param latent_dim: latent channels; half as many as outputs if None.
    :param num_inducing: inducing points of the GP.
    :param num_steps: Adam steps; 1500 if None.
    :param seed: of everything random.
    :param settings: what :func:`~gpflow_bae.impute.plans.make_plan` takes, in the place of the
        settings of :func:`~gpflow_bae.impute.plans.plan_for_table`.
    :param progress: whether ``fit`` shows a progress bar.
    :param kinds: of outputs, by name: ``"continuous"``, ``"positive"``, ``"count"``, ``"binary"``,
        or the two bounds of a bounded column, such as ``(0, 100)``. Others follow from the observed
        values, see :func:`~gpflow_bae.impute.columns.decide_kind`.
    :param table_format: how a DataFrame's text writes numbers, dates and missing cells.
    :param epochs: the old name of ``num_steps``.

    After ``fit``: ``plan_``, ``posterior_`` (of standardised outputs, given scaled inputs),
    ``standardiser_``, and ``columns_``, how other tables are read: scaling of the inputs, kinds of
    the outputs.

    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> Y = np.concatenate([np.sin(X), np.cos(X)], axis=1)
    >>> Y[10:13, 0] = np.nan
    >>> imputer = Imputer(num_steps=5, progress=False).fit(X, Y)
    >>> filled = imputer.impute()
    >>> bool(np.isfinite(filled.filled).all()), int(np.count_nonzero(filled.sd))
    (True, 3)
    """

    outputs: Sequence[str] = ()
    time: str | None = None
    inputs: Sequence[str] = ()
    task: str | None = None
    model: str = "sgp_vae"
    latent_dim: int | None = None
    num_inducing: int = 64
    num_steps: int | None = None
    seed: int = 0
    settings: Mapping[str, Any] | None = None
    progress: bool = True
    kinds: Mapping[str, Any] | None = None
    table_format: TableFormat | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        self.posterior_: Posterior | None = None
        self.table_: UserTable | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def set_params(self, **arguments: Any) -> Imputer:
        """Replaces constructor arguments, of the next ``fit``.

        :raises ValueError: for an argument that the constructor does not have.
        """
        unknown = sorted(set(arguments) - set(self.get_params()))
        if unknown:
            raise ValueError(
                f"Imputer has no parameter {unknown}; it has {sorted(self.get_params())}."
            )
        for name, value in arguments.items():
            setattr(self, name, value)
        return self

    def read(self, table: Any, Y: Any = None) -> UserTable:
        """A table as models see it, after all checks; inputs are scaled as in ``fit``, if fitted.

        :param table: a DataFrame, or inputs X; or what this method returned.
        :param Y: outputs, if ``table`` is X.
        :raises ValueError: for a column that is not there, text in a numeric column, infinities,
            missing inputs, two rows of a task with the same inputs, or arrays of other shapes.
        """
        return self._read(table, Y, None if self.posterior_ is None else self.columns_)

    def fit(self, table: Any, Y: Any = None) -> Imputer:
        """Fits the model to everything that is observed of a table; arguments as in :meth:`read`.

        :raises ValueError: as :meth:`read`; for an output that is constant or never observed; for
            settings that are none.
        """
        user = self._read(table, Y)
        plan = self._plan(user.table.num_outputs)
        self.standardiser_, self.posterior_ = self._fit(plan, user, user.table, self.progress)
        self.plan_, self.table_ = plan, user
        self.columns_ = FittedColumns(user.centre, user.scale, user.kinds, user.constants)
        return self

    def predict_y(self, table: Any = None, Y: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of all cells in their units, observation noise included.

        :param table: other rows than those of ``fit``, of the same columns, as in :meth:`read`;
            their tasks are taken as new ones. None for the table of ``fit``.
        :raises RuntimeError: before ``fit``; after ``load``, without a table.
        """
        moments = self.predict_cells(table, Y)
        return moments.mean, moments.variance

    def predict_cells(self, table: Any = None, Y: Any = None) -> CellPredictions:
        """Moments and 90 % intervals [T, N, P] of all cells; arguments as in :meth:`predict_y`.

        Intervals are quantiles, which differ from a Gaussian's where a column is seen transformed.
        """
        user = self._table(table, Y)
        given = None if user is self.table_ else (user.table.X, user.table.Y)
        scale = self.standardiser_
        moments = fitting.predict_standardised(self._fitted(), scale, given)
        ends = (scale.inverse_quantile(*moments, probability) for probability in (0.05, 0.95))
        return CellPredictions(*scale.inverse_moments(*moments), *ends)

    def impute(self, table: Any = None, Y: Any = None) -> Any:
        """The table with its holes filled; arguments and errors as in :meth:`predict_y`.

        :return: the DataFrame, untouched but for the holes, with the columns ``<output>_sd``,
            ``<output>_lower`` and ``<output>_upper`` (a 90 % interval) for filled cells; of arrays,
            an :class:`~gpflow_bae.impute.Imputed`.
        """
        user = self._table(table, Y)
        return user.fill(*self.predict_cells(table, Y))

    def check(self, table: Any, Y: Any = None, *, fraction: float = 0.1) -> CheckResult:
        """How good the model is on hidden cells, beside what it has to beat, and a verdict.

        Hides a share of the observed cells, fits everything to the others, and leaves what was
        fitted before as it is.

        :param table, Y: as in :meth:`read`.
        :param fraction: share of the observed cells of each output, in (0, 1).
        :raises ValueError: as :meth:`fit`, or for a fraction that leaves an output without cells.
        """
        user = self._read(table, Y)
        plan = self._plan(user.table.num_outputs)
        hidden = hold_out(user.table, fraction, self.seed)
        standardiser, posterior = self._fit(plan, user, hidden, progress=False)
        moments = {plan.model: fitting.predict(posterior, standardiser, seed=self.seed)}
        for name, rival in _RIVALS.items():
            moments[name] = rival.fit_predict(hidden, seed=self.seed)
        deviation = np.nanstd(hidden.Y, axis=(0, 1))
        per_column: dict[str, dict[str, dict[str, float]]] = {}
        for name, (centre, variance) in moments.items():
            per_column[name] = {
                column: {
                    "rmse": found["rmse"] / unit,
                    "nll": found["nll"] - float(np.log(unit)),
                    "coverage_90": found["coverage_90"],
                }
                for (column, found), unit in zip(
                    scores.score_outputs(hidden, centre, variance).items(), deviation, strict=True
                )
            }
        summary = {
            name: {
                metric: float(np.mean([found[metric] for found in columns.values()]))
                for metric in ("rmse", "nll", "coverage_90")
            }
            for name, columns in per_column.items()
        }
        best = min(summary, key=lambda name: summary[name]["rmse"])
        return CheckResult(per_column, summary, f"The lowest error has {best}.", best)

    def score(self, table: Any, Y: Any = None, *, fraction: float = 0.1) -> Any:
        """The summary of :meth:`check`: a DataFrame, or for arrays a dictionary of dictionaries."""
        found = {
            name: dict(row) for name, row in self.check(table, Y, fraction=fraction).summary.items()
        }
        return type(table).from_dict(found, orient="index") if hasattr(table, "iloc") else found

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes the fit, without its table: ``fit.json`` and ``posterior.npz``.

        :raises RuntimeError: before ``fit``.
        """
        posterior = self._fitted()
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        engines = ("variational", "schedule", "sampler")
        inducing = posterior.model.latent_prior.inducing_variable.Z
        box = inducing.transform
        record = {
            "gpflow_bae": __version__,
            "arguments": self.get_params()
            | {"table_format": self.table_format and dataclasses.asdict(self.table_format)},
            "plan": {
                f.name: getattr(self.plan_, f.name)
                for f in dataclasses.fields(self.plan_)
                if f.name not in engines
            },
            "mean": self.standardiser_.mean.tolist(),
            "std": self.standardiser_.std.tolist(),
            "input_centre": self.columns_.centre.tolist(),
            "input_scale": self.columns_.scale.tolist(),
            "kinds": [kind.to_dict() for kind in self.columns_.kinds],
            "constants": dict(self.columns_.constants),
            "num_inducing": len(inducing.numpy()),
            # Sampled values are those on the real line: of which box they are has to be known.
            "inducing_box": [np.asarray(v).tolist() for v in (box.low, box.high)],
        }
        (folder / "fit.json").write_text(json.dumps(record, indent=1))
        _without_table(posterior).save(folder / "posterior.npz")

    @classmethod
    def load(cls, folder: str | pathlib.Path) -> Imputer:
        """What :meth:`save` wrote.

        :raises FileNotFoundError: if the folder holds no fit.
        :raises ValueError: for a damaged fit, or one of an earlier version.
        """
        folder = pathlib.Path(folder)
        record = saved_fits.read_record(folder)
        fields: dict[str, Any] = record["plan"]
        for name in ("encoder_widths", "decoder_widths"):
            fields[name] = tuple(fields[name])
        imputer = cls(**saved_fits.arguments(record))
        imputer.plan_ = Plan(**fields)
        imputer.columns_ = saved_fits.fitted_columns(record)
        imputer.standardiser_ = Standardiser(
            np.array(record["mean"]),
            np.array(record["std"]),
            transforms=tuple(kind.transform for kind in imputer.columns_.kinds),
        )
        X, Y = (np.zeros((1, 1, len(record[name]))) for name in ("input_centre", "mean"))
        low, high = np.array(record["inducing_box"])
        middle = np.tile((low + high) / 2.0, (record["num_inducing"], 1))
        model = build_model(imputer.plan_, MultiOutputTable(X, Y), uniform(middle, low, high))
        imputer.posterior_ = Posterior.load(folder / "posterior.npz", model)
        return imputer

    def _read(self, table: Any, Y: Any, fitted: FittedColumns | None = None) -> UserTable:
        if isinstance(table, UserTable):
            return table
        for name in ("outputs", "inputs"):
            if isinstance(getattr(self, name), str):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be a list of column names."
                )
        kinds: Any = self.kinds
        if kinds is None and (self.settings or {}).get("log_outputs"):
            kinds = "positive"
        if hasattr(table, "iloc"):
            from .frames import read_frame

            user = read_frame(
                table,
                self.outputs,
                self.time,
                self.inputs,
                self.task,
                kinds,
                fitted,
                self.table_format,
            )
            warn(user.notes)
            return user
        if Y is None:
            raise ValueError(
                f"table is a {type(table).__name__} and Y is missing; expected a pandas DataFrame, "
                "or arrays X and Y."
            )
        if self.time is not None or self.inputs or self.task is not None:
            raise ValueError("time, inputs and task name columns, which arrays do not have.")
        user = from_arrays(table, Y, tuple(self.outputs), kinds, fitted)
        warn(user.notes)
        return user

    def _table(self, table: Any, Y: Any) -> UserTable:
        self._fitted()
        if table is not None:
            return self.read(table, Y)
        if self.table_ is None:
            raise RuntimeError("A loaded Imputer does not have its table: pass it to this method.")
        return self.table_

    def _plan(self, num_outputs: int) -> Plan:
        if self.model not in MODELS:
            raise ValueError(f"model is {self.model!r}; expected one of {MODELS}.")
        return plan_for_table(
            self.model,
            num_outputs,
            self.latent_dim,
            self.num_inducing,
            self.epochs if self.num_steps is None else self.num_steps,
            **(self.settings or {}),
        )

    def _fit(
        self, plan: Plan, user: UserTable, table: MultiOutputTable, progress: bool
    ) -> tuple[Standardiser, Posterior]:
        standardiser = user.standardiser(table)
        return standardiser, fitting.fit(
            plan, table, standardiser, seed=self.seed, progress=progress
        )

    def _fitted(self) -> Posterior:
        if self.posterior_ is None:
            raise RuntimeError(
                "This Imputer has no fit yet: call fit(table), or Imputer.load(folder)."
            )
        return self.posterior_


def _without_table(posterior: Posterior) -> Posterior:
    """The posterior as other rows need it: the inducing inputs stand in the place of its table."""
    bank = dataclasses.replace(posterior.bank, latents=None, trace={})
    X = tf.convert_to_tensor(posterior.model.latent_prior.inducing_variable.Z)[None]
    Y = tf.zeros((1, X.shape[1], posterior.data.num_outputs))
    return Posterior(posterior.model, bank, Observations(X, Y, None))
