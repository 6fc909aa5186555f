"""A table's models from start to calibrated predictions."""

from __future__ import annotations

import dataclasses

import gpflow
import numpy as np
from check_shapes import check_shapes

from ...arguments import spread
from ...data import MultiOutputTable
from ..gaps import HiddenGaps, hide_gaps
from .blocks import block_at, blocks_of_table
from .calibration import Trial, calibrate
from .model import Block, LinearCoregionalisation
from .plan import CoregionalisationPlan
from .posterior import (
    CoregionalisationPosterior,
    blank_model,
    features_of,
    inputs_of_rows,
    predict_cells,
    predict_rows,
)
from .rows import GaussianRows
from .starts import alternatives
from .training import Start, maximise

__all__ = ["fit"]

_RIDGE = 3.0  # pseudo-observations of zero for each calendar feature
_FREE = 0.03  # and for the line of a task, which is as good as free
_LEAST_GAPS = 20  # with fewer to spare, calibration is on gaps in what the fit has seen
_FITS_OF_SMALL = 3  # that are averaged
_HIDDEN = 0.1  # share of the cells, from each of several fits
_MASKS = 4  # different gaps that a fit, or a calibration, sees of a table


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
    features = features_of(times, plan.periods, Z.shape[:2])
    coefficients = _ridge(features, table, Z)
    residual = Z - features @ coefficients
    num_fits = plan.num_fits or (_FITS_OF_SMALL if _is_small(plan, table) else 1)
    models: list[LinearCoregionalisation] = []
    trials: list[Trial] = []
    for k in range(num_fits):
        # Each of several fits is calibrated on gaps of its own; a single one needs enough of them.
        fraction = plan.calibration if num_fits == 1 else max(plan.calibration, _HIDDEN)
        fraction = fraction if plan.calibration > 0.0 else 0.0
        hidden = _gaps(table, residual, fraction, rng, _LEAST_GAPS if num_fits == 1 else 1)
        seen = residual if hidden is None else hidden.table.Y
        candidates: list[Start]
        if start is None:
            own_seed = int(rng.integers(2**31)) if k else seed
            model = blank_model(table.X[rows], seen[rows], plan, own_seed)
            candidates, num_steps = alternatives(model), plan.num_steps
        else:
            model = gpflow.utilities.deepcopy(start.models[k % len(start.models)])
            candidates, num_steps = [()], -(-plan.num_steps // 4)
        blocks = _density_blocks(plan, table, seen, rng)
        examples = _examples(plan, table, seen, rng)
        maximise(model, blocks, examples, num_steps, progress, candidates)
        models.append(model)
        if hidden is not None:
            trials.append(_trial(plan, model, hidden))
    if not trials and plan.calibration > 0.0:
        drawn = [_gaps(table, residual, _HIDDEN, rng, 1) for _ in range(_MASKS)]
        trials = [_trial(plan, models[0], gaps) for gaps in drawn if gaps is not None]
    weight, scale, error = calibrate(trials, residual, Z)
    of_rows = GaussianRows.fit(inputs_of_rows(plan, table), residual[rows])
    return CoregionalisationPosterior(
        plan, tuple(models), of_rows, weight, coefficients, scale, error
    )


def _trial(plan: CoregionalisationPlan, model: LinearCoregionalisation, gaps: HiddenGaps) -> Trial:
    """What a model, and rows alone, make of hidden cells, of which neither has seen any."""
    table = gaps.table
    of_rows = GaussianRows.fit(inputs_of_rows(plan, table), table.Y[table.rows])
    return Trial(
        gaps,
        predict_cells([model], plan, table, table.Y, table.test_mask),
        predict_rows(of_rows, plan, table, table.Y),
    )


def _ridge(features: np.ndarray, table: MultiOutputTable, Z: np.ndarray) -> np.ndarray:
    """Coefficients [F + 1, P] by least squares on what is observed; periodic ones shrink.

    A column that rises steadily has an end apart from its beginning, and a regression on periods
    alone would give them a share of that, several steps high, wherever they stop within a cycle. So
    beside them each task has a line along the first input, which is not kept: it belongs to the
    model of what goes slowly.

    :param features: of all rows [T, N, F + 1], the constant first.
    """
    count = features.shape[-1]
    penalty = np.full(count, _RIDGE)
    penalty[0] = 1e-9
    squares = np.tile(np.diag(penalty), (Z.shape[-1], 1, 1))
    products = np.zeros((Z.shape[-1], count))
    for t, length in enumerate(table.lengths):
        x = table.X[t, :length, 0]
        line = ((x - x.mean()) / spread(x, axis=0))[:, None]
        for p, z in enumerate(Z[t, :length].T):
            shown = ~np.isnan(z)
            A, y = features[t, :length][shown], z[shown]
            left = A
            if count > 1:
                b = line[shown]
                left = A - b @ (b.T @ A) / (np.sum(b * b) + _FREE)
            squares[p] += left.T @ A
            products[p] += left.T @ y
    return np.linalg.solve(squares, products[..., None])[..., 0].T


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
    small = _is_small(plan, table)
    return (3 * plan.cells_per_fit_block) // 2 if small else plan.cells_per_fit_block


def _is_small(plan: CoregionalisationPlan, table: MultiOutputTable) -> bool:
    """Whether a table has hardly more observed cells than a block, so that all are in a fit."""
    return int(np.count_nonzero(table.observed)) <= 2 * plan.cells_per_block


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
