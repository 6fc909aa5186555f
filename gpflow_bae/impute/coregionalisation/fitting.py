"""A table's model from start to calibrated predictions, and what is kept of it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import gpflow
import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...posteriors.archive import read_archive, write_archive
from ...tracing import compiled
from ..gaps import HiddenGaps, hide_gaps
from .blocks import BlockSizes, block_at, blocks_of_table
from .calendar import calendar_features
from .model import Block, LinearCoregionalisation
from .starts import alternatives, initial_model
from .training import SIGNATURE, Start, in_threads, maximise

__all__ = ["CoregionalisationPlan", "CoregionalisationPosterior", "fit", "plan_of_table"]

_MOST_CHANNELS = 10
_INTERVAL = 1.6448536269514722
_RIDGE = 3.0  # pseudo-observations of zero for each calendar feature
_TRUST = 10.0  # gaps of a column from which its own calibration weighs as much as everybody's
_LEAST_GAPS = 20  # with fewer to spare, calibration is on gaps in what the fit has seen
_MASKS = 8  # different gaps that a fit, or a calibration, sees of a table


@dataclasses.dataclass(frozen=True)
class CoregionalisationPlan:
    """Everything that decides the outcome of a fit, but the table and the seed.

    * latent_dim: channels, at most one for each output.
    * periods: of the calendar, by name; see :data:`.calendar.PERIODS`.
    * step: distance of rows along the first input if that is time, in its units.
    * day: length of a day in those units, for a kernel of daily cycles; None for none.
    * deviation: prior standard deviation of what tells the decoders of different time scales apart.
    * num_steps: of L-BFGS.
    * cells_per_fit_block, cells_in_fit: observed cells of a block, and of all blocks, that
      hyperparameters are fitted to; a block has all cells of a task that has not many more than
      ``cells_per_block``.
    * cells_per_block: observed cells that a prediction is given.
    * calibration: share of the observed cells that the fit does not see, for calibration.
    """

    latent_dim: int = 1
    periods: tuple[str, ...] = ()
    step: float | None = None
    day: float | None = None
    deviation: float = 0.0
    num_steps: int = 40
    cells_per_fit_block: int = 350
    cells_in_fit: int = 10_000
    cells_per_block: int = 900
    calibration: float = 0.06
    model: str = "lmc"

    def __post_init__(self) -> None:
        for name in ("latent_dim", "num_steps", "cells_per_fit_block", "cells_per_block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if not 0.0 <= self.calibration < 0.5:
            raise ValueError(f"calibration is {self.calibration}; it must lie in [0, 0.5).")


def plan_of_table(
    num_outputs: int,
    latent_dim: int | None = None,
    num_steps: int | None = None,
    **changes: Any,
) -> CoregionalisationPlan:
    """The settings for a table: a channel for each output, of at most ten.

    :param num_steps: of L-BFGS; 40 if None.
    :param changes: fields of :class:`CoregionalisationPlan`.
    :raises ValueError: for a field that there is not, or a value out of its range.
    """
    known = {field.name for field in dataclasses.fields(CoregionalisationPlan)}
    if unknown := sorted(set(changes) - known):
        raise ValueError(f"The model 'lmc' has no setting {unknown}; it has {sorted(known)}.")
    if latent_dim is None:
        latent_dim = min(num_outputs, _MOST_CHANNELS)
    settings = {"latent_dim": latent_dim} | ({} if num_steps is None else {"num_steps": num_steps})
    return CoregionalisationPlan(**(settings | changes))


@dataclasses.dataclass(eq=False)
class CoregionalisationPosterior:
    """A fitted model: what it needs to predict the cells of any table of the same columns.

    * coefficients [F + 1, P]: of the constant and the calendar's features, shared by all rows.
    * variance_scale [P]: what variances are multiplied by, so that 90 % intervals held nine of ten
      cells of gaps that the fit did not see.
    * gap_error: root mean squared error on those gaps, as a share of that of column means; NaN
      where there was nothing to hide.
    """

    plan: CoregionalisationPlan
    model: LinearCoregionalisation
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
        trend = _features(times, self.plan.periods, Z.shape[:2]) @ self.coefficients
        where = np.ones(Z.shape, dtype=bool) if where is None else where
        where = where & table.rows[..., None]
        mean, variance = _predict(self.model, self.plan, table, Z - trend, where)
        return mean + trend, variance * self.variance_scale

    def save(self, path: pathlib.Path) -> None:
        """One file of arrays."""
        parameters = gpflow.utilities.parameter_dict(self.model)
        arrays = {f"model{name}": np.asarray(p.numpy()) for name, p in parameters.items()}
        arrays |= {"coefficients": self.coefficients, "variance_scale": self.variance_scale}
        write_archive(path, {"kind": "coregionalisation"}, arrays)

    @classmethod
    def load(cls, path: pathlib.Path, plan: CoregionalisationPlan) -> CoregionalisationPosterior:
        """What :meth:`save` wrote.

        :raises ValueError: for a damaged file, or one of another plan.
        """
        header, arrays = read_archive(path)
        if header.get("kind") != "coregionalisation":
            raise ValueError(f"{path} is not of the model 'lmc'.")
        coefficients, scale = arrays.pop("coefficients"), arrays.pop("variance_scale")
        values = {name.removeprefix("model"): value for name, value in arrays.items()}
        width = np.size(values[".kernels[0].lengthscales"])
        box = np.stack([np.zeros(width), np.ones(width)])
        blank = np.zeros((2, coefficients.shape[1]))
        model = _initial(box, blank, plan, 0)
        gpflow.utilities.multiple_assign(model, values)
        return cls(plan, model, coefficients, scale)


@check_shapes("table.X: [T, N, D]", "Z: [T, N, P]", "times: [T, N]")
def fit(
    plan: CoregionalisationPlan,
    table: MultiOutputTable,
    Z: np.ndarray,
    times: np.ndarray | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    start: CoregionalisationPosterior | None = None,
) -> CoregionalisationPosterior:
    """Fits the model to what is observed of a table, and calibrates it on gaps of its shape.

    :param Z: its standardised outputs; NaN where missing.
    :param times: datetime64 of the rows, if the plan has periods.
    :param seed: of the choice of blocks and gaps; equal seeds give equal fits.
    :param start: of nearly the same table, from which a quarter of the steps is enough.
    """
    rng = np.random.default_rng([seed, 0xC0])
    rows = table.rows
    features = _features(times, plan.periods, Z.shape[:2])
    coefficients = _ridge(features[rows], Z[rows])
    residual = Z - features @ coefficients
    calibration = _gaps(table, residual, plan.calibration, rng, _LEAST_GAPS)
    seen = residual if calibration is None else calibration.table.Y
    candidates: list[Start]
    if start is None:
        model, num_steps = _initial(table.X[rows], seen[rows], plan, seed), plan.num_steps
        candidates = alternatives(model)
    else:
        model, num_steps = gpflow.utilities.deepcopy(start.model), -(-plan.num_steps // 4)
        candidates = [()]
    blocks, examples = _density_blocks(plan, table, seen, rng), _examples(plan, table, seen, rng)
    maximise(model, blocks, examples, num_steps, progress, candidates)
    trials = [calibration] if calibration is not None else []
    if not trials and plan.calibration > 0.0:
        drawn = [_gaps(table, residual, 0.1, rng, 1) for _ in range(_MASKS)]
        trials = [gaps for gaps in drawn if gaps is not None]
    ratios, missed, spread = [], 0.0, 0.0
    for trial in trials:
        mask = trial.table.test_mask
        mean, variance = _predict(model, plan, table, trial.table.Y, mask)
        ratios.append(np.abs(residual - mean) / np.sqrt(variance))
        missed += float(np.sum(np.square(residual - mean)[mask]))
        spread += float(np.sum(np.square(Z)[mask]))
    scale = _variance_scale(trials, ratios) if trials else np.ones(Z.shape[-1])
    error = np.sqrt(missed / spread) if spread > 0.0 else np.nan
    return CoregionalisationPosterior(plan, model, coefficients, scale, error)


def _initial(
    X: np.ndarray, Z: np.ndarray, plan: CoregionalisationPlan, seed: int
) -> LinearCoregionalisation:
    return initial_model(
        X, Z, plan.latent_dim, plan.deviation, seed, step=plan.step, period=plan.day
    )


def _features(
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


def _ridge(features: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Coefficients [F + 1, P] by least squares on what is observed; periodic ones shrink."""
    penalty = np.full(features.shape[1], _RIDGE)
    penalty[0] = 1e-9
    found = []
    for z in Z.T:
        shown = ~np.isnan(z)
        A = features[shown]
        found.append(np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ z[shown]))
    return np.stack(found, axis=-1)


def _gaps(
    table: MultiOutputTable, Z: np.ndarray, fraction: float, rng: np.random.Generator, least: int
) -> HiddenGaps | None:
    """Gaps in a table of these values; None where so many would hide much more than that."""
    if fraction == 0.0:
        return None
    shown = dataclasses.replace(table, Y=Z, truth=Z, test_mask=np.zeros(Z.shape, bool))
    try:
        found = hide_gaps(shown, fraction, int(rng.integers(2**31)), least_gaps=1)
    except ValueError:
        return None
    return found if found.num_gaps >= least else None


def _fit_cells(plan: CoregionalisationPlan, table: MultiOutputTable) -> int:
    """Observed cells of a block that is fitted to: large ones, where there are few cells in all."""
    small = np.count_nonzero(table.observed) <= 2 * plan.cells_per_block
    return (3 * plan.cells_per_fit_block) // 2 if small else plan.cells_per_fit_block


def _density_blocks(
    plan: CoregionalisationPlan, table: MultiOutputTable, Z: np.ndarray, rng: np.random.Generator
) -> list[Block]:
    places = blocks_of_table(table, Z, _fit_cells(plan, table))
    found: list[Block] = []
    for i in rng.permutation(len(places)):
        if sum(len(block.value) for block in found) >= plan.cells_in_fit // 2:
            break
        found.append(block_at(table, Z, places[i], None)[0])
    return found


def _examples(
    plan: CoregionalisationPlan, table: MultiOutputTable, Z: np.ndarray, rng: np.random.Generator
) -> list[tuple[Block, np.ndarray]]:
    """Blocks with cells hidden as the table's own holes are, until there are enough of them."""
    found: list[tuple[Block, np.ndarray]] = []
    cells = 0
    for _ in range(_MASKS):
        gaps = _gaps(table, Z, 0.15, rng, 1)
        if gaps is None or cells >= plan.cells_in_fit:
            break
        hidden, mask = gaps.table.Y, gaps.table.test_mask
        places = blocks_of_table(table, hidden, _fit_cells(plan, table))
        for i in rng.permutation(len(places)):
            if cells >= plan.cells_in_fit:
                break
            block, targets = block_at(table, hidden, places[i], mask)
            if len(targets):
                found.append((block, Z[places[i][0], targets[:, 0], targets[:, 1]]))
                cells += len(block.value)
    return found


def _predict(
    model: LinearCoregionalisation,
    plan: CoregionalisationPlan,
    table: MultiOutputTable,
    Z: np.ndarray,
    where: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the cells in ``where``, without the trend; NaN elsewhere."""
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


def _variance_scale(trials: list[HiddenGaps], ratios: list[np.ndarray]) -> np.ndarray:
    """What variances [P] have to be multiplied by for 90 % intervals to hold nine of ten cells.

    A column with few gaps is calibrated as all columns together are.

    :param ratios: errors of each trial in standard deviations.
    """

    def scale(values: list[np.ndarray]) -> float:
        return 2.0 * float(np.log(np.quantile(np.concatenate(values), 0.9) / _INTERVAL + 1e-12))

    masks = [trial.table.test_mask for trial in trials]
    everybody = scale([r[mask] for r, mask in zip(ratios, masks, strict=True)])
    found = []
    for p in range(masks[0].shape[-1]):
        own = [mask[..., p] for mask in masks]
        count = sum(len(np.unique(g.gap[..., p][o])) for g, o in zip(trials, own, strict=True))
        weight = count / (count + _TRUST)
        part = scale([r[..., p][o] for r, o in zip(ratios, own, strict=True)]) if count else 0.0
        found.append(np.exp(weight * part + (1.0 - weight) * everybody))
    return np.clip(found, 0.25, 16.0)
