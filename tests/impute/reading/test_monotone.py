"""Columns that go one way: which they are, and what their holes are filled with."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpflow_bae.impute import Imputer
from gpflow_bae.impute.reading.frames import read_frame
from gpflow_bae.impute.reading.kinds.column_kind import ColumnKind
from gpflow_bae.impute.reading.kinds.monotone import between_neighbours

TASKS, TIMES = np.array(["a", "b", "a", "a", "b", "a"]), np.array([3.0, 0, 1, 0, 1, 2])[:, None]
COLUMN = np.array([5.0, 9.0, np.nan, 1.0, np.nan, np.nan])  # a: 1, ?, ?, 5; b: 9, ?


def test_fills_are_between_those_before_and_after() -> None:
    values = np.array([0.0, 0.0, 7.0, 0.0, 2.0, 3.0])
    (found,) = between_neighbours(1, COLUMN, TASKS, TIMES, [values])
    np.testing.assert_array_equal(found, [0.0, 0.0, 5.0, 0.0, 9.0, 5.0])
    (found,) = between_neighbours(-1, -COLUMN, TASKS, TIMES, [-values])
    np.testing.assert_array_equal(found, [0.0, 0.0, -5.0, 0.0, -9.0, -5.0])
    (found,) = between_neighbours(-1, COLUMN, TASKS, TIMES, [values])  # a series that rises
    np.testing.assert_array_equal(found[[0, 2, 3, 5]], values[[0, 2, 3, 5]])


def test_a_column_goes_one_way_if_twenty_steps_do() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"t": np.tile(np.arange(15.0), 2), "s": np.repeat(["x", "y"], 15)})
    table["meter"] = [*np.cumsum(rng.exponential(size=15)), *np.cumsum(rng.exponential(size=15))]
    table["stock"], table["noise"] = -table["meter"], rng.standard_normal(30)
    table["step"] = np.tile(np.arange(15.0) // 5, 2)  # stands still at most steps
    names = ["meter", "stock", "noise", "step"]

    def directions(frame: pd.DataFrame, **roles: str) -> list[int]:
        user = read_frame(frame, names, **{"time": "t", "task": "s"} | roles)
        return [kind.direction for kind in user.columns.kinds]

    assert directions(table) == directions(table.sample(frac=1.0, random_state=1)) == [1, -1, 0, 0]
    assert directions(table.iloc[:20]) == [0] * 4  # eighteen steps
    said = read_frame(table, names, "t", task="s", kinds={"meter": "continuous"})
    assert [kind.direction for kind in said.columns.kinds] == [0, -1, 0, 0]
    plain = read_frame(table, names)
    assert not any(kind.direction for kind in plain.columns.kinds)
    kind = read_frame(table, names, "t", task="s").columns.kinds[1]
    assert (
        kind.describe().endswith(", never rises") and ColumnKind.from_dict(kind.to_dict()) == kind
    )


def test_a_meter_never_falls_in_what_is_filled_and_drawn() -> None:
    """With noise beside it that would pull fills below the reading before."""
    rng = np.random.default_rng(1)
    steps = rng.exponential(size=80) * (rng.random(80) < 0.6)
    table = pd.DataFrame({"t": np.arange(80.0), "meter": np.cumsum(steps)})
    holes = table.assign(meter=table["meter"].where(rng.random(80) > 0.3))
    imputer = Imputer(["meter"], time="t", method="gp", num_steps=30, progress=False).fit(holes)
    filled = imputer.impute()
    (drawn,) = imputer.draws(1, seed=0)
    assert (np.diff(filled["meter"]) >= 0.0).all() and (np.diff(drawn["meter"]) >= 0.0).all()
    hole = holes["meter"].isna()
    assert (filled["meter_lower"] <= filled["meter"])[hole].all()
    last, following = holes["meter"].ffill(), holes["meter"].bfill()
    assert (filled["meter_lower"] >= last)[hole & last.notna()].all()
    assert (filled["meter_upper"] <= following)[hole & following.notna()].all()
