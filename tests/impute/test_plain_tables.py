"""Tables without time and inputs, whose rows have no order."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.data import MultiOutputTable
from gpflow_bae.impute import Imputer, TableError
from gpflow_bae.impute.model.gaps import hide_gaps
from gpflow_bae.impute.reading.problems import TableWarning

COVARIANCE = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.0], [0.3, 0.0, 1.0]])


def people(number: int = 400, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of a Gaussian in three units, and the same with a sixth of the cells missing."""
    rng = np.random.default_rng(seed)
    values = rng.multivariate_normal(np.zeros(3), COVARIANCE, number) * [5.0, 0.1, 20.0]
    whole = pd.DataFrame(values + [170.0, 2.0, -50.0], columns=["a", "b", "c"])
    holes = whole.mask(rng.random(whole.shape) < 1 / 6)
    holes["note"] = "as it is"
    return whole, holes


@pytest.fixture(scope="module")
def fitted() -> Imputer:
    return Imputer(["a", "b", "c"], method="gp", progress=False).fit(people()[1])


def test_cells_are_their_conditional_means(fitted: Imputer) -> None:
    """Of the Gaussian that made the rows: three coefficients from some 270 complete pairs have
    standard errors of 0.06, which make a root mean squared error of 0.1.
    """
    whole, holes = people()
    filled = fitted.impute()
    scale, mean = np.array([5.0, 0.1, 20.0]), np.array([170.0, 2.0, -50.0])
    Z = (holes[["a", "b", "c"]].to_numpy() - mean) / scale
    found = (filled[["a", "b", "c"]].to_numpy() - mean) / scale
    deviations = filled[["a_sd", "b_sd", "c_sd"]].to_numpy() / scale
    squares = []
    for z, row, sd in zip(Z, found, deviations, strict=True):
        hole = np.isnan(z)
        gain = COVARIANCE[hole][:, ~hole] @ np.linalg.inv(COVARIANCE[~hole][:, ~hole])
        left = COVARIANCE[hole][:, hole] - gain @ COVARIANCE[~hole][:, hole]
        squares += list(np.square(row[hole] - gain @ z[~hole]))
        np.testing.assert_allclose(sd[hole], np.sqrt(np.diagonal(left)), rtol=0.25)
    assert np.sqrt(np.mean(squares)) < 0.2
    truth = whole.to_numpy()
    inside = (truth >= filled[["a_lower", "b_lower", "c_lower"]].to_numpy()) & (
        truth <= filled[["a_upper", "b_upper", "c_upper"]].to_numpy()
    )
    hole = np.isnan(Z)
    # 200 cells: a standard error of 0.021 for 90 %, and another of the calibration.
    assert inside[hole].mean() == pytest.approx(0.9, abs=0.06)
    assert (filled["note"] == "as it is").all()


def test_the_order_of_rows_has_no_effect_and_rows_may_repeat(fitted: Imputer) -> None:
    _, holes = people()
    twice = pd.concat([holes, holes.iloc[:50]], ignore_index=True)
    order = np.random.default_rng(1).permutation(len(twice))
    expected = Imputer(["a", "b", "c"], method="gp", progress=False).fit(twice).impute()
    found = Imputer(["a", "b", "c"], method="gp", progress=False).fit(twice.iloc[order]).impute()
    pd.testing.assert_frame_equal(found, expected.iloc[order], rtol=1e-6)


def test_the_same_cells_are_hidden_in_any_order() -> None:
    Y = people(200)[1][["a", "b", "c"]].to_numpy()
    order = np.random.default_rng(0).permutation(len(Y))
    masks = [
        hide_gaps(MultiOutputTable(np.zeros((1, 200, 0)), rows[None]), 0.1, 3).table.test_mask[0]
        for rows in (Y, Y[order])
    ]
    np.testing.assert_array_equal(masks[1], masks[0][order])
    assert np.count_nonzero(masks[0]) >= 45  # a tenth of some 500


def test_the_check_leaves_out_what_needs_an_order() -> None:
    """And does not call a Gaussian of rows a Gaussian process."""
    imputer = Imputer(["a", "b"], method="gp", progress=False).fit(people(40)[1])
    assert set(imputer.methods_.values()) == {"multivariate Gaussian"}
    result = Imputer(["a", "b"], progress=False).check(people(40)[1])
    assert result.methods == (
        *("auto", "multivariate Gaussian", "IterativeImputer", "IterativeImputer with trees"),
        "column means",
    )


def test_a_fit_is_kept_and_fills_other_rows(fitted: Imputer, tmp_path: pathlib.Path) -> None:
    fitted.save(tmp_path)
    whole, other = people(100, seed=1)
    found = Imputer.load(tmp_path).impute(other)
    pd.testing.assert_frame_equal(found, fitted.impute(other))
    error = (found["b"] - whole["b"])[other["b"].isna() & other["a"].notna()]
    assert np.sqrt(np.mean(error**2)) < 0.085  # 0.06 given a, of which 15 cells are 20 % unsure


def test_arrays_of_rows_need_no_inputs() -> None:
    _, holes = people(150)
    columns = ["a", "b", "c"]
    frame = Imputer(columns, method="gp", progress=False).fit(holes).impute()
    array = Imputer(method="gp", progress=False).fit(holes[columns].to_numpy()).impute()
    np.testing.assert_allclose(array.filled, frame[columns].to_numpy(), rtol=1e-9)


def test_what_orders_the_rows_is_not_overlooked() -> None:
    _, holes = people(60)
    holes["day"] = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    imputer = Imputer(["a", "b"], progress=False)
    with pytest.warns(TableWarning, match="taken in no order, and 'day' holds dates"):
        imputer.read(holes)
    with pytest.warns(TableWarning, match="and 'index' holds dates"):
        imputer.read(holes.set_index(pd.to_datetime(holes.pop("day")).to_numpy()))
    with pytest.raises(TableError, match="rows in no order are no series"):
        Imputer(["a"], task="note").read(people(60)[1])


def test_misspelt_categories_say_little_of_the_error() -> None:
    """Six of 300 cells with words of their own: the error is of three columns as before, and not
    lower because there are six more columns that are nearly always zero.
    """
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal(300)
    table = pd.DataFrame({"a": hidden + 0.5 * rng.standard_normal(300), "b": hidden})
    table["ward"] = rng.choice(["north", "south", "west"], 300)
    table = table.mask(rng.random(table.shape) < 0.1)
    typos = table.copy()
    rows = np.flatnonzero(table["ward"].notna())[::40][:6]
    typos.loc[rows, "ward"] = ["nrth", "sout", "wst", "nort", "suth", "wets"]
    imputer = Imputer(list(table), method="mean", progress=False)
    clean = imputer.check(table).summary["column means"]["rmse"]
    with pytest.warns(TableWarning, match=r"'nort' \(row \d+\), .* and 1 more\. Correct them"):
        found = [
            Imputer(list(table), method="mean", seed=seed, progress=False).check(typos)
            for seed in range(3)
        ]
    # Column means have an error of one deviation; of some 80 cells its standard error is 0.08.
    for result in found:
        assert result.summary["column means"]["rmse"] == pytest.approx(clean, abs=0.2)
        assert result.expected_error[0] > 0.8
