"""A fit of a table: how its columns are read, the scale that the model sees, and the methods."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.files import digest
from ...core.output_transforms import Log
from ...core.scales import spread
from ...data import MultiOutputTable, Standardiser
from ...posteriors.coregionalisation import KIND, read_arrays
from ...posteriors.stored.archive import write_archive
from .. import saved_fits
from ..baselines.chains import Chain
from ..baselines.methods import CHAINED, SIMPLE, Context, Simple, fit_simple, read_simple
from ..method_names import AUTO, GP, METHODS, names_for
from ..reading.columns import FittedColumns
from ..reading.kinds.logarithms import BEYOND, near_the_range
from ..reading.user_table import CellPredictions, UserTable
from .calendar import PERIODS, calendar_features, visible_periods
from .calibration import VarianceScales
from .choice import Choice, compare, settled
from .fitting import fit
from .gaps import MOST_TESTED, HiddenGaps, hide_gaps_if_any, with_outputs
from .plan import Plan
from .posterior import TablePosterior
from .rows import GaussianRows, fit_rows, predict_rows

__all__ = ["Fit", "context_of", "fit_table", "make_plan"]

_HIDDEN, _MASKS = 0.1, 3  # gaps by which simple methods are compared where there are no GPs
_MOST_CHANNELS = 20
_USELESS = 0.97  # of the error of column means


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """The fitted methods of a table.

    * columns: how the columns of tables are read.
    * standardiser: the scale of the outputs that the methods see.
    * plan: settings.
    * posterior: the GPs' model of standardised outputs, given scaled inputs; None without them.
    * limits [2, P]: least and largest standardised value in the fit.
    * choice: the method of each output.
    * simple: the simple methods that are among these, by name.
    * of_rows: the Gaussian of rows, which has the variances of chained regressions; None without.
    * table: the digest of the whole table, cells that a check hid included; "" if loaded.
    """

    columns: FittedColumns
    standardiser: Standardiser
    plan: Plan
    posterior: TablePosterior | None
    limits: np.ndarray
    choice: Choice
    simple: Mapping[str, Simple] = dataclasses.field(default_factory=dict)
    of_rows: GaussianRows | None = None
    table: str = ""

    def predict(
        self,
        user: UserTable,
        table: MultiOutputTable | None = None,
        where: np.ndarray | None = None,
        methods: Sequence[str] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of standardised outputs, noise included.

        They are kept near what was observed, in the fit and in this table, see :func:`_bounded`.

        :param table: ``user.table`` with further cells hidden; ``user.table`` itself if None.
        :param where: cells to predict, Booleans [T, N, P]; others may be NaN. All if None.
        :param methods: a method for each output; those of the choice if None.
        """
        table = user.table if table is None else table
        methods = self.choice.methods if methods is None else methods
        Z = self.standardiser.transform(table.Y)
        where = np.ones(Z.shape, dtype=bool) if where is None else where
        mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
        for name in dict.fromkeys(methods):
            own = np.array([name == method for method in methods])
            if name == GP:
                assert self.posterior is not None
                found = self.posterior.predict(table, Z, user.calendar, where & own)
            else:
                found = self._simply(name, user, table, Z, where & own)
            mean, variance = (
                np.where(own, new, old) for new, old in zip(found, (mean, variance), strict=True)
            )
        seen = _limits(Z)
        limits = np.stack([np.fmin(self.limits[0], seen[0]), np.fmax(self.limits[1], seen[1])])
        return _bounded(self.standardiser, limits, mean, variance)

    def _simply(
        self, name: str, user: UserTable, table: MultiOutputTable, Z: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments [T, N, P] by a simple method.

        Where chained regressions do not know what a row misses, they are those of the model.

        :param where: cells to predict, Booleans [T, N, P].
        """
        method, scales = self.simple[name], self.choice.scales[name]
        shown = with_outputs(table, Z)
        mean, variance = method.predict(shown, context_of(user, self.plan).features)
        if not isinstance(method, Chain):
            return mean, scales.apply(variance)
        assert self.of_rows is not None
        of_rows = predict_rows(self.of_rows, self.plan, table, Z)
        strange = where & ~method.knows(shown)
        moments = mean, scales.apply(of_rows[1])
        if not strange.any():
            return moments
        model = of_rows
        if self.posterior is not None:
            model = self.posterior.predict(table, Z, user.calendar, strange)
        mean, variance = (np.where(strange, *pair) for pair in zip(model, moments, strict=True))
        return mean, variance

    def with_simple(self, name: str, user: UserTable, table: MultiOutputTable) -> Fit:
        """This fit with a simple method that was compared."""
        if name in self.simple:
            return self
        shown = with_outputs(table, self.standardiser.transform(table.Y))
        context = context_of(user, self.plan)
        found = fit_simple(name, self.choice.setups.get(name, ()), shown, context)
        of_rows = self.of_rows
        if name in CHAINED and of_rows is None:
            known = self.posterior
            of_rows = fit_rows(self.plan, shown, shown.Y) if known is None else known.of_rows
        return dataclasses.replace(self, simple={**self.simple, name: found}, of_rows=of_rows)

    def predict_cells(self, user: UserTable, where: np.ndarray | None = None) -> CellPredictions:
        """The same in the units of the outputs, with the ends of 90 % intervals."""
        scale, moments = self.standardiser, self.predict(user, where=where)
        ends = (scale.inverse_quantile(*moments, probability) for probability in (0.05, 0.95))
        return CellPredictions(*scale.inverse_moments(*moments), *ends)

    def warnings(self) -> tuple[str, ...]:
        """Warnings about the fit for the user, in sentences."""
        error = np.nan if self.posterior is None else self.posterior.gap_error
        methods, errors = self.choice.methods, self.choice.errors
        if "mean" in errors and {*methods} <= {*errors}:
            own = sum(errors[name].squares[:, p].sum() for p, name in enumerate(methods))
            error = np.sqrt(own / errors["mean"].squares.sum())
        if not error > _USELESS:
            return ()
        return (
            "On gaps like this table's own the fit is no better than column means (its error is "
            f"{error:.0%} of theirs): do not rely on filled values. Name more inputs, or "
            "add columns that go together with these.",
        )

    def describe(self) -> dict[str, str]:
        """The method of each output, in words, by its name."""
        words = names_for(np.size(self.columns.centre))
        pairs = zip(self.columns.kinds, self.choice.methods, strict=True)
        return {kind.name: words[method] for kind, method in pairs}

    def save(self, folder: str | pathlib.Path, arguments: Mapping[str, Any]) -> None:
        """Write the folder of the fit.

        :param arguments: of the Imputer's constructor.
        """
        more = {
            "mean": self.standardiser.mean,
            "std": self.standardiser.std,
            "plan": self.plan.to_dict(),
            "limits": self.limits,
            "methods": self.choice.methods,
            "variance_scales": {name: self.choice.scales[name]._asdict() for name in self.simple},
        }
        arrays = {} if self.posterior is None else self.posterior.to_arrays()
        if self.of_rows is not None:
            arrays |= {f"rows.{name}": value for name, value in vars(self.of_rows).items()}
        for name, method in self.simple.items():
            arrays |= {f"simple.{name}.{key}": v for key, v in method.to_arrays().items()}

        def write(path: pathlib.Path) -> None:
            write_archive(path, {"kind": KIND}, arrays)

        saved_fits.write(folder, write, arguments, self.columns, more)

    @classmethod
    def load(cls, folder: pathlib.Path, record: Mapping[str, Any]) -> Fit:
        """Read what :meth:`save` wrote.

        :param record: what ``fit.json`` in the folder holds.
        """
        columns, plan = saved_fits.fitted_columns(record), Plan.from_dict(record["plan"])
        arrays, _ = read_arrays(folder / saved_fits.POSTERIOR)
        methods = tuple(record["methods"])
        simple: dict[str, Simple] = {}
        for name in set(methods) - {GP}:
            prefix = f"simple.{name}."
            own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            simple[name] = read_simple(name, own)
        of_rows = None
        if {*methods} & {*CHAINED}:
            of_rows = GaussianRows(arrays["rows.mean"], arrays["rows.covariance"])
        scales = {
            name: VarianceScales(**{k: np.array(v) for k, v in scale.items()})
            for name, scale in record["variance_scales"].items()
        }
        return cls(
            columns,
            Standardiser(
                np.array(record["mean"]),
                np.array(record["std"]),
                transforms=tuple(kind.transform for kind in columns.kinds),
            ),
            plan,
            TablePosterior.from_arrays(arrays, plan) if "weight" in arrays else None,
            np.array(record["limits"]),
            Choice(methods, scales=scales),
            simple,
            of_rows,
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
    visible = visible_periods(user.calendar, interval)
    periods = tuple(settings.get("periods", visible))
    if periods and user.calendar is None:
        raise ValueError(
            f"periods is {list(periods)}, and the time of this table is no date: leave it out."
        )
    found: dict[str, Any] = {
        "latent_dim": min(user.table.num_outputs, _MOST_CHANNELS),
        "periods": periods,
    }
    if has_time and np.isfinite(interval):
        found["step"] = interval / unit
    if "hour" in visible and "hour" in periods:
        found["day"] = PERIODS["hour"][0] / unit
    given = {"latent_dim": latent_dim, "num_steps": num_steps, **settings}
    for name in ("latent_dim", "num_steps"):
        if given[name] is None:
            del given[name]
    given.pop("log_outputs", None)  # a setting of the columns
    return Plan.from_dict(found | given)


def context_of(user: UserTable, plan: Plan) -> Context:
    """What simple methods know of a table."""
    features = None
    if user.calendar is not None and plan.periods:
        features = calendar_features(user.calendar, plan.periods, harmonics=1)
    hours = plan.day is not None and "hour" in plan.periods
    return Context(features, plan.day if hours else None, plan.step if hours else None)


def fit_table(
    plan: Plan,
    user: UserTable,
    table: MultiOutputTable,
    start: Fit | None = None,
    *,
    method: str = AUTO,
    compared: bool = False,
    seed: int,
    progress: bool,
) -> Fit:
    """Fit the methods of a plan to the observed cells of a table.

    :param table: ``user.table``, perhaps with cells hidden.
    :param start: a fit of the same table with cells hidden, which saves steps, and whose methods
        are taken.
    :param method: the name of a method for all columns, or ``"auto"`` for the one that predicts the
        hidden gaps of a column best.
    :param compared: whether all methods are compared whatever ``method`` is.
    :raises ValueError: for a start that is a fit of another table, or a method that cannot fill
        this one.
    """
    of = digest(user.table.X, user.table.Y, user.table.lengths)
    if start is not None and getattr(start, "table", None) != of:
        raise ValueError(
            "start is no fit of this table: pass checked_ of the Imputer whose check had the same "
            "table, or leave it out."
        )
    standardiser = user.standardiser(table)
    Z = standardiser.transform(table.Y)
    limits, context = _limits(Z), context_of(user, plan)
    num_outputs = len(user.columns.kinds)
    choice = None
    if start is not None and (method in (AUTO, GP) or method in start.choice.scales):
        methods = start.choice.methods if method == AUTO else (method,) * num_outputs
        choice = dataclasses.replace(start.choice, methods=methods)
    elif method == GP and not compared:
        choice = Choice((GP,) * num_outputs)
    posterior = None
    hidden: list[HiddenGaps] = []
    of_gps: list[tuple[np.ndarray, np.ndarray]] | None = None
    of_rows: list[np.ndarray] = []
    if method in (AUTO, GP) and (choice is None or GP in choice.methods):
        begin = start.posterior if start is not None and start.plan == plan else None
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
        hidden = [gaps for gaps, _, _ in posterior.hidden]
        of_gps = [moments for _, moments, _ in posterior.hidden]
        of_rows = [variance for _, _, variance in posterior.hidden]
        posterior = dataclasses.replace(posterior, hidden=())
    if choice is None:
        if not hidden:
            shown = with_outputs(table, Z)
            drawn = (
                hide_gaps_if_any(shown, _HIDDEN, seed + k, most_cells=MOST_TESTED)
                for k in range(_MASKS)
            )
            hidden = [gaps for gaps in drawn if gaps is not None]
        names = SIMPLE if method == AUTO or compared else (method,)
        in_units = settled(standardiser, user.columns.kinds, spread(table.Y, axis=(0, 1)))
        choice = Choice((GP,) * num_outputs)
        jointly = posterior is not None and posterior.of_tasks is not None
        if hidden and (of_gps or posterior is None) and (compared or not jointly):
            choice = compare(
                hidden,
                of_gps,
                lambda: of_rows or [_variances(plan, gaps.table) for gaps in hidden],
                Z,
                context,
                lambda *z: in_units(*_bounded(standardiser, limits, *z)),
                names,
            )
        if method != AUTO:
            choice = dataclasses.replace(choice, methods=(method,) * num_outputs)
        elif jointly:  # the GPs' errors are not those of the tasks' distribution, which are lower
            choice = dataclasses.replace(choice, methods=(GP,) * num_outputs, errors={})
    found = Fit(user.columns, standardiser, plan, posterior, limits, choice, table=of)
    return _with_its_methods(found, user, table, method)


def _variances(plan: Plan, table: MultiOutputTable) -> np.ndarray:
    """Variances [T, N, P] of cells by the Gaussian of the rows of a table."""
    return predict_rows(fit_rows(plan, table, table.Y), plan, table, table.Y)[1]


def _with_its_methods(found: Fit, user: UserTable, table: MultiOutputTable, method: str) -> Fit:
    """The fit with the simple methods of its choice, without those that were not compared.

    :raises ValueError: if ``method``, the name of a method for all columns, is one of these.
    """
    while left := set(found.choice.methods) - {GP} - set(found.simple):
        name = min(left)
        if name in found.choice.scales:
            found = found.with_simple(name, user, table)
            continue
        if method != AUTO:
            raise ValueError(
                f"method={name!r}: {METHODS[name]} cannot fill this table. 'iterative' and 'trees' "
                "need scikit-learn (pip install scikit-learn), a second column, and no more than "
                "some hundreds of columns; 'hour' needs dates with several rows in a day; all need "
                "observed cells that can be hidden."
            )
        absent = {name} if found.posterior is not None else {name, GP}
        found = dataclasses.replace(found, choice=found.choice.without(absent))
    return found


def _limits(Z: np.ndarray) -> np.ndarray:
    """Least and largest value [2, P] of outputs [T, N, P]; infinite where there is none."""
    low = np.fmin.reduce(Z, (0, 1), initial=np.inf)
    high = np.fmax.reduce(Z, (0, 1), initial=-np.inf)
    return np.array([low, high])


def _bounded(
    standardiser: Standardiser, limits: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [T, N, P] whose means are kept near the observed range.

    The square of the correction is added to the variance.

    :param limits [2, P]: the range.
    """
    logged = np.array([isinstance(t, Log) for t in standardiser.transforms])
    kept = near_the_range(mean, limits, 1.0, logged)
    return kept, variance + np.square(np.minimum(np.abs(mean - kept), 2.0 * BEYOND))
