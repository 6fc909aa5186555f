"""The verdict names the method with the lowest error, and says when it cannot know."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute.check.hidden_gaps import _scored
from gpflow_bae.impute.check.verdict import GapErrors, decide
from gpflow_bae.impute.model.gaps import hide_gaps
from gpflow_bae.impute.reading.columns import ColumnKind


def errors(rng: np.random.Generator, *rmse: float, num_gaps: int = 40, cells: int = 5) -> GapErrors:
    """Of Gaussian predictions with these errors, a column each."""
    missed = np.array(rmse) * rng.standard_normal((num_gaps, cells, len(rmse)))
    counts = np.full((num_gaps, len(rmse)), float(cells))
    return GapErrors(np.square(missed).sum(1), counts)


def told(*, coverage: float = 0.9, num_gaps: int = 40, **rmse: tuple[float, ...]):
    rng = np.random.default_rng(0)
    names = {"means": "column means", "iterative": "IterativeImputer"}
    found = {
        names.get(name, name): errors(rng, *values, num_gaps=num_gaps)
        for name, values in rmse.items()
    }
    return decide(found, ["a", "b"], coverage, 0)


def test_a_model_that_is_twice_as_good_is_so_beyond_doubt() -> None:
    verdict = told(model=(0.3, 0.3), iterative=(0.6, 0.6), means=(1.0, 1.0))
    assert verdict.best == "model" and verdict.sure
    assert verdict.words.startswith("Use the model") and "beyond doubt" in verdict.words
    assert "IterativeImputer (0.5" in verdict.words or "IterativeImputer (0.6" in verdict.words


def test_a_rival_that_is_better_is_recommended() -> None:
    verdict = told(model=(0.6, 0.6), iterative=(0.3, 0.3), means=(1.0, 1.0))
    assert verdict.best == "IterativeImputer" and verdict.sure
    assert verdict.words.startswith("Use IterativeImputer instead")


def test_equal_methods_are_no_clear_difference() -> None:
    """Over 200 pairs of equal methods one is called better beyond doubt in a few per cent."""
    sure = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        pair = {"model": errors(rng, 0.5), "IterativeImputer": errors(rng, 0.5)}
        pair["column means"] = errors(rng, 1.0)
        sure += decide(pair, ["a"], 0.9, seed).sure
    # Two-sided at 0.975 each; a binomial of 200 at 0.05 stays below 20 with probability 0.997,
    # and the bootstrap of 40 gaps is a little too sure of itself.
    assert sure <= 24
    few = told(model=(0.3, 0.3), iterative=(0.6, 0.6), means=(1.0, 1.0), num_gaps=3)
    assert not few.sure and "only 3 gaps" in few.words


def test_useless_predictions_are_said_to_be() -> None:
    verdict = told(model=(1.0, 1.0), iterative=(1.05, 1.05), means=(1.0, 1.0))
    assert verdict.words.startswith("Nothing predicts these gaps better than column means")


def test_a_column_for_which_another_method_is_better_is_named() -> None:
    verdict = told(model=(0.2, 0.8), iterative=(0.9, 0.3), means=(1.0, 1.0))
    best, other = verdict.best, {"model": "IterativeImputer", "IterativeImputer": "model"}
    assert f"{other[best]} is better for" in verdict.words


def test_resampled_errors_are_those_of_the_gaps_that_are_drawn() -> None:
    """Gap 0 twice and gap 2 once: sums over their cells, by hand; NaN where no cell is drawn."""
    squares = np.array([[4.0, 0.0], [100.0, 9.0], [1.0, 0.0]])
    counts = np.array([[2.0, 0.0], [1.0, 1.0], [3.0, 0.0]])
    found = GapErrors(squares, counts).rmse(np.array([[2.0, 0.0, 1.0]]))
    np.testing.assert_allclose(found, [[np.sqrt((2 * 4 + 1) / (2 * 2 + 3)), np.nan]])


@pytest.mark.parametrize(("coverage", "word"), [(0.6, "narrow"), (0.99, "wide")])
def test_intervals_that_hold_too_few_or_many_cells_are_named(coverage: float, word: str) -> None:
    verdict = told(model=(0.3, 0.3), means=(1.0, 1.0), coverage=coverage)
    assert f"too {word}" in verdict.words


def test_counts_are_scored_by_the_whole_numbers_that_would_be_filled_in() -> None:
    """A Poisson of mean 0.1 is 0 or 1 in 99.5 % of the cells; its Gaussian interval ends at 0.62,
    and only when that is rounded outwards, as the filled table has it, does it hold them.
    """
    counts = np.random.default_rng(0).poisson(0.1, (1, 4000, 1)).astype(float)
    table = MultiOutputTable(X=np.arange(4000.0)[None, :, None], Y=counts)
    gaps = hide_gaps(table, 0.2, 0)
    scale = Standardiser.fit(table.Y)
    methods = ("coregionalised GPs", "column means")
    moments = dict.fromkeys(methods, (np.zeros(counts.shape), np.ones(counts.shape)))
    covered = {}
    for kind in ("count", "continuous"):
        kinds = [ColumnKind("y", kind, lower=0.0 if kind == "count" else -np.inf)]
        result = _scored(gaps, kinds, scale, moments, dict.fromkeys(methods, 0.0), 0)
        covered[kind] = result.summary["column means"]["coverage_90"]
    hidden = counts[gaps.table.test_mask]
    assert covered["count"] == np.mean(hidden <= 1.0) > 0.98
    assert covered["continuous"] == np.mean(hidden == 0.0) < 0.95
