"""Fit the models of a table, and calibrate their predictions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import gpflow
import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable
from ...inference import fit_coregionalisation
from ...inference.optimise.coregionalisation_fit import Start
from ...inference.runs.progress import shows_bars
from ...models import LinearCoregionalisation
from ...posteriors import CoregionalisationPosterior
from .calibration import Trial, calibrate, stacked
from .chances import Chances
from .gaps import MOST_TESTED, HiddenGaps, hide_gaps_if_any, with_outputs
from .plan import Plan
from .posterior import TablePosterior, features_of
from .rows import fit_rows, predict_rows
from .starts import alternatives, initial_model, noise_floor
from .task_fitting import fit_tasks
from .trend import fit_trend

__all__ = ["fit"]

_LEAST_GAPS = 20  # with fewer hidden gaps, calibration is on gaps in what the fit has seen
_FITS_OF_SMALL = 3  # fits of a small table, whose predictions are averaged
_HIDDEN = 0.1  # share of the cells, from each of several fits
_EXAMPLES = 0.15  # share of the cells that the fit has to predict
_MASKS = 4  # different gaps that a calibration sees of a table


@check_shapes("table.X: [T, N, D]", "Z: [T, N, P]", "times: [T, N]")
def fit(
    plan: Plan,
    table: MultiOutputTable,
    Z: np.ndarray,
    times: np.ndarray | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    start: TablePosterior | None = None,
    rates: np.ndarray | None = None,
) -> TablePosterior:
    """Fit the model to the observed cells of a table, and calibrate it on gaps of its shape.

    :param Z: standardised outputs of the table; NaN where missing.
    :param times: datetime64 of the rows, if the plan has periods.
    :param seed: of the choice of blocks and gaps; equal seeds give equal fits.
    :param start: a fit of nearly the same table, from which a quarter of the steps is enough.
    :param rates: shares of ones [P] of columns of zeros and ones, NaN for others; None for no such
        column.
    """
    rng = np.random.default_rng([seed, 0xC0])
    bars = progress and shows_bars()
    rows = table.rows
    features = features_of(times, plan.periods, Z.shape[:2])
    coefficients = fit_trend(features, plan.periods, table, Z, seed)
    trend = features @ coefficients
    residual = Z - trend
    shown = with_outputs(table, residual)
    chances = Chances(np.full(Z.shape[-1], np.nan) if rates is None else rates)
    of_fit, num_fits = plan.fit, plan.num_fits or 1
    if table.X.shape[-1] == 0:  # the Gaussian of rows stands alone
        num_fits = 0
    elif np.count_nonzero(table.observed) <= 2 * of_fit.cells_per_block:  # all of them are in a fit
        num_fits = plan.num_fits or _FITS_OF_SMALL
        of_fit = dataclasses.replace(
            of_fit, cells_per_fit_block=(3 * of_fit.cells_per_fit_block) // 2
        )
    models: list[LinearCoregionalisation] = []
    trials: list[Trial] = []
    for k in range(num_fits):
        # Each of several fits is calibrated on gaps of its own; a single one needs enough of them.
        fraction = plan.calibration if num_fits == 1 else max(plan.calibration, _HIDDEN)
        fraction = fraction if plan.calibration > 0.0 else 0.0
        hidden = _gaps(shown, fraction, rng, _LEAST_GAPS if num_fits == 1 else 1)
        seen = shown if hidden is None else hidden.table
        candidates: list[Start]
        if start is None or start.smooth is None:
            own_seed = int(rng.integers(2**31)) if k else seed
            model = initial_model(
                table.X[rows], seen.Y[rows], plan, own_seed, noise_floor(seen, plan)
            )
            candidates, own = alternatives(model), of_fit
        else:
            models_of_start = start.smooth.models
            model = gpflow.utilities.deepcopy(models_of_start[k % len(models_of_start)])
            candidates = [()]
            own = dataclasses.replace(of_fit, num_steps=-(-of_fit.num_steps // 4))
        fit_coregionalisation(
            model,
            seen,
            own,
            seed=rng,
            progress=progress,
            starts=candidates,
            hide=functools.partial(_example, seen),
        )
        models.append(model)
        if hidden is not None:
            trials.append(_trial(plan, [model], hidden, bars))
    if not trials and plan.calibration > 0.0:
        drawn = [_gaps(shown, _HIDDEN, rng, 1) for _ in range(_MASKS)]
        trials = [_trial(plan, models[:1], gaps, bars) for gaps in drawn if gaps is not None]
    weight, scales, error = calibrate(trials, residual, Z)
    weight = weight if models else np.zeros(len(weight))
    # Chances are of variances that are not scaled.
    scales.factors[chances.columns] = 1.0
    moments = []
    for trial in trials:
        mean, variance = stacked(weight, trial.smooth, trial.of_rows)
        moments.append((mean + trend, variance))
    chances = chances.fit(
        [(*pair, Z, trial.mask) for pair, trial in zip(moments, trials, strict=True)]
    )
    hidden_gaps = tuple(
        (trial.gaps.of_outputs(Z), chances.moments(mean, scales.apply(variance)), trial.of_rows[1])
        for trial, (mean, variance) in zip(trials, moments, strict=True)
    )
    of_rows = fit_rows(plan, table, residual)
    smooth, of_tasks = None, None
    if models:
        smooth = CoregionalisationPosterior(tuple(models), plan.fit.cells_per_block, progress=bars)
        jointly = fit_tasks(plan, shown, Z, smooth, rng) if plan.calibration > 0.0 else None
        if jointly is not None:
            of_tasks, error = jointly
            of_tasks.variance_scales.factors[chances.columns] = 1.0
    return TablePosterior(
        plan,
        smooth,
        of_rows,
        weight,
        coefficients,
        scales,
        chances,
        error,
        of_tasks,
        hidden_gaps,
    )


def _trial(
    plan: Plan, models: Sequence[LinearCoregionalisation], gaps: HiddenGaps, progress: bool
) -> Trial:
    """Predictions of hidden gaps by models and by the Gaussian of rows, fitted without them.

    Without models both are those of the Gaussian of rows.
    """
    table = gaps.table
    of_rows = predict_rows(fit_rows(plan, table, table.Y), plan, table, table.Y)
    if not models:
        return Trial(gaps, of_rows, of_rows)
    smooth = CoregionalisationPosterior(tuple(models), plan.fit.cells_per_block, progress=progress)
    moments = smooth.predict_cells(table.X, table.Y, table.lengths, table.test_mask)
    return Trial(gaps, moments, of_rows)


def _gaps(
    table: MultiOutputTable, fraction: float, rng: np.random.Generator, least: int
) -> HiddenGaps | None:
    """Gaps in a table; None for a fraction of 0, or where fewer than ``least`` gaps have room."""
    if fraction == 0.0:
        return None
    found = hide_gaps_if_any(table, fraction, int(rng.integers(2**31)), most_cells=MOST_TESTED)
    return None if found is None or found.num_gaps < least else found


def _example(table: MultiOutputTable, seed: int) -> MultiOutputTable | None:
    """The table with further gaps, as an example that the fit has to predict."""
    found = hide_gaps_if_any(table, _EXAMPLES, seed)
    return None if found is None else found.table
