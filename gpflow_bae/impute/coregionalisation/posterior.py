"""What is kept of a fit: models, calibrated, that predict the cells of any table."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...posteriors.archive import read_archive, write_archive
from ...tracing import compiled
from .blocks import BlockSizes, block_at, blocks_of_table
from .calendar import calendar_features
from .calibration import stacked
from .model import LinearCoregionalisation
from .plan import CoregionalisationPlan
from .rows import GaussianRows
from .starts import initial_model
from .training import SIGNATURE, in_threads

__all__ = [
    "CoregionalisationPosterior",
    "blank_model",
    "features_of",
    "inputs_of_rows",
    "predict_cells",
    "predict_rows",
]

_ARRAYS = ("weight", "coefficients", "variance_scale")


@dataclasses.dataclass(eq=False)
class CoregionalisationPosterior:
    """Fitted models: what they need to predict the cells of any table of the same columns.

    A hole is predicted by a mixture: of the models, so that where they disagree the table is taken
    as uncertain, and of a Gaussian of single rows, with a weight by how well each did on gaps that
    it had not seen (stacking: Wolpert 1992; Breiman 1996).

    * models: at least one.
    * of_rows: the Gaussian of single rows, of residuals from the trend.
    * weight: of the models, in [0, 1]; that of the Gaussian of rows is the rest.
    * coefficients [F + 1, P]: of the constant and the calendar's features, shared by all rows.
    * variance_scale [P]: what variances are multiplied by, so that 90 % intervals held nine of ten
      cells of gaps that the fit did not see.
    * gap_error: root mean squared error on those gaps, as a share of that of column means; NaN
      where there was nothing to hide.
    """

    plan: CoregionalisationPlan
    models: tuple[LinearCoregionalisation, ...]
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
        smooth = predict_cells(self.models, self.plan, table, Z - trend, where)
        alone = predict_rows(self.of_rows, self.plan, table, Z - trend)
        # Of an observed cell its own row says all, and nothing of another measurement of it.
        weight = np.where(np.isnan(Z), self.weight, 1.0)
        mean, variance = stacked(weight, smooth, alone)
        return mean + trend, variance * self.variance_scale

    def save(self, path: pathlib.Path) -> None:
        """One file of arrays."""
        arrays = {
            f"models[{i}]{name}": np.asarray(parameter.numpy())
            for i, model in enumerate(self.models)
            for name, parameter in gpflow.utilities.parameter_dict(model).items()
        }
        arrays |= {name: np.asarray(getattr(self, name)) for name in _ARRAYS}
        arrays |= {f"of_rows.{name}": value for name, value in vars(self.of_rows).items()}
        write_archive(path, {"kind": "coregionalisation"}, arrays)

    @classmethod
    def load(cls, path: pathlib.Path, plan: CoregionalisationPlan) -> CoregionalisationPosterior:
        """What :meth:`save` wrote.

        :raises ValueError: for a damaged file, or one of another plan.
        """
        header, arrays = read_archive(path)
        if header.get("kind") != "coregionalisation":
            raise ValueError(f"{path} is not of the model 'lmc'.")
        if "of_rows.mean" not in arrays:
            raise ValueError(f"{path} was written by an earlier version: fit the table again.")
        rows = GaussianRows(arrays["of_rows.mean"], arrays["of_rows.covariance"])
        weight, coefficients, scale = (arrays[name] for name in _ARRAYS)
        models: list[LinearCoregionalisation] = []
        while f"models[{len(models)}].decoder" in arrays:
            prefix = f"models[{len(models)}]"
            values = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            width = np.size(values[".kernels[0].lengthscales"])
            box = np.stack([np.zeros(width), np.ones(width)])
            models.append(blank_model(box, np.zeros((2, coefficients.shape[1])), plan, 0))
            gpflow.utilities.multiple_assign(models[-1], values)
        return cls(plan, tuple(models), rows, float(weight), coefficients, scale)


def blank_model(
    X: np.ndarray, Z: np.ndarray, plan: CoregionalisationPlan, seed: int
) -> LinearCoregionalisation:
    """The model of a plan before its fit, see :func:`.starts.initial_model`."""
    return initial_model(
        X, Z, plan.latent_dim, plan.deviation, seed, step=plan.step, period=plan.day
    )


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
    rows: GaussianRows, plan: CoregionalisationPlan, table: MultiOutputTable, Z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What each row's other cells tell: moments [T, N, P], without the trend; NaN in padding."""
    mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
    real = table.rows
    mean[real], variance[real] = rows.predict(inputs_of_rows(plan, table), Z[real])
    return mean, variance


def inputs_of_rows(plan: CoregionalisationPlan, table: MultiOutputTable) -> np.ndarray:
    """Inputs of all rows but time, of which a row's outputs are no linear function."""
    return table.X[table.rows][:, int(plan.step is not None) :]


def predict_cells(
    models: Sequence[LinearCoregionalisation],
    plan: CoregionalisationPlan,
    table: MultiOutputTable,
    Z: np.ndarray,
    where: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the cells in ``where``, without the trend; NaN elsewhere."""
    found = [_predict(model, plan, table, Z, where) for model in models]
    means, variances = (np.stack(part) for part in zip(*found, strict=True))
    return means.mean(0), variances.mean(0) + means.var(0)


def _predict(
    model: LinearCoregionalisation,
    plan: CoregionalisationPlan,
    table: MultiOutputTable,
    Z: np.ndarray,
    where: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    mean, variance = np.full(Z.shape, np.nan), np.full(Z.shape, np.nan)
    predict = compiled(model.predict, input_signature=SIGNATURE)
    places = blocks_of_table(table, Z, plan.cells_per_block)
    for t in np.flatnonzero(np.isnan(Z).all((1, 2))):  # tasks with nothing to go by
        length = int(table.lengths[t])
        places.append((int(t), np.arange(length), BlockSizes(length, 0, 1)))

    def of_block(*place: Any) -> None:
        t = place[0]
        if where[t, place[1]].any():
            block, targets = block_at(table, Z, place, where)  # type: ignore[arg-type]
            moments = predict(*block)
            for array, moment in zip((mean, variance), moments, strict=True):
                array[t, targets[:, 0], targets[:, 1]] = moment.numpy()

    in_threads(of_block, places)
    return mean, variance
