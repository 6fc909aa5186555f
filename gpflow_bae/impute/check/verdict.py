"""Which method to fill a table with, in words, and whether the difference is significant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from check_shapes import check_shapes

__all__ = ["GapErrors", "Verdict", "decide"]

_DRAWS = 1000  # resamples of the bootstrap
_SURE = 0.975  # share of the resamples in which a method must be better to be significantly so
_MUCH = 0.05  # relative difference of errors for which a single column is named
_USELESS = 0.95  # share of the error of column means above which a method is useless
_COVERAGE = (0.82, 0.97)  # of 90 % intervals that need no warning
_FEW_GAPS = 5  # with fewer, no difference is significant


@dataclasses.dataclass(frozen=True)
class GapErrors:
    """Squared errors of a method in hidden cells, summed by gap and column.

    * squares [G, P]: sums, in squared standard deviations of the columns.
    * counts [G, P]: numbers of hidden cells.
    """

    squares: np.ndarray
    counts: np.ndarray

    @check_shapes("weights: [draws, G]", "return: [draws, P]")
    def rmse(self, weights: np.ndarray) -> np.ndarray:
        """Root mean squared error of each column; NaN where no gap of a column is drawn.

        :param weights: how often each gap is drawn.
        """
        total = weights @ self.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt((weights @ self.squares) / total)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The method to use, whether it is significantly better than all others, and sentences."""

    best: str
    sure: bool
    words: str


def decide(
    errors: Mapping[str, GapErrors],
    columns: Sequence[str],
    coverage: float,
    seed: int,
) -> Verdict:
    """Compare methods on gaps that were hidden from all of them.

    The error of a method is its root mean squared error in standard deviations, averaged over
    columns. Differences are tested by a bootstrap over gaps, because errors within a gap are
    correlated.

    :param errors: errors by method, the model first; column means are among them.
    :param columns: names of the P columns.
    :param coverage: share of hidden cells inside of the model's 90 % intervals.
    :param seed: seed of the bootstrap.
    """
    model, *rivals = errors
    num_gaps = len(errors[model].counts)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(num_gaps, np.full(num_gaps, 1.0 / num_gaps), size=_DRAWS).astype(float)
    once = np.ones((1, num_gaps))
    found = {name: float(np.nanmean(e.rmse(once))) for name, e in errors.items()}
    resampled = {name: np.nanmean(e.rmse(draws), axis=-1) for name, e in errors.items()}
    ordered = sorted(found, key=found.__getitem__)
    best, second = ordered[0], ordered[1]
    better = float(np.mean(resampled[best] < resampled[second]))
    sure = better >= _SURE and num_gaps >= _FEW_GAPS
    size = f"{found[best]:.2f} standard deviations"
    sentences = []
    baseline = found.get("column means", np.inf)
    if best == "column means" or found[best] > _USELESS * baseline:
        sentences.append(
            f"Nothing predicts these gaps better than column means do ({baseline:.2f} standard "
            f"deviations, the model {found[model]:.2f}): do not rely on filled values. Name more "
            "inputs, or add columns that go together with these."
        )
    elif best == model:
        sentences.append(f"Use the model: on gaps like this table's own its error is {size}")
        sentences[0] += (
            f", lower than that of {second} ({found[second]:.2f}) beyond doubt."
            if sure
            else f"; {second} has {found[second]:.2f}, which is no clear difference on "
            f"{num_gaps} gaps."
        )
    else:
        clear = float(np.mean(resampled[best] < resampled[model])) >= _SURE
        clear = clear and num_gaps >= _FEW_GAPS
        sentences.append(
            f"Use {best} instead: on gaps like this table's own its error is {size}, and that of "
            f"the model {found[model]:.2f}, "
            + ("a difference beyond doubt." if clear else "though the difference is not clear.")
        )
    sentences += _of_columns(errors, columns, best, draws, once)
    if not _COVERAGE[0] <= coverage <= _COVERAGE[1]:
        tightness = "narrow" if coverage < 0.9 else "wide"
        sentences.append(
            f"The model's 90 % intervals held {coverage:.0%} of the hidden cells: take them as too "
            f"{tightness}."
        )
    if num_gaps < _FEW_GAPS:
        sentences.append(f"There were only {num_gaps} gaps to hide, which is little to go by.")
    return Verdict(best, sure, " ".join(sentences))


def _of_columns(
    errors: Mapping[str, GapErrors],
    columns: Sequence[str],
    best: str,
    draws: np.ndarray,
    once: np.ndarray,
) -> list[str]:
    """Sentences on columns for which another method is clearly better than the best one overall."""
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
