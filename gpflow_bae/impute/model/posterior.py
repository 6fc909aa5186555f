"""What is kept of a fit of a table: models and a Gaussian of rows, calibrated."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...models import LinearCoregionalisation
from ...posteriors import CoregionalisationPosterior
from ...posteriors.coregionalisation import KIND, models_of, read_arrays
from ...posteriors.stored.archive import write_archive
from .calendar import calendar_features
from .calibration import stacked
from .plan import Plan
from .rows import GaussianRows
from .starts import LEAST_NOISE, initial_model

__all__ = ["TablePosterior", "features_of", "inputs_of_rows", "predict_rows"]

_ARRAYS = ("weight", "coefficients", "variance_scale")


@dataclasses.dataclass(eq=False)
class TablePosterior:
    """What predicts the cells of any table of the same columns.

    A hole is predicted by a mixture: of the models, so that where they disagree the table is taken
    as uncertain, and of a Gaussian of single rows, with a weight by how well each did on gaps that
    it had not seen (stacking: Wolpert 1992; Breiman 1996).

    * smooth: the models, of the residuals from the trend.
    * of_rows: the Gaussian of single rows, of residuals from the trend.
    * weight: of the models, in [0, 1]; that of the Gaussian of rows is the rest.
    * coefficients [F + 1, P]: of the constant and the calendar's features, shared by all rows.
    * variance_scale [P]: what variances are multiplied by, so that 90 % intervals held nine of ten
      cells of gaps that the fit did not see.
    * gap_error: root mean squared error on those gaps, as a share of that of column means; NaN
      where there was nothing to hide.
    """

    plan: Plan
    smooth: CoregionalisationPosterior
    of_rows: GaussianRows
    weight: float
    coefficients: np.ndarray
    variance_scale: np.ndarray
    gap_error: float = np.nan

    @check_shapes("table.X: [T, N, D]", "Z: [T, N, P]", "where: [T, N, P]", "times: [T, N]")
    def predict(
        self,
        table: MultiOutputTable,
        Z: np.ndarray,
        times: np.ndarray | None = None,
        where: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [T, N, P] of standardised outputs, noise included.

        :param table: whose inputs and lengths are looked at.
        :param Z: its standardised outputs; NaN where missing.
        :param times: datetime64 of the rows, if the plan has periods.
        :param where: cells to predict, NaN elsewhere; all cells but padding if None.
        """
        trend = features_of(times, self.plan.periods, Z.shape[:2]) @ self.coefficients
        where = np.ones(Z.shape, dtype=bool) if where is None else where
        where = where & table.rows[..., None]
        smooth = self.smooth.predict_cells(table.X, Z - trend, table.lengths, where)
        alone = predict_rows(self.of_rows, self.plan, table, Z - trend)
        # Of an observed cell its own row says all, and nothing of another measurement of it.
        weight = np.where(np.isnan(Z), self.weight, 1.0)
        mean, variance = stacked(weight, smooth, alone)
        return mean + trend, variance * self.variance_scale

    def save(self, path: pathlib.Path) -> None:
        """One file of arrays."""
        arrays = self.smooth.to_arrays()
        arrays |= {name: np.asarray(getattr(self, name)) for name in _ARRAYS}
        arrays |= {f"of_rows.{name}": value for name, value in vars(self.of_rows).items()}
        write_archive(path, {"kind": KIND}, arrays)

    @classmethod
    def load(cls, path: pathlib.Path, plan: Plan) -> TablePosterior:
        """What :meth:`save` wrote.

        :raises ValueError: for a damaged file, or one of another plan.
        """
        arrays, _ = read_arrays(path)
        if "of_rows.mean" not in arrays:
            raise ValueError(f"{path} was written by an earlier version: fit the table again.")
        rows = GaussianRows(arrays["of_rows.mean"], arrays["of_rows.covariance"])
        weight, coefficients, scale = (arrays[name] for name in _ARRAYS)

        def build(values: Mapping[str, np.ndarray]) -> LinearCoregionalisation:
            width = np.size(values[".kernels[0].lengthscales"])
            box = np.stack([np.zeros(width), np.ones(width)])
            return initial_model(
                box, np.zeros((2, coefficients.shape[1])), plan, 0, 0.5 * LEAST_NOISE
            )

        smooth = CoregionalisationPosterior(models_of(arrays, build), plan.fit.cells_per_block)
        return cls(plan, smooth, rows, float(weight), coefficients, scale)


def features_of(
    times: np.ndarray | None, periods: tuple[str, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """A one, and the calendar's features: [T, N, F + 1]."""
    if not periods:
        return np.ones((*shape, 1))
    if times is None:
        raise ValueError(
            f"The fit knows the calendar's {', '.join(periods)}; this table's time has no dates."
        )
    return np.concatenate([np.ones((*shape, 1)), calendar_features(times, periods)], axis=-1)


def predict_rows(
    rows: GaussianRows, plan: Plan, table: MultiOutputTable, Z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What each row's other cells tell: moments [T, N, P], without the trend; NaN in padding."""
    mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
    real = table.rows
    mean[real], variance[real] = rows.predict(inputs_of_rows(plan, table), Z[real])
    return mean, variance


def inputs_of_rows(plan: Plan, table: MultiOutputTable) -> np.ndarray:
    """Inputs of all rows but time, of which a row's outputs are no linear function."""
    return table.X[table.rows][:, int(plan.step is not None) :]
