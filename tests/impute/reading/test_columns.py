"""Kinds of columns: which one values have, and what filled values of each can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_bae.core.output_transforms import Identity, Log, Logit
from gpflow_bae.impute.reading.columns import (
    FittedColumns,
    in_order,
    output_kinds,
    scale_inputs,
)
from gpflow_bae.impute.reading.kinds.column_kind import ColumnKind, decide_kind
from gpflow_bae.impute.reading.problems import TableError

RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal(400)
NAN = np.nan


@pytest.mark.parametrize(
    ("values", "kind", "transform"),
    [
        (NORMAL, "continuous", Identity()),
        (NORMAL + 20.0, "continuous", Identity()),  # merely happens to be positive
        (np.exp(0.4 * NORMAL), "positive", Log()),
        (RNG.exponential(size=400), "positive", Log()),
        (RNG.gamma(4.0, size=400), "positive", Log()),
        (RNG.random(400), "continuous", Identity()),
        (-np.exp(NORMAL), "continuous", Identity()),
        (1000.0 + np.exp(NORMAL), "continuous", Identity()),  # skewed, and still as a logarithm
        (np.exp(NORMAL)[:15], "continuous", Identity()),  # too few to tell
        ((NORMAL > 0).astype(float), "binary", Identity()),
        (RNG.poisson(50.0, 400).astype(float), "count", Identity()),
        (np.floor(np.exp(2.0 + 1.2 * NORMAL)), "count", Log(1.0)),
    ],
)
def test_kinds_follow_from_values(values: np.ndarray, kind: str, transform: Any) -> None:
    found = decide_kind("a", values)
    assert (found.kind, found.transform) == (kind, transform)
    assert found.allows(values).all()
    assert ColumnKind.from_dict(found.to_dict()) == found


def test_zeros_among_positive_values_are_no_outliers() -> None:
    values = np.where(NORMAL > 0.8, 0.0, np.exp(1.5 * NORMAL))
    kind = decide_kind("rain", values)
    quartile = np.quantile(values[values > 0], 0.25)
    assert kind.kind == "positive" and kind.transform == Log(quartile)
    seen = kind.transform.forward(values)
    assert abs((seen.min() - seen.mean()) / seen.std()) < 3.0


def cells(*moments: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([m]) for m in moments)


def test_filled_cells_are_what_a_column_can_have() -> None:
    count = decide_kind("n", RNG.poisson(3.0, 400).astype(float))
    np.testing.assert_array_equal(count.settle(*cells(-0.2, 4.0, -1.7, 3.4)), [[0], [2], [0], [4]])
    wet = decide_kind("wet", (NORMAL > 0).astype(float))
    # The value is a probability p, of which sqrt(p (1 - p)) is the standard deviation.
    for p, ends in ((0.2, (0, 1)), (0.96, (1, 1)), (0.01, (0, 0))):
        found = np.ravel(wet.settle(*cells(p, 1.0, 0.0, 1.0)))
        np.testing.assert_allclose(found, [p, np.sqrt(p * (1 - p)), *ends])
    kinds = output_kinds(["h"], np.array([[50.0], [70.0]]), {"h": (0, 100)}).kinds
    assert kinds[0].transform == Logit(0.0, 100.0)
    found = np.ravel(kinds[0].settle(*cells(101.0, 4.0, 99.0, 103.0)))
    np.testing.assert_array_equal(found, [100.0, 2.0, 99.0, 100.0])


def test_constant_columns_are_left_out_and_named() -> None:
    Y = np.column_stack([NORMAL, np.where(NORMAL > 0, 7.5, NAN)])
    found = output_kinds(["a", "b"], Y)
    assert [kind.name for kind in found.kinds] == ["a"] and found.constants == {"b": 7.5}
    assert "'b' is 7.5 wherever it is observed" in found.notes[0]
    with pytest.raises(TableError, match=r"All outputs, \['b'\], are constant"):
        output_kinds(["b"], Y[:, 1:])


def test_what_a_user_says_is_followed_or_refused() -> None:
    Y = np.column_stack([np.exp(NORMAL), NORMAL, np.full(400, NAN)])
    names = ["a", "b", "c"]
    assert output_kinds(names[:2], Y[:, :2], "continuous").kinds[0].kind == "continuous"
    said = {"a": "binary", "b": (0, 1, 2), "d": "count"}
    with pytest.raises(TableError) as caught:
        output_kinds(names, Y, said)
    assert len(caught.value.problems) == 4
    for words in (
        "A kind is given for ['d']",
        "Column 'a' is binary (0 or 1), and holds",
        "The kind of 'b' is (0, 1, 2)",
        "Column 'c' is never observed: all 400 cells are missing",
    ):
        assert words in str(caught.value)
    with pytest.raises(TableError, match=r"'b' is positive.* -1\.\d+ in row \d+.* and \d+ more"):
        output_kinds(["b"], Y[:, 1:2], "positive")


def test_an_earlier_fit_says_how_columns_are_read() -> None:
    fitted = FittedColumns(np.zeros(1), np.ones(1), (decide_kind("a", np.exp(NORMAL)),), {"b": 7.5})
    found = output_kinds(["a", "b"], np.array([[3.0, NAN], [NAN, 7.5]]), None, fitted)
    assert found.kinds == fitted.kinds and found.constants == {"b": 7.5}
    with pytest.raises(
        TableError, match=r"'a' is positive, as its logarithm, and holds 0.0 in row"
    ):
        output_kinds(["a", "b"], np.array([[0.0, NAN]]), None, fitted)


def test_rounding_makes_no_column_vary() -> None:
    """Neither of its values nor of their logarithms, whose skewness would be one of rounding."""
    rounded = np.where(NORMAL > 0, 0.3, 0.1 + 0.2)
    found = output_kinds(["a", "b"], np.column_stack([NORMAL, rounded]))
    assert list(found.constants) == ["b"] and not found.doubtful
    large = 1e15 + np.round(np.exp(NORMAL))  # whole numbers, skewed
    assert large.min() < large.max()
    assert decide_kind("n", large).transform == Identity()


def test_kinds_of_columns_whose_names_cannot_be_ordered() -> None:
    with pytest.raises(TableError, match=r"A kind is given for \[1, 'c'\], and the outputs are"):
        output_kinds(["a"], NORMAL[:, None], {1: "count", "c": "count"})


def hard_columns() -> dict[str, np.ndarray]:
    """Columns whose kinds a rounding, an overflow or another order of the rows could change."""
    rng = np.random.default_rng(5)
    sources = rng.gamma(1.0, 1.0, (300, 2))
    found = {
        "sum": sources @ [0.6, 0.7] + 0.2 * rng.random(300),
        "one": sources @ [1.0, 0.2] + 0.2 * rng.random(300),
        "two": sources @ [0.1, 1.0] + 0.2 * rng.random(300),
        "product": np.exp(rng.standard_normal(300)),
        "zeros": np.where(rng.random(300) < 0.2, 0.0, np.exp(rng.standard_normal(300))),
        "far": 1e8 + rng.exponential(size=300),
        "nearly still": 1e8 + 1e-6 * rng.standard_normal(300),
        "still": 1e8 + 1e-8 * rng.standard_normal(300),
        "outlier": np.append(rng.standard_normal(299), 1e6),
        "positive outlier": np.append(rng.exponential(size=299), 1e6),
    }
    for values in found.values():
        values[rng.random(300) < 0.1] = np.nan
    return found


def kinds_in_units(columns: dict[str, np.ndarray], unit: float = 1.0, **more: Any) -> Any:
    """Kind, transform and shift in units of each column; the values of constants in units."""
    found = output_kinds(tuple(columns), np.column_stack(list(columns.values())), **more)
    kinds = {
        k.name: (k.kind, type(k.transform), getattr(k.transform, "shift", 0.0) / unit)
        for k in found.kinds
    }
    return kinds, {name: value / unit for name, value in found.constants.items()}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [2.0**10, 0.1, 2.0**660, 2.0**-660, 1e300, 1e-300])
def test_kinds_do_not_depend_on_units(unit: float) -> None:
    """Third powers of 1e200 overflow, and those of 1e-200 are 0; floats above 2^53 are whole."""
    columns = hard_columns()
    kinds, constants = kinds_in_units(columns)
    transforms = {name: kind[1] for name, kind in kinds.items()}
    assert transforms["product"] is transforms["zeros"] is transforms["positive outlier"] is Log
    assert transforms["sum"] is transforms["far"] is transforms["outlier"] is Identity
    assert list(constants) == ["still"]
    others, in_units = kinds_in_units({k: v * unit for k, v in columns.items()}, unit)
    assert others.keys() == kinds.keys() and in_units.keys() == constants.keys()
    for name, (kind, transform, shift) in others.items():
        assert (kind, transform) == kinds[name][:2], name
        np.testing.assert_allclose(shift, kinds[name][2], rtol=1e-14)
    np.testing.assert_allclose(in_units["still"], constants["still"], rtol=1e-14)


@pytest.mark.parametrize("seed", range(8))
def test_kinds_do_not_depend_on_the_order_of_rows_and_columns(seed: int) -> None:
    """Whether a logarithm helps is tried on blocks of rows that follow each other, in time.

    With 60 rows it is a close call, which other blocks of rows decide otherwise.
    """
    rng = np.random.default_rng(seed)
    Y = rng.gamma(1.0, 1.0, (60, 2)) @ [[1.0, 0.2, 0.6], [0.1, 1.0, 0.7]]
    columns = dict(zip("abc", (Y + 2.0 * rng.random((60, 3))).T, strict=True))
    X, tasks = np.arange(60.0)[:, None] % 20, np.repeat(["b", "a", "c"], 20)
    expected = kinds_in_units(columns, order=in_order(tasks, X))
    for _ in range(3):
        rows = rng.permutation(60)
        moved = {name: columns[name][rows] for name in rng.permutation(list(columns)).tolist()}
        assert kinds_in_units(moved, order=in_order(tasks[rows], X[rows])) == expected


def test_a_constant_input_has_the_same_value_for_any_order_of_the_rows() -> None:
    X = np.column_stack([np.arange(5.0), 48.85 + np.spacing(48.85) * np.array([0, 1, 0, -1, 0])])
    found = output_kinds(["a"], X[:, :1])
    for rows in ([0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [3, 4, 0, 1, 2]):
        _, columns, _ = scale_inputs(["t", "lat"], X[rows], X[rows, 0], found)
        assert columns.centre[1] == 48.85
