"""Columns of categories: their probabilities against Bayes' rule, and how cells come back."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from gpflow_bae.impute import Imputer, TableError, TableFormat
from gpflow_bae.impute.model.chances import Chances
from gpflow_bae.impute.reading.frames import read_frame
from gpflow_bae.impute.reading.indicators import Indicator
from gpflow_bae.impute.reading.problems import TableWarning

SHARES = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[-1.0, 0.0], [1.0, 0.5], [0.5, -1.5]])
COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.8]])


def plants(number: int = 1200, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Rows of three classes of Gaussians of one covariance, the same with a quarter of the classes
    missing, and each class's probability given the other cells by Bayes' rule.
    """
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, number, p=SHARES)
    values = MEANS[kind] + rng.multivariate_normal(np.zeros(2), COVARIANCE, number)
    whole = pd.DataFrame(values, columns=["x", "y"])
    whole["kind"] = np.array(["fern", "moss", "tree"])[kind]
    density = [multivariate_normal(mean, COVARIANCE).pdf(values) for mean in MEANS]
    joint = SHARES * np.stack(density, axis=-1)
    holes = whole.copy()
    holes.loc[rng.random(number) < 0.25, "kind"] = None
    return whole, holes, joint / joint.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def fitted() -> Imputer:
    return Imputer(["kind", "x", "y"], method="gp", progress=False).fit(plants()[1])


def test_probabilities_are_those_of_bayes(fitted: Imputer) -> None:
    """Discriminant analysis of each class against the rest is near it, and normalised."""
    whole, holes, chances = plants()
    hole = holes["kind"].isna().to_numpy()
    found = fitted.probabilities()["kind"]
    assert list(found.columns) == ["fern", "moss", "tree"]
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.abs(found.to_numpy() - chances)[hole].mean() < 0.07
    filled = fitted.impute()
    best = found.idxmax(axis=1)
    pd.testing.assert_series_equal(filled["kind"][hole], best[hole], check_names=False)
    pd.testing.assert_series_equal(filled["kind"][~hole], holes["kind"][~hole])
    assert (filled["kind_probability"].notna() == hole).all()
    # As often right as it says: 300 cells have a standard error of 0.024.
    right = (filled["kind"] == whole["kind"])[hole]
    assert right.mean() == pytest.approx(filled["kind_probability"].mean(), abs=0.07)
    assert right.mean() > 0.97 * (chances.argmax(1) == whole["kind"].map(
        {"fern": 0, "moss": 1, "tree": 2}))[hole].mean()  # fmt: skip


def test_a_column_without_any_cell_is_filled_by_the_words_of_the_fit(fitted: Imputer) -> None:
    """Also where pandas reads it as a column of numbers."""
    holes = plants()[1][["x", "y"]][:20]
    as_numbers, as_words = (fitted.impute(holes.assign(kind=none)) for none in (np.nan, None))
    pd.testing.assert_frame_equal(as_numbers, as_words)
    assert set(as_numbers["kind"]) <= {"fern", "moss", "tree"}


def test_one_column_of_two_classes_has_the_odds_of_discriminant_analysis() -> None:
    """In closed form, from the exact joint moments of a 0/1 column and a Gaussian beside it."""
    rate, apart, spread = 0.3, 2.0, 0.7  # x is N(0, spread) or N(apart, spread)
    unit = np.sqrt(rate * (1.0 - rate))
    x = np.linspace(-2.0, 4.0, 7)
    variance_of_x = spread + apart**2 * unit**2
    gain = unit * apart / variance_of_x
    mean = gain * (x - rate * apart)
    left = np.full(x.shape, 1.0 - gain * unit * apart)
    found, _ = Chances(np.array([rate])).moments(mean[:, None], left[:, None])
    odds = rate / (1 - rate) * np.exp((apart * x - apart**2 / 2) / spread)
    np.testing.assert_allclose(rate + unit * found[:, 0], odds / (1 + odds), rtol=1e-9, atol=2e-4)


def test_sharpness_is_that_of_the_cells() -> None:
    """Of cells drawn by half the evidence, of which 4000 leave a standard error of about 0.03."""
    rng = np.random.default_rng(0)
    mean, rate = rng.standard_normal((1, 4000, 1)), np.array([0.4])
    variance = np.full(mean.shape, 0.5)
    half = Chances(rate, 0.5)
    chance = rate + np.sqrt(rate * (1 - rate)) * half.moments(mean, variance)[0]
    truth = np.where(rng.random(mean.shape) < chance, 1.0, -1.0)
    hidden = np.ones(mean.shape, dtype=bool)
    found = Chances(rate).fit([(mean, variance, truth, hidden)]).sharpness
    assert found == pytest.approx(0.5, abs=0.11)
    # Nor is it that of a single cell that no sharpness could predict.
    mean[0, 0], variance[0, 0], truth[0, 0] = -20.0, 0.01, 1.0
    assert Chances(rate).fit([(mean, variance, truth, hidden)]).sharpness == found


def test_categories_help_and_other_text_stays(tmp_path: pathlib.Path) -> None:
    """The mean of y given x alone misses that of its class; a missing helper stays missing."""
    whole, holes, _ = plants(500, 2)
    table = whole.assign(kind=holes["kind"], note="free text, such as this")
    gap = np.random.default_rng(0).random(500) < 0.3
    table.loc[gap, "y"] = np.nan
    helped = Imputer(["y", "x"], inputs=["kind"], method="gp", progress=False).fit(table)
    alone = Imputer(["y", "x"], method="gp", progress=False).fit(table)
    filled = helped.impute()
    known = gap & table["kind"].notna()

    def error(found: pd.DataFrame) -> float:
        return float(np.sqrt(np.mean((found["y"] - whole["y"])[known] ** 2)))

    assert error(filled) < 0.93 * error(alone.impute())
    pd.testing.assert_frame_equal(filled[["kind", "note"]], table[["kind", "note"]])
    assert "kind_probability" not in filled
    helped.save(tmp_path)
    other = table.assign(kind=table["kind"].replace("fern", "lichen"))
    pd.testing.assert_frame_equal(Imputer.load(tmp_path).impute(other), helped.impute(other))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pd.Series([True, False, None, True] * 10, dtype=object), {True, False}),
        (pd.Series([True, False, None, True] * 10, dtype="boolean"), {True, False}),
        (pd.Series(["TRUE", "FALSE", "", "TRUE"] * 10), {"TRUE", "FALSE"}),
        (pd.Series(["a", "b", None, "a"] * 10, dtype="category"), {"a", "b"}),
        (pd.Series([1, 2, None, 1] * 10, dtype="Int64"), {1, 2}),
    ],
    ids=["object", "boolean", "text", "category", "numbers"],
)
def test_cells_come_back_as_they_are_written(cells: pd.Series, expected: set[object]) -> None:
    frame = pd.DataFrame({"c": cells, "v": np.arange(40.0)})
    user = read_frame(frame, ["c", "v"], kinds={"c": "category"})
    mean = np.full(user.table.Y.shape, 0.9)
    mean[..., 1:] *= 0.5
    filled = user.fill(mean, np.ones(mean.shape))
    assert filled["c"].dtype == cells.dtype and not filled["c"].isna().any()
    assert set(filled["c"].unique()) == expected
    assert (filled["c_probability"].notna() == user.missing[:, 0]).all()
    assert user.num_holes == 10


def test_what_is_no_category_is_refused() -> None:
    frame = pd.DataFrame({"name": [f"person {chr(65 + i)}" for i in range(26)], "v": range(26)})
    notes = pd.DataFrame({"v": range(26), "notes": ["broken", None, "moved", "new"] + 22 * [None]})
    with pytest.raises(TableError, match="'notes' is text with 3 different values in 3 cells"):
        read_frame(notes, ["v", "notes"])
    assert read_frame(notes, ["v", "notes"], kinds={"notes": "category"}).num_holes == 23
    with pytest.raises(TableError, match="text with 26 different values in 26 cells"):
        read_frame(frame, ["name", "v"])
    with pytest.raises(TableError, match="'v' holds what is no number: '<5'"):
        read_frame(frame.assign(v=["<5", *map(str, range(25))]), ["v"])
    with pytest.raises(TableError, match=r"\['name_probability'\] are in the table"):
        read_frame(frame.assign(name="x", name_probability=1), ["name", "v"])


def test_names_of_columns_of_zeros_and_ones() -> None:
    frame = pd.DataFrame({"c": ["a", "b", "", "n.d."] * 5, "v": np.arange(20.0)})
    user = read_frame(
        frame, ["v"], inputs=["c"], table_format=TableFormat(missing_values=("n.d.",))
    )
    assert user.outputs == ("v", Indicator("c", "a", False), Indicator("c", "b", False))
    np.testing.assert_array_equal(user.Y[:4, 1], [1.0, 0.0, np.nan, np.nan])
    assert user.num_holes == 0


def test_words_that_the_fit_has_not_seen_say_nothing(fitted: Imputer) -> None:
    """And stay in their cells; other cells are filled as if they were missing."""
    holes = plants()[1][:40].assign(x=np.nan)
    strange = holes.assign(kind="lichen")
    strange.loc[3, "kind"] = " fern "  # spaces are no other word
    with pytest.warns(TableWarning, match="holds 'lichen' in 39 cells, first in row 1, which the"):
        found = fitted.impute(strange)
    missing = fitted.impute(holes.assign(kind=strange["kind"].where(strange["kind"] == " fern ")))
    pd.testing.assert_series_equal(found["kind"], strange["kind"])
    assert found["kind_probability"].isna().all()
    for name in ("x", "x_sd", "x_lower", "x_upper"):
        pd.testing.assert_series_equal(found[name], missing[name])


def test_codes_are_the_same_words_with_holes_and_without() -> None:
    """A column of whole numbers with holes is one of floats."""
    codes = np.arange(30) % 3 + 1
    fitted = read_frame(
        pd.DataFrame({"c": np.where(codes < 3, codes, np.nan), "v": codes}),
        ["c", "v"],
        kinds={"c": "category"},
    )
    new = pd.DataFrame({"c": [1, 2], "v": [1, 2]})
    read = read_frame(new, ["c", "v"], kinds={"c": "category"}, fitted=fitted.columns)
    assert not read.notes and not read.missing.any()
    np.testing.assert_array_equal(read.Y[:, :2], np.eye(2))


def test_spellings_and_single_cells_are_named() -> None:
    cells = ["a", "b"] * 15 + [" a", "a", "Q", None]
    user = read_frame(pd.DataFrame({"c": cells, "v": np.arange(34.0)}), ["c", "v"])
    assert user.notes[:2] == (
        "Column 'c': ' a', 'a' are read as 'a'.",
        "Column 'c' has categories of a single cell: 'Q' (row 33). Correct them if they are "
        "misspelt.",
    )
    mean = np.zeros(user.table.Y.shape)
    mean[..., list(user.outputs).index(Indicator("c", "a", True))] = 0.9
    assert user.fill(mean, np.ones(mean.shape))["c"][33] == "a"  # as most are written
    few = read_frame(pd.DataFrame({"c": ["a", "b", "c", None] * 2, "v": np.arange(8.0)}), ["c"])
    assert not few.notes
