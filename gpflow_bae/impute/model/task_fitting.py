"""Fit a joint distribution of the cells of tasks, calibrated on tasks that it has not seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...posteriors import CoregionalisationPosterior
from .calibration import Trial, VarianceScales, calibrate
from .gaps import hide_gaps_if_any
from .plan import Plan
from .rows import fit_rows, predict_rows
from .tasks import StudentTasks, at_places, common_rows, places_of_rows

__all__ = ["CalibratedTasks", "fit_tasks"]

_STRENGTHS = (800.0, 200.0, 50.0, 12.0)  # of the prior around the GPs' covariance, in tasks
_ROUNDS = 3  # of EM with each of them
_GAUSSIAN = 1e6  # degrees of freedom
_KEPT = 0.75  # share of the tasks, the first ones, that predict the others
_HIDDEN = 0.1  # share of the cells of the others
_MASKS = 6  # different gaps in them
_CLEARLY = 0.95  # share of the error that is left where trusting the tasks more has helped
_LEVELS = (0.0, 0.03, 0.1)  # variances of the levels of columns in new tasks
_NEARLY = 1.02  # times the least error, which levels of a greater variance may have
_LEAST_GAPS = 40
_MOST_TASKS = 2000  # that are fitted, evenly spaced


@dataclasses.dataclass(frozen=True, eq=False)
class CalibratedTasks:
    """A distribution of the cells of tasks, with its weight beside the Gaussian of rows.

    * distribution: of residuals from the trend.
    * weight [P]: of ``distribution``, in [0, 1]; the Gaussian of rows has the rest.
    * variance_scales: by which 90 % intervals held nine of ten hidden cells of tasks that were not
      fitted.
    """

    distribution: StudentTasks
    weight: np.ndarray
    variance_scales: VarianceScales

    @check_shapes("Z: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
    def predict(self, table: MultiOutputTable, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of cells given those of their task, as they come.

        Cells of rows whose inputs the distribution does not know are NaN.

        :param Z: residuals from the trend; NaN where missing.
        """
        return _predict(self.distribution, table, Z)

    def to_arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Arrays by name, each with a prefix."""
        own = {"weight": self.weight}
        own |= {f"variance_scales.{k}": v for k, v in self.variance_scales._asdict().items()}
        return {
            f"{prefix}{name}": np.asarray(value)
            for name, value in (vars(self.distribution) | own).items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str) -> CalibratedTasks:
        """Read what :meth:`to_arrays` made."""
        names = [field.name for field in dataclasses.fields(StudentTasks)]
        inputs, mean, covariance, degrees = (arrays[f"{prefix}{name}"] for name in names)
        distribution = StudentTasks(inputs, mean, covariance, float(degrees))
        names = [f"{prefix}variance_scales.{name}" for name in VarianceScales._fields]
        scales = VarianceScales(*(arrays[name] for name in names))
        return cls(distribution, arrays[f"{prefix}weight"], scales)


@check_shapes("Z: [T, N, P]")
def fit_tasks(
    plan: Plan,
    table: MultiOutputTable,
    Z: np.ndarray,
    smooth: CoregionalisationPosterior,
    rng: np.random.Generator,
) -> tuple[CalibratedTasks, float] | None:
    """Fit the cells of tasks jointly, where that predicts later tasks better than the GPs do.

    EM starts at the distribution of the GPs and, step by step, trusts the tasks more, as long as
    that predicts the hidden cells of the last quarter of the tasks clearly better, fitted to the
    others. Columns of new tasks may also have levels that no task of the fit had, as sensors drift
    and seasons change; their variance is the greatest with which these cells are predicted nearly
    as well as they can be. New tasks differ more from all of these than the last quarter does, so
    a small gain there is none, and a small loss is one that is taken. Errors of the predictions
    also give the weight and the scale of variances.

    :param table: whose outputs are residuals from the trend.
    :param Z: standardised outputs, of which the error of column means is.
    :return: the fit, and its root mean squared error on hidden cells as a share of that of column
        means; None if tasks are too few or too different, or the GPs are as good.
    """
    if table.num_tasks > _MOST_TASKS:
        kept = np.linspace(0, table.num_tasks - 1, _MOST_TASKS).astype(int)
        table, Z = table.select(kept), Z[kept]
    inputs = common_rows(table)
    if inputs is None:
        return None
    first = int(_KEPT * table.num_tasks)
    early, late = table.select(range(first)), table.select(range(first, table.num_tasks))
    drawn = (hide_gaps_if_any(late, _HIDDEN, int(rng.integers(2**31))) for _ in range(_MASKS))
    hidden = [gaps for gaps in drawn if gaps is not None]
    if sum(gaps.num_gaps for gaps in hidden) < _LEAST_GAPS:
        return None

    def error(moments: Callable[[MultiOutputTable], tuple[np.ndarray, np.ndarray]]) -> float:
        tables = [gaps.table for gaps in hidden]
        missed = [np.abs(moments(own)[0] - late.Y)[own.test_mask] for own in tables]
        return float(np.mean(np.concatenate(missed)))

    def of_model(model: StudentTasks) -> float:
        return error(lambda own: _predict(model, own, own.Y))

    prior = _covariance(smooth, inputs)
    known = _at(inputs, early, early.Y)
    model = StudentTasks(inputs, np.zeros(len(prior)), prior, _GAUSSIAN)
    least, best = np.inf, (model, np.inf)
    for strength in _STRENGTHS:
        model = model.refit(known, prior, strength, _ROUNDS)
        found = of_model(model)
        if found >= _CLEARLY * least:
            break
        least, best = found, (model, strength)
    model, strength = best
    errors = np.array([of_model(model.with_levels(level)) for level in _LEVELS])
    level = max(np.array(_LEVELS)[errors <= _NEARLY * errors.min()], default=0.0)
    by_gps = error(lambda own: smooth.predict_cells(late.X, own.Y, late.lengths, own.test_mask))
    if not errors.min() < by_gps:
        return None
    model = model.with_levels(level)
    of_rows = fit_rows(plan, early, early.Y)
    trials = [
        Trial(
            gaps,
            _predict(model, gaps.table, gaps.table.Y),
            predict_rows(of_rows, plan, gaps.table, gaps.table.Y),
        )
        for gaps in hidden
    ]
    weight, scales, share = calibrate(trials, late.Y, Z[first:])
    model = best[0].refit(_at(inputs, table, table.Y), prior, strength, _ROUNDS)
    return CalibratedTasks(model.with_levels(level), weight, scales), share


def _covariance(smooth: CoregionalisationPosterior, inputs: np.ndarray) -> np.ndarray:
    """Covariance of all cells of rows with these inputs, noise included; the mean of all models."""
    P = smooth.models[0].num_outputs
    row, column = (i.ravel().astype(np.int32) for i in np.indices((len(inputs), P)))
    return np.mean([m.covariance(inputs, row, column).numpy() for m in smooth.models], axis=0)


def _at(inputs: np.ndarray, table: MultiOutputTable, Z: np.ndarray) -> np.ndarray:
    """Outputs [T, G, P] of the rows of a table that have these inputs."""
    return at_places(places_of_rows(inputs, table), Z, len(inputs))


def _predict(
    model: StudentTasks, table: MultiOutputTable, Z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Moments [T, N, P] of cells given those of their task; NaN in rows with other inputs."""
    places = places_of_rows(model.inputs, table)
    task, row = np.nonzero(places >= 0)
    mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
    for into, moment in zip(
        (mean, variance), model.predict(at_places(places, Z, len(model.inputs))), strict=True
    ):
        into[task, row] = moment[task, places[task, row]]
    return mean, variance
