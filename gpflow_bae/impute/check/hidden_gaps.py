"""Score what is filled in and single methods on hidden gaps shaped like a table's own."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from tqdm.auto import tqdm

from ...core.scales import spread
from ...data import MultiOutputTable, Standardiser
from ...inference.runs.progress import shows_bars
from ..baselines.methods import CHAINED, SIMPLE
from ..method_names import AUTO, GP, names_for
from ..model.choice import GapErrors, by_gap
from ..model.fitted import Fit
from ..model.gaps import MOST_TESTED, HiddenGaps, hide_gaps
from ..reading.indicators import groups
from ..reading.kinds.column_kind import ColumnKind
from ..reading.kinds.limits import doubtful_values
from ..reading.user_table import UserTable
from .result import CheckResult
from .verdict import decide

__all__ = ["check"]

_Moments: TypeAlias = tuple[np.ndarray, np.ndarray]


def check(
    user: UserTable,
    fit: Callable[[MultiOutputTable], Fit],
    fraction: float,
    seed: int,
    progress: bool,
    method: str = AUTO,
) -> tuple[CheckResult, Fit]:
    """Hide gaps, fit all methods to the remaining cells, and score them.

    All methods see outputs transformed as the kinds of the columns say. The methods of the fit were
    compared on other gaps, in what this check leaves. With ``method="auto"`` those of the fit that
    is returned are chosen by both.

    :param fit: a function that fits and compares methods on ``user.table`` with cells hidden.
    :param fraction: share of the observed cells to hide, at most 40,000 cells.
    :param seed: seed of the choice of gaps.
    :param method: ``"auto"``, or the name of the method that fills.
    :return: the scores, and the fit.
    """
    gaps = hide_gaps(user.table, fraction, seed, evenly=True, most_cells=MOST_TESTED)
    mask = gaps.table.test_mask
    scale = user.standardiser(gaps.table)
    kinds = user.columns.kinds
    words = names_for(gaps.table.X.shape[-1])
    moments: dict[str, _Moments] = {}
    seconds: dict[str, float] = {}
    notes = [f"Hidden: {gaps.describe()}."]
    late = []
    unseen = not (progress and shows_bars())
    with tqdm(total=len(SIMPLE) + 1, desc="check", disable=unseen, leave=False) as bar:
        bar.set_description(f"check: {method}")
        began = time.perf_counter()
        fitted = fit(gaps.table)
        of_fit = time.perf_counter() - began
        bar.update()
        for name in (GP, *SIMPLE):
            bar.set_description(f"check: {words[name]}")
            began = time.perf_counter()
            if name == GP:
                whole = fitted if fitted.posterior is not None else None
            else:
                known = name in fitted.choice.scales
                whole = fitted.with_simple(name, user, gaps.table) if known else None
                late += [words[name]] if whole is None and name in CHAINED else []
            if whole is not None:
                methods = (name,) * len(kinds)
                moments[words[name]] = whole.predict(user, gaps.table, mask, methods)
                seconds[words[name]] = time.perf_counter() - began
            bar.update()
    by_column = [words[name] for name in fitted.choice.methods]
    first = AUTO if method == AUTO else words[method]
    mixed = [
        np.stack([moments[name][k][..., p] for p, name in enumerate(by_column)], -1) for k in (0, 1)
    ]
    moments = {first: (mixed[0], mixed[1])} | moments
    seconds[first] = of_fit + sum(seconds[name] for name in set(by_column))
    if late:
        notes.append(
            f"{' and '.join(late)} took no part: the table is too large for "
            "regressions of each column on all others, or scikit-learn is not installed."
        )
    scores, errors = _scored(gaps, kinds, scale, moments)
    if method == AUTO:
        choice = fitted.choice.with_more(
            {name: errors[label] for name, label in words.items() if label in errors}
        )
        fitted = dataclasses.replace(fitted, choice=choice)
    result = _judged(gaps, scores, errors, seed, fitted.describe(), chosen=method == AUTO)
    verdict = " ".join([result.verdict, *_inflated(user)])
    hidden = " ".join(notes)
    return dataclasses.replace(result, verdict=verdict, hidden=hidden, seconds=seconds), fitted


def _inflated(user: UserTable) -> list[str]:
    """Sentences on columns whose standard deviation, the unit of errors, says little."""
    return [
        f"Column {name!r} holds {', '.join(f'{v:g}' for v in doubtful)}, far from all its other "
        "values, which makes its standard deviation large and errors in it look small: settle that "
        "first."
        for name, column in zip(user.outputs, user.Y.T, strict=True)
        if (doubtful := doubtful_values(column))
    ]


def _scored(
    gaps: HiddenGaps,
    kinds: Sequence[ColumnKind],
    scale: Standardiser,
    moments: Mapping[str, _Moments],
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, GapErrors]]:
    """Scores of each method by column, in standard deviations of its observed cells, and errors."""
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
            }
            for column, p in zip(names, tested, strict=True)
        }
        for column, p in zip(names, tested, strict=True):
            if kinds[p].kind != "binary":  # whose intervals mostly hold all there is, 0 and 1
                share = float(inside[..., p][mask[..., p]].mean())
                per_column[name][column]["coverage_90"] = share
        errors[name] = by_gap(gaps, squares)
    return per_column, errors


def _judged(
    gaps: HiddenGaps,
    per_column: Mapping[str, Mapping[str, Mapping[str, float]]],
    errors: Mapping[str, GapErrors],
    seed: int,
    filled_by: Mapping[str, str],
    *,
    chosen: bool,
) -> CheckResult:
    """The result: averages over columns, and the verdict."""
    summary: dict[str, dict[str, float]] = {}
    first = next(iter(errors))
    tested = np.flatnonzero(gaps.table.test_mask.any((0, 1)))
    of_columns = [gaps.table.output_names[p] for p in tested]
    together = groups(of_columns)
    variances = np.square(spread(gaps.table.Y, axis=(0, 1)))[tested]
    for name, columns in per_column.items():
        parts = [
            _of_category([columns[of_columns[k]] for k in own], variances[own]) for own in together
        ]
        summary[name] = {
            metric: float(np.mean([scores[metric] for scores in parts if metric in scores]))
            for metric in dict.fromkeys(itertools.chain(*parts))
        }
    # A category counts as one column: the squared error of all its probabilities.
    shares = np.zeros((len(tested), len(together)))
    for g, own in enumerate(together):
        shares[own, g] = variances[own] / variances[own].sum()
    firsts = tested[[own[0] for own in together]]
    of_tested = {
        n: GapErrors(e.squares[:, tested] @ shares, e.counts[:, firsts]) for n, e in errors.items()
    }
    names = [getattr(of_columns[own[0]], "column", of_columns[own[0]]) for own in together]
    coverage = summary[first].get("coverage_90")
    verdict = decide(of_tested, names, coverage, seed, filled_by if chosen else None)
    return CheckResult(
        per_column,
        summary,
        verdict.words,
        best=verdict.best,
        expected_error=(verdict.error, *verdict.ends),
        filled_by=filled_by,
        num_hidden=gaps.num_cells,
    )


def _of_category(columns: Sequence[Mapping[str, float]], variances: np.ndarray) -> dict[str, float]:
    """Scores of what was one column of the table, of those of its columns of zeros and ones.

    Squared errors are weighted by variances, so that rare categories count for little.
    """
    weights = variances / variances.sum()
    found = {}
    for metric in dict.fromkeys(itertools.chain(*columns)):
        power = 2.0 if metric == "rmse" else 1.0
        there = [metric in scores for scores in columns]
        values = np.array([scores[metric] for scores in columns if metric in scores])
        own = weights[there] / weights[there].sum()
        found[metric] = float((own @ values**power) ** (1.0 / power))
    return found
