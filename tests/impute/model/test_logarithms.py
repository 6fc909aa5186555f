"""Which skewed columns are better seen as they are: sums stay sums, products become sums."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_bae.core.output_transforms import Identity, Log
from gpflow_bae.impute.reading.columns import output_kinds
from gpflow_bae.impute.reading.kinds.logarithms import _squares, better_as_they_are

NAMES = ("a", "b", "c")
ROWS = 300


def sums(rng: np.random.Generator) -> np.ndarray:
    """Skewed columns that are weighted sums of two skewed sources, and noise."""
    sources = rng.gamma(1.0, 1.0, (ROWS, 2))
    mixing = np.array([[1.0, 0.2, 0.6], [0.1, 1.0, 0.7]])
    return sources @ mixing + 0.2 * rng.random((ROWS, 3))


def products(rng: np.random.Generator) -> np.ndarray:
    """Their logarithms are weighted sums of Gaussian sources, and noise."""
    return np.exp(rng.standard_normal((ROWS, 2)) @ [[1.0, 0.2, 0.6], [0.1, 0.9, 0.7]]) * np.exp(
        0.2 * rng.standard_normal((ROWS, 3))
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("made", [sums, products])
def test_sums_are_seen_as_they_are_and_products_as_logarithms(made, seed: int) -> None:
    """The third column is a linear function of the other two, or its logarithm is of theirs."""
    rng = np.random.default_rng(seed)
    Y = made(rng)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    assert bool(better_as_they_are(Y, [Log()] * 3)[2]) is (made is sums)
    kind = output_kinds(NAMES, Y).kinds[2]
    assert kind.kind == "positive" and kind.lower == 0.0
    assert isinstance(kind.transform, Identity if made is sums else Log)


def test_only_logarithms_that_nobody_asked_for_are_left_out() -> None:
    """A column that the user calls positive is its logarithm; one that nothing tells of stays."""
    Y = sums(np.random.default_rng(0))
    said = {kind.name: kind for kind in output_kinds(NAMES, Y, {"c": "positive"}).kinds}
    assert isinstance(said["c"].transform, Log)
    kind = output_kinds(NAMES, Y).kinds[2]
    assert kind.describe() == "positive, as it is"
    assert type(kind).from_dict(kind.to_dict()) == kind
    alone = np.random.default_rng(0).gamma(1.0, 1.0, (ROWS, 1))
    assert not better_as_they_are(alone, [Log()])[0]
    unrelated = np.random.default_rng(1).gamma(1.0, 1.0, (ROWS, 3))
    assert not better_as_they_are(unrelated, [Log()] * 3).any()


@pytest.mark.parametrize("beside", ["constant", "rounding", "offset"])
def test_columns_without_a_spread_tell_nothing(beside: str) -> None:
    """Errors of a column are what they are without one that only rounding moves.

    A rounding error is no scale: divided by it, such a column would be noise of unit variance. One
    that is far from zero says what it says near zero.
    """
    rng = np.random.default_rng(0)
    Y = sums(rng)
    if beside == "offset":
        others, alone = Y + [1e6, 0.0, 0.0], Y
    else:
        still = np.full((ROWS, 1), 48.85)
        if beside == "rounding":
            still += np.spacing(48.85) * rng.integers(-1, 2, (ROWS, 1))
        others, alone = np.concatenate([Y, still], 1), Y
    found = _squares(others, 2, None)
    np.testing.assert_allclose(found, _squares(alone, 2, None), rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(
        better_as_they_are(others, [Log()] * 3 + [None] * (others.shape[1] - 3))[:3],
        better_as_they_are(alone, [Log()] * 3),
    )
