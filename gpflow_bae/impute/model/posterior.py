"""The posterior of a table: GPs, or a distribution of tasks, stacked with a Gaussian of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...models import LinearCoregionalisation
from ...posteriors import CoregionalisationPosterior
from ...posteriors.coregionalisation import models_of
from .calendar import calendar_features
from .calibration import VarianceScales, stacked
from .chances import Chances
from .gaps import HiddenGaps
from .plan import Plan
from .rows import GaussianRows, predict_rows
from .starts import LEAST_NOISE, initial_model
from .task_fitting import CalibratedTasks

__all__ = ["TablePosterior", "features_of"]

_ARRAYS = ("weight", "coefficients")


@dataclasses.dataclass(eq=False)
class TablePosterior:
    """Predicts the cells of any table with the same columns.

    The prediction of a missing cell is a mixture of GPs, whose disagreement adds to the variance,
    and of a Gaussian of single rows. Their weights follow from the errors of each on hidden gaps
    (stacking: Wolpert 1992; Breiman 1996).

    * smooth: the GPs, of the residuals from the trend; None where rows have no inputs. An observed
      cell is then its own prediction, without variance.
    * of_rows: the Gaussian of single rows, of residuals from the trend.
    * weight [P]: of the GPs in each output, in [0, 1]; the Gaussian of rows has the rest.
    * coefficients [F + 1, P]: of the trend: the constant and the calendar's features.
    * variance_scales: by which 90 % intervals held nine of ten cells of hidden gaps.
    * gap_error: root mean squared error on hidden gaps, as a share of that of column means; NaN
      where there was nothing to hide.
    * chances: of columns of zeros and ones.
    * of_tasks: a distribution of all cells of a task, which takes the place of the GPs for missing
      cells of rows that it knows; None where tasks have no rows in common.
    * hidden: the hidden gaps of the calibration, in standardised outputs, the moments [T, N, P] of
      their cells, and their variances [T, N, P] by the Gaussian of rows; not saved.
    """

    plan: Plan
    smooth: CoregionalisationPosterior | None
    of_rows: GaussianRows
    weight: np.ndarray
    coefficients: np.ndarray
    variance_scales: VarianceScales
    chances: Chances
    gap_error: float = np.nan
    of_tasks: CalibratedTasks | None = None
    hidden: tuple[tuple[HiddenGaps, tuple[np.ndarray, np.ndarray], np.ndarray], ...] = ()

    @check_shapes("table.X: [T, N, D]", "Z: [T, N, P]", "where: [T, N, P]", "times: [T, N]")
    def predict(
        self,
        table: MultiOutputTable,
        Z: np.ndarray,
        times: np.ndarray | None = None,
        where: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of standardised outputs, noise included.

        :param table: the table; only its inputs and lengths are used.
        :param Z: standardised outputs of the table; NaN where missing.
        :param times: datetime64 of the rows, if the plan has periods.
        :param where: cells to predict, NaN elsewhere; all cells but padding if None.
        """
        trend = self.trend(times, Z.shape[:2])
        where = np.ones(Z.shape, dtype=bool) if where is None else where
        where = where & table.rows[..., None]
        residual = Z - trend
        alone = predict_rows(self.of_rows, self.plan, table, residual)
        if self.smooth is None:
            mean, variance = (np.where(where, moment, np.nan) for moment in alone)
            return self.chances.moments(mean + trend, self.variance_scales.apply(variance))
        jointly = np.full((2, *Z.shape), np.nan)
        if self.of_tasks is not None:
            found = stacked(self.of_tasks.weight, self.of_tasks.predict(table, residual), alone)
            known = where & np.isnan(Z) & np.isfinite(found[0])
            jointly[0][known] = (found[0] + trend)[known]
            jointly[1][known] = self.of_tasks.variance_scales.apply(found[1])[known]
        left = where & np.isnan(jointly[0])
        smooth = self.smooth.predict_cells(table.X, residual, table.lengths, left)
        # The Gaussian of rows returns an observed cell itself, and no prediction of a repetition.
        weight = np.where(np.isnan(Z), self.weight, 1.0)
        mean, variance = stacked(weight, smooth, alone)
        moments = mean + trend, self.variance_scales.apply(variance)
        mean, variance = (np.where(left, *pair) for pair in zip(moments, jointly, strict=True))
        return self.chances.moments(mean, variance)

    def trend(self, times: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
        """Trend [T, N, P] of standardised outputs.

        :param times: datetime64 of the rows, if the plan has periods.
        :param shape: numbers of tasks and rows.
        """
        return features_of(times, self.plan.periods, shape) @ self.coefficients

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name, as :meth:`from_arrays` takes them."""
        arrays = {} if self.smooth is None else self.smooth.to_arrays()
        arrays |= {name: np.asarray(getattr(self, name)) for name in _ARRAYS}
        arrays |= {f"variance_scales.{k}": v for k, v in self.variance_scales._asdict().items()}
        arrays |= {f"of_rows.{name}": value for name, value in vars(self.of_rows).items()}
        arrays |= {f"chances.{name}": np.asarray(v) for name, v in vars(self.chances).items()}
        if self.of_tasks is not None:
            arrays |= self.of_tasks.to_arrays("of_tasks.")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], plan: Plan) -> TablePosterior:
        """Read what :meth:`to_arrays` made.

        :raises ValueError: for arrays of another plan.
        """
        rows = GaussianRows(arrays["of_rows.mean"], arrays["of_rows.covariance"])
        weight, coefficients = (arrays[name] for name in _ARRAYS)
        scales = VarianceScales(*(arrays[f"variance_scales.{k}"] for k in VarianceScales._fields))

        def build(values: Mapping[str, np.ndarray]) -> LinearCoregionalisation:
            width = np.size(values[".kernels[0].lengthscales"])
            box = np.stack([np.zeros(width), np.ones(width)])
            return initial_model(
                box, np.zeros((2, coefficients.shape[1])), plan, 0, 0.5 * LEAST_NOISE
            )

        models = models_of(arrays, build)
        smooth = CoregionalisationPosterior(models, plan.fit.cells_per_block) if models else None
        chances = Chances(arrays["chances.rates"], float(arrays["chances.sharpness"]))
        of_tasks = None
        if "of_tasks.mean" in arrays:
            of_tasks = CalibratedTasks.from_arrays(arrays, "of_tasks.")
        return cls(plan, smooth, rows, weight, coefficients, scales, chances, of_tasks=of_tasks)


def features_of(
    times: np.ndarray | None, periods: tuple[str, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """Features [T, N, F + 1] of the trend: a one, and the calendar's."""
    if not periods:
        return np.ones((*shape, 1))
    if times is None:
        raise ValueError(
            f"The fit knows the calendar's {', '.join(periods)}; this table's time has no dates."
        )
    return np.concatenate([np.ones((*shape, 1)), calendar_features(times, periods)], axis=-1)
