"""The verdict names the method with the lowest error, and says when it cannot know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.impute import Imputer
from gpflow_bae.impute.check.hidden_gaps import _scored
from gpflow_bae.impute.check.verdict import decide
from gpflow_bae.impute.model.choice import GapErrors
from gpflow_bae.impute.model.gaps import hide_gaps
from gpflow_bae.impute.reading.kinds.column_kind import ColumnKind


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
    assert (
        "IterativeImputer for all columns has 0.6" in verdict.words and "auto" not in verdict.words
    )
    assert f"error of filled cells is {verdict.error:.2g} standard" in verdict.words


def test_a_rival_that_is_better_than_what_was_asked_for_is_named() -> None:
    verdict = told(model=(0.6, 0.6), iterative=(0.3, 0.3), means=(1.0, 1.0))
    assert verdict.best == "IterativeImputer" and verdict.sure
    assert "IterativeImputer is better (0.3, not 0.6): method='auto' takes" in verdict.words


def test_where_methods_were_chosen_the_words_say_which_fill_and_advise_no_other() -> None:
    rng = np.random.default_rng(0)
    found = {"auto": errors(rng, 0.6, 0.6), "lines": errors(rng, 0.3, 0.9)}
    found["column means"] = errors(rng, 1.0, 1.0)
    words = decide(found, ["a", "b"], 0.9, 0, {"a": "lines", "b": "GPs"}).words
    assert "Columns are filled by lines (a); GPs (b)." in words
    assert "better" not in words and "instead" not in words and "In these gaps" not in words
    lines = {"auto": errors(rng, 0.6, 0.6), "lines": errors(rng, 0.3, 0.3)}
    words = decide(lines, ["a", "b"], 0.9, 0, {"a": "GPs", "b": "GPs"}).words
    assert "In these gaps lines for all columns has 0.3" in words
    words = decide(found, ["a", "b"], 0.9, 0, {"a": "lines", "b": "lines"}).words
    assert "All columns are filled by lines." in words


def test_the_expected_error_of_few_gaps_is_not_too_low_and_its_interval_holds_it() -> None:
    """Eight gaps of five equal errors each: the root mean square is 3 % below 0.5 on average.

    A mean square of eight chi-squared variables has the relative variance 2 / 8, and a square
    root takes an eighth of that from its mean.
    """
    plain, corrected, held = [], [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        squares = 5.0 * np.square(0.5 * rng.standard_normal((8, 1)))
        model = GapErrors(squares, np.full((8, 1), 5.0))
        means = errors(rng, 1.0, num_gaps=8)
        found = decide({"model": model, "column means": means}, ["a"], 0.9, seed)
        plain.append(float(model.rmse(np.ones((1, 8)))[0, 0]))
        corrected.append(found.error)
        held.append(found.ends[0] <= 0.5 <= found.ends[1])
    # Standard errors of the means: 0.5 * 0.25 / sqrt(200) = 0.009.
    assert np.mean(plain) < 0.495 and abs(np.mean(corrected) - 0.5) < 0.02
    assert 0.72 < np.mean(held) < 0.97  # a bootstrap of eight gaps is too sure of itself


def test_fewer_than_five_gaps_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    found = {"model": errors(rng, 0.3, num_gaps=4), "column means": errors(rng, 1.0, num_gaps=4)}
    verdict = decide(found, ["a"], 0.9, 0)
    assert np.isnan(verdict.ends).all() and "confidence" not in verdict.words
    assert "only 4 gaps to hide, which do not say how sure that is." in verdict.words


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
    words = told(model=(0.2, 0.8), iterative=(0.9, 0.3), means=(1.0, 1.0)).words
    assert "IterativeImputer is better for b (0.3" in words


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
        scores, _ = _scored(gaps, kinds, scale, moments)
        covered[kind] = scores["column means"]["y0"]["coverage_90"]
    hidden = counts[gaps.table.test_mask]
    assert covered["count"] == np.mean(hidden <= 1.0) > 0.98
    assert covered["continuous"] == np.mean(hidden == 0.0) < 0.95


def test_columns_of_words_or_of_zeros_and_ones_have_no_coverage() -> None:
    """Their intervals hold 0 and 1, so that in a mean over columns numbers would look covered."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=200), "sold": rng.integers(2, size=200)})
    table["kind"] = rng.choice(["a", "b", "c"], 200)
    found = Imputer(["size", "sold", "kind"], method="mean", progress=False).check(table)
    (of_numbers,) = {
        scores["coverage_90"]
        for scores in found.per_column["column means"].values()
        if "coverage_90" in scores
    }
    assert found.summary["column means"]["coverage_90"] == of_numbers < 1.0
    words = Imputer(["sold", "kind"], method="mean", progress=False).check(table)
    assert set(words.summary["column means"]) == {"rmse", "nll"}
    assert "intervals" not in words.verdict
