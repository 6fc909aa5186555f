"""How far filled values can be trusted, in words, and whether another method is better."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ..method_names import who_fills
from ..model.choice import GapErrors
from ..reading.problems import setting

__all__ = ["Verdict", "decide"]

_DRAWS = 1000  # resamples of the bootstrap
_SURE = 0.975  # share of the resamples in which a method must be better to be significantly so
_MUCH = 0.05  # relative difference of errors for which a single column is named
_USELESS = 0.95  # share of the error of column means above which a method is useless
_COVERAGE = (0.82, 0.97)  # of 90 % intervals that need no warning
_FEW_GAPS = 5  # with fewer, no difference is significant
_ENDS = (0.05, 0.95)  # quantiles of the resampled error


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a comparison says.

    * best: the method with the lowest error over all columns.
    * sure: whether it is significantly better than all others.
    * error: expected root mean squared error of what is filled in, in standard deviations.
    * ends: of a 90 % interval of it; NaN for fewer than five gaps, which do not say how sure it is.
    * words: sentences.
    """

    best: str
    sure: bool
    error: float
    ends: tuple[float, float]
    words: str


def decide(
    errors: Mapping[str, GapErrors],
    columns: Sequence[str],
    coverage: float | None,
    seed: int,
    filled_by: Mapping[str, str] | None = None,
) -> Verdict:
    """Compare methods on gaps that were hidden from all of them.

    The error of a method is its root mean squared error in standard deviations, averaged over
    columns. Differences are tested by a bootstrap over gaps, because errors within a gap are
    correlated. A root mean square of few gaps is too low on average, as a square root is concave:
    the expected error is corrected by the bootstrap's estimate of this bias (Efron and Tibshirani
    1993, chapter 10).

    :param errors: errors by method, those of what is filled in first; column means are among them.
    :param columns: names of the P columns.
    :param coverage: share of hidden cells inside of the 90 % intervals of what is filled in; None
        if no column has intervals.
    :param seed: seed of the bootstrap.
    :param filled_by: the method of each column of the table, if it was chosen by these errors.
    """
    model = next(iter(errors))
    num_gaps = len(errors[model].counts)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(num_gaps, np.full(num_gaps, 1.0 / num_gaps), size=_DRAWS).astype(float)
    once = np.ones((1, num_gaps))
    found = {name: float(np.nanmean(e.rmse(once))) for name, e in errors.items()}
    resampled = {name: np.nanmean(e.rmse(draws), axis=-1) for name, e in errors.items()}
    best = min(found, key=found.__getitem__)
    rivals = [name for name in found if name not in (best, model)] or [model]
    second = min(rivals if best == model else [model], key=found.__getitem__)
    better = float(np.mean(resampled[best] < resampled[second]))
    sure = better >= _SURE and num_gaps >= _FEW_GAPS
    correction = found[model] / max(float(resampled[model].mean()), 1e-300)
    error = found[model] * correction
    low, high = np.quantile(resampled[model], _ENDS) * np.square(correction)
    interval = f" (from {low:.2g} to {high:.2g}, with 90 % confidence)"
    if num_gaps < _FEW_GAPS:
        low = high = np.nan
        interval = ""
    sentences = []
    baseline = found.get("column means", np.inf)
    if best == "column means" or found[best] > _USELESS * baseline:
        sentences.append(
            f"Nothing predicts these gaps better than column means do ({baseline:.2f} standard "
            f"deviations, what is filled in {error:.2f}): do not rely on filled values. Name more "
            "inputs, or add columns that go together with these."
        )
    else:
        sentences.append(
            f"On gaps like this table's own the error of filled cells is {error:.2g} standard "
            f"deviations{interval}."
        )
    if filled_by:
        sentences.append(who_fills(filled_by))
        if found[best] < (1.0 - _MUCH) * found[model]:
            sentences.append(
                f"In these gaps {best} for all columns has {found[best]:.2g}, less than "
                f"{found[model]:.2g}; the methods are chosen by other gaps as well."
            )
    elif best != model:
        auto = setting("--method=auto", "method='auto'")
        sentences.append(
            f"{best} is better ({found[best]:.2g}, not {found[model]:.2g}"
            f"{'' if sure else ', though the difference is not clear'}): "
            f"{auto} takes the best method for each column."
        )
    if best == model and sure:
        sentences.append(f"{second} for all columns has {found[second]:.2g}: clearly more.")
    if not filled_by:
        sentences += _of_columns(errors, columns, model, draws, once)
    if coverage is not None and not _COVERAGE[0] <= coverage <= _COVERAGE[1]:
        tightness = "narrow" if coverage < 0.9 else "wide"
        sentences.append(
            f"The 90 % intervals held {coverage:.0%} of the hidden numbers: take them as too "
            f"{tightness}."
        )
    if num_gaps < _FEW_GAPS:
        sentences.append(
            f"There were only {num_gaps} gaps to hide, which do not say how sure that is."
        )
    return Verdict(best, sure, error, (float(low), float(high)), " ".join(sentences))


def _of_columns(
    errors: Mapping[str, GapErrors],
    columns: Sequence[str],
    best: str,
    draws: np.ndarray,
    once: np.ndarray,
) -> list[str]:
    """Sentences on columns for which another method is clearly better than the one that fills."""
    alone = {name: e.rmse(once)[0] for name, e in errors.items()}
    resampled = {name: e.rmse(draws) for name, e in errors.items()}
    by_method: dict[str, list[str]] = {}
    for p, column in enumerate(columns):
        known = {name: rmse[p] for name, rmse in alone.items() if np.isfinite(rmse[p])}
        if not known or best not in known:
            continue
        other = min(known, key=known.__getitem__)
        drawn = np.isfinite(resampled[best][:, p])
        wins = resampled[other][drawn, p] < resampled[best][drawn, p]
        if known[other] < (1.0 - _MUCH) * known[best] and wins.mean() >= _SURE:
            numbers = f"{column} ({known[other]:.2f}, not {known[best]:.2f})"
            by_method.setdefault(other, []).append(numbers)
    return [f"{name} is better for {', '.join(those)}." for name, those in by_method.items()]
