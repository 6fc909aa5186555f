"""Columns at a limit, values that cannot be right, and functions of each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpflow_bae.core.output_transforms import Log
from gpflow_bae.impute import Imputer
from gpflow_bae.impute.reading.columns import output_kinds
from gpflow_bae.impute.reading.frames import read_frame
from gpflow_bae.impute.reading.kinds.column_kind import ColumnKind
from gpflow_bae.impute.reading.kinds.limits import doubtful_values
from gpflow_bae.impute.reading.kinds.logarithms import near_the_range
from gpflow_bae.impute.reading.user_table import CellPredictions
from gpflow_bae.impute.report import outline

ROWS = 300


def test_values_at_a_limit_are_not_exceeded_and_are_named() -> None:
    """Visibility of at most 10 in more than half of the rows, and rain of 0 in half of them."""
    rng = np.random.default_rng(0)
    visibility = np.minimum(10.0, 10.5 + 3.0 * rng.standard_normal(ROWS))
    rain = np.maximum(0.0, rng.standard_normal(ROWS)).round(2)
    humidity = np.clip(80.0 + 12.0 * rng.standard_normal(ROWS), 0.0, 100.0).round(1)
    wind = 8.0 + rng.standard_normal(ROWS)
    wind[7] = 1048.0
    names = ("visibility", "rain", "humidity", "wind")
    found = output_kinds(names, np.stack([visibility, rain, humidity, wind], -1))
    kinds = {kind.name: kind for kind in found.kinds}
    assert kinds["visibility"].range == (-np.inf, 10.0) and kinds["rain"].range[0] == 0.0
    cells = np.array([12.0]), np.array([1.0]), np.array([9.0]), np.array([14.0])
    assert [float(v[0]) for v in kinds["visibility"].settle(*cells)] == [10.0, 1.0, 9.0, 10.0]
    assert ColumnKind.from_dict(kinds["visibility"].to_dict()) == kinds["visibility"]
    of = {name: [note for note in found.notes if repr(name) in note] for name in names}
    assert "is 10, its greatest value, in" in of["visibility"][0]
    assert "is 0, its least value, in" in of["rain"][0]
    assert "kinds={'humidity': (0, 100)}" in of["humidity"][-1]
    assert "holds 1048 in row 8, and all its other values are between" in of["wind"][0]
    said = output_kinds(names[:1], visibility[:, None], {"visibility": (0, 10)})
    assert not said.notes


def test_a_percentage_beyond_100_is_named_and_growth_is_not() -> None:
    rng = np.random.default_rng(0)
    humidity = np.clip(80.0 + 12.0 * rng.standard_normal(ROWS), 0.0, 99.0)
    humidity[[4, 9]] = 130.0, -3.0
    growth = 50.0 + 40.0 * rng.standard_normal(ROWS)
    found = output_kinds(("humidity [%]", "growth (%)"), np.stack([humidity, growth], -1))
    (note,) = found.notes
    assert "'humidity [%]' is a percentage by its name, and holds 130 in row 5 and 1 more" in note
    assert "kinds={'humidity [%]': (0, 100)}" in note
    assert not output_kinds(
        ("humidity [%]",), humidity[:, None], {"humidity [%]": "continuous"}
    ).notes
    humidity[[4, 9]] = 9999.0  # a missing value, which has a note of its own
    assert not output_kinds(("humidity [%]",), humidity[:, None]).notes


@pytest.mark.parametrize(("value", "is_doubtful"), [(1048.0, True), (-999.0, True), (12.0, False)])
def test_values_far_from_all_others_are_doubtful(value: float, is_doubtful: bool) -> None:
    column = 8.0 + np.random.default_rng(0).standard_normal(ROWS)
    column[[3, 7]] = np.nan, value
    assert doubtful_values(column) == [value] * is_doubtful


def test_the_verdict_names_columns_whose_unit_is_a_doubtful_value() -> None:
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 2))
    Y[7, 1] = 1048.0
    Y[::9] = np.nan
    verdict = Imputer(method="mean", progress=False).check(np.arange(60.0)[:, None], Y).verdict
    assert "Column 'y1' holds 1048, far from all its other values" in verdict
    assert "Column 'y0'" not in verdict


def test_ordinary_columns_have_no_notes() -> None:
    rng = np.random.default_rng(0)
    Y = np.stack([rng.standard_normal(ROWS), rng.gamma(1.0, 1.0, ROWS), rng.poisson(3.0, ROWS)], -1)
    found = output_kinds(("a", "b", "c"), Y)
    assert found.notes == ()
    assert found.kinds[0].limits == (-np.inf, np.inf)


def test_functions_of_each_other_are_all_logarithms() -> None:
    """An area and a circumference are skewed, and their compactness is hardly; a fourth is apart.

    The logarithm of the compactness is a sum of the others'.
    """
    rng = np.random.default_rng(0)
    radius = np.exp(0.25 * rng.standard_normal(ROWS))
    length = np.exp(0.12 * np.abs(rng.standard_normal(ROWS)) + 0.1 * rng.gamma(1.0, 1.0, ROWS))
    area, around = 12.0 * radius**2, 13.0 * radius * length
    apart = 5.0 + rng.random(ROWS)
    Y = np.stack([area, around, area / around**2, apart], axis=-1)
    names = ("area", "around", "compactness", "apart")
    alone = output_kinds(names[2:], Y[:, 2:]).kinds[0]
    assert not isinstance(alone.transform, Log)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    kinds = output_kinds(names, Y).kinds
    assert [isinstance(kind.transform, Log) for kind in kinds] == [True, True, True, False]
    said = output_kinds(names, Y, {"compactness": "continuous"}).kinds[2]
    assert not isinstance(said.transform, Log)


def test_predictions_are_kept_near_what_was_observed() -> None:
    """A logarithm within a quarter of a standard deviation; a line may go on for its length."""
    limits = np.array([[-1.0, -1.0], [2.0, 2.0]])
    logged = np.array([True, False])
    mean = np.array([[0.3, 0.3], [40.0, 4.9], [-40.0, -40.0]])
    found = near_the_range(mean, limits, 1.0, logged)
    np.testing.assert_allclose(found, [[0.3, 0.3], [2.25, 4.9], [-1.25, -4.0]])


def test_cells_that_are_filled_beyond_the_observed_range_are_listed() -> None:
    frame = pd.DataFrame({"t": np.arange(5.0), "a": [1.0, np.nan, 3.0, np.nan, 2.0]})
    user = read_frame(frame, ["a"], time="t")
    mean = np.array([[[1.0], [2.0], [9.0], [4.5], [2.0]]])
    predicted = CellPredictions(mean, np.ones(mean.shape), mean, mean)
    found = outline.beyond(user, predicted)
    assert [tuple(cell) for cell in found] == [("a", "row 4", 4.5, 3.0)]
    (words,) = outline.beyond_text(found)
    assert "1 cell was filled outside" in words and "row 4: 4.5, beyond 3" in words
    assert outline.beyond_text([]) == []
