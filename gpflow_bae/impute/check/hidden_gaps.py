"""Score a model and simpler methods on hidden gaps that are shaped like a table's own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from tqdm.auto import tqdm

from ...core.arguments import spread
from ...data import MultiOutputTable, Standardiser
from ..baselines import gp_fitting, independent_gps, iterative_imputer, linear_interpolation, mean
from ..model import calendar_features, visible_periods
from ..model.fitted import Fit
from ..model.gaps import HiddenGaps, hide_gaps, with_outputs
from ..reading.columns import ColumnKind
from ..reading.user_table import UserTable
from .result import CheckResult
from .verdict import GapErrors, decide

__all__ = ["NAME", "calendar_of", "check"]

#: Name of the model in reports.
NAME = "coregionalised GPs"

_SHARE_OF_TIME = 0.2  # of the model's seconds, for independent GPs
_LEAST_SECONDS = 3.0
_PATIENCE = 60.0  # seconds that IterativeImputer may take, or as many as the model
_QUICK = gp_fitting.FitSettings(
    num_restarts=1, max_iterations=60, max_points=1000, num_inducing=128, max_training_points=2000
)

_Moments: TypeAlias = tuple[np.ndarray, np.ndarray]


def check(
    user: UserTable,
    fit: Callable[[MultiOutputTable], Fit],
    fraction: float,
    seed: int,
    progress: bool,
) -> tuple[CheckResult, Fit]:
    """Hide gaps, fit the model and simpler methods to the remaining cells, and score them.

    All methods see outputs transformed as the kinds of the columns say.

    :param fit: a function that fits the model to ``user.table`` with cells hidden.
    :param fraction: share of the observed cells to hide.
    :param seed: seed of the choice of gaps, and of the simpler methods.
    :return: the scores, and the fit of the model.
    """
    gaps = hide_gaps(user.table, fraction, seed)
    mask = gaps.table.test_mask
    scale = user.standardiser(gaps.table)
    # All methods predict standardised outputs.
    seen = with_outputs(gaps.table, scale.transform(gaps.table.Y))
    moments: dict[str, _Moments] = {}
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    fitted = fit(gaps.table)
    notes = [f"Hidden: {gaps.describe()}."]
    with tqdm(total=5, desc="check", disable=not progress, leave=False) as bar:

        def run(name: str, method: Callable[[], _Moments], began: float | None = None) -> None:
            bar.set_description(f"check: {name}")
            began = time.perf_counter() if began is None else began
            moments[name] = method()
            seconds[name] = time.perf_counter() - began
            bar.update()

        run(NAME, lambda: fitted.predict(user, gaps.table, mask), started)
        features, patience = calendar_of(user), max(_PATIENCE, seconds[NAME])
        limit = max(_LEAST_SECONDS, _SHARE_OF_TIME * seconds[NAME])
        if user.inputs:
            notes.append(f"Independent GPs had {limit:.0f} s to fit.")
        shortened = ""
        try:
            rounds = iterative_imputer.affordable(seen, patience, features=features)
            if rounds:
                run(
                    "IterativeImputer",
                    lambda: iterative_imputer.fit_predict(
                        seen, seed, features=features, rounds=rounds
                    ),
                )
            if len(rounds) < len(iterative_imputer.ROUNDS):
                done = f"tried with at most {rounds[-1]} rounds" if rounds else "left out"
                more = f"because more takes above {patience:.0f} s."
                shortened = f" IterativeImputer was {done}, {more}"
        except ImportError:
            notes.append("IterativeImputer was left out: pip install scikit-learn.")
        columns = np.flatnonzero(mask.any((0, 1))).tolist()
        quick = dataclasses.replace(_QUICK, max_seconds=limit / len(columns))
        if user.inputs:
            run(
                "independent GPs",
                lambda: independent_gps.fit_predict(seen, seed, settings=quick, columns=columns),
            )
            run("linear interpolation", lambda: linear_interpolation.fit_predict(seen, seed))
        run("column means", lambda: mean.fit_predict(seen, seed))
    result = _scored(gaps, user.columns.kinds, scale, moments, seconds, seed)
    verdict = result.verdict + shortened
    return dataclasses.replace(result, hidden=" ".join(notes), verdict=verdict), fitted


def calendar_of(user: UserTable) -> np.ndarray | None:
    """Sines and cosines [T, N, F] of the hour, weekday and season; None without dates."""
    if user.calendar is None:
        return None
    periods = visible_periods(user.calendar, user.interval)
    return calendar_features(user.calendar, periods, harmonics=1)


def _scored(
    gaps: HiddenGaps,
    kinds: Sequence[ColumnKind],
    scale: Standardiser,
    moments: dict[str, _Moments],
    seconds: dict[str, float],
    seed: int,
) -> CheckResult:
    """Scores by column in standard deviations of its observed cells, and the verdict."""
    table, mask = gaps.table, gaps.table.test_mask
    tested = np.flatnonzero(mask.any((0, 1)))
    names = [table.output_names[p] for p in tested]
    units = spread(table.Y, axis=(0, 1))
    per_column: dict[str, dict[str, dict[str, float]]] = {}
    errors: dict[str, GapErrors] = {}
    for name, (found_mean, found_variance) in moments.items():
        # Predictions may be NaN where nothing was hidden.
        centre = np.where(mask, found_mean, 0.0)
        variance = np.where(mask, found_variance, 1.0)
        cells = [
            *scale.inverse_moments(centre, variance),
            *(scale.inverse_quantile(centre, variance, q) for q in (0.05, 0.95)),
        ]
        # Scores are of the values and interval ends that would be filled in.
        settled = [kind.settle(*(c[..., p] for c in cells)) for p, kind in enumerate(kinds)]
        predicted, _, low, high = (np.stack(part, -1) for part in zip(*settled, strict=True))
        density = scale.log_density(np.where(mask, table.truth, np.nan), centre, variance)
        squares = np.square((predicted - table.truth) / units)
        inside = (table.truth >= low) & (table.truth <= high)
        per_column[name] = {
            column: {
                "rmse": float(np.sqrt(squares[..., p][mask[..., p]].mean())),
                "nll": float(-density[..., p][mask[..., p]].mean() - np.log(units[p])),
                "coverage_90": float(inside[..., p][mask[..., p]].mean()),
            }
            for column, p in zip(names, tested, strict=True)
        }
        errors[name] = _by_gap(gaps, squares, tested)
    summary = {
        name: {
            metric: float(np.mean([found[metric] for found in columns.values()]))
            for metric in ("rmse", "nll", "coverage_90")
        }
        for name, columns in per_column.items()
    }
    model = next(iter(moments))
    verdict = decide(errors, names, summary[model]["coverage_90"], seed)
    return CheckResult(
        per_column,
        summary,
        verdict.words,
        best=verdict.best,
        num_hidden=gaps.num_cells,
        seconds=seconds,
    )


def _by_gap(gaps: HiddenGaps, squares: np.ndarray, tested: np.ndarray) -> GapErrors:
    shape = (gaps.num_gaps, len(tested))
    total, counts = np.zeros(shape), np.zeros(shape)
    for i, p in enumerate(tested):
        own = gaps.gap[..., p] >= 0
        number = gaps.gap[..., p][own]
        total[:, i] = np.bincount(number, squares[..., p][own], minlength=shape[0])
        counts[:, i] = np.bincount(number, minlength=shape[0])
    return GapErrors(total, counts)
