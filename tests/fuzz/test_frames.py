"""Frames that users have, and arguments that do not fit them: read, or all problems said."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pandas as pd
from hypothesis import strategies as st

from gpflow_bae.impute import Imputer
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import SCALARS, arrays, mutated

LENGTHS = st.sampled_from([0, 1, 2, 6])
COLUMNS: dict[str, Any] = {
    "numbers": lambda n: np.linspace(-1.0, 1.0, n),
    "holes": lambda n: np.where(np.arange(n) % 2, np.nan, np.arange(n)),
    "nothing": lambda n: np.full(n, np.nan),
    "constant": lambda n: np.ones(n),
    "one place": lambda n: np.full(n, 48.85),
    "one place, rounded": lambda n: 48.85 + 1e-14 * (np.arange(n) % 3),
    "far from zero": lambda n: 2**53 + 1 + np.arange(n),
    "infinity": lambda n: np.where(np.arange(n) == 0, np.inf, 1.0),
    "huge": lambda n: 1e30 * np.arange(n),
    "tiny": lambda n: 1e-300 * np.arange(n),
    "counts": lambda n: np.arange(n) % 3,
    "truth": lambda n: np.arange(n) % 2 == 0,
    "nullable": lambda n: pd.array([None, *range(1, n)][:n], dtype="Int64"),
    "text": lambda n: [f"word {i}" for i in range(n)],
    "numbers as text": lambda n: [f"{i}.5" for i in range(n)],
    "mixed": lambda n: [[1, "a", None, 2.5, pd.NA, {}][i % 6] for i in range(n)],
    "categories": lambda n: pd.Categorical(["a", "b"] * n)[:n],
    "complex": lambda n: np.arange(n) * 1j,
    "dates": lambda n: pd.date_range("2024-01-01", periods=n),
    "dates of a zone": lambda n: pd.date_range("2024-03-30", periods=n, tz="Europe/Berlin"),
    "backwards": lambda n: pd.date_range("2024-01-01", periods=n)[::-1],
    "equal dates": lambda n: pd.DatetimeIndex(["2024-01-01"] * n),
    "dates and none": lambda n: pd.DatetimeIndex([pd.NaT, *pd.date_range("2024", periods=n)])[:n],
    "ISO dates": lambda n: [f"2024-01-{i + 1:02d}" for i in range(n)],
    "differences": lambda n: pd.to_timedelta(np.arange(n), "h"),
    "periods": lambda n: pd.period_range("2024-01", periods=n, freq="M"),
    "quarters": lambda n: pd.period_range("2000Q1", periods=n, freq="Q"),
    "old dates": lambda n: np.datetime64("1600-01-01", "s") + np.arange(n) * np.timedelta64(1, "D"),
    "old ISO dates": lambda n: [f"0999-01-{i + 1:02d}" for i in range(n)],
    "digits": lambda n: 20231229 + np.arange(n),
    "named months": lambda n: [f"{i + 1}-Feb-2024" for i in range(n)],
    "truth as text": lambda n: ["True", "False"] * (n // 2) + ["true"] * (n % 2),
    "seconds since 1970": lambda n: 1.7e9 + np.arange(n),
    "fill values": lambda n: np.where(np.arange(n) % 3, np.arange(n), -999.9).astype(np.float32),
    "float16": lambda n: np.arange(n, dtype=np.float16),
}
NAMES = st.sampled_from(["a", "b", "t", "", "a b", 0, 1.5, None, ("a", "b"), "é", "a_sd"])


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    length = draw(LENGTHS)
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=4))
    frame = pd.DataFrame({i: COLUMNS[kind](length) for i, kind in enumerate(kinds)})
    names = ["t", "a", "b", "c"][: len(kinds)]
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, min_size=len(kinds), max_size=len(kinds)))
    frame.columns = pd.Index(names, dtype=object)
    if length and draw(st.integers(0, 4)) == 0:
        frame.index = pd.Index([7] * length)
    elif draw(st.integers(0, 4)) == 0:
        frame.index = pd.date_range("2024", periods=length, name=draw(st.sampled_from([None, "t"])))
    return frame


@hypothesis.given(
    frames(),
    st.sampled_from([(), ["a"], ["a", "b"], ["nowhere"], "a", [0], None, ["a", "a"]]),
    st.none() | st.sampled_from(["t", "nowhere", "", 0]),
    st.sampled_from([(), ["b"], "b", [1.5]]),
    st.none() | st.sampled_from(["b", "t", 3]),
)
@cases(60)
def test_frames(frame: pd.DataFrame, outputs: Any, time: Any, inputs: Any, task: Any) -> None:
    imputer = answered(lambda: Imputer(outputs=outputs, time=time, inputs=inputs, task=task))
    user = None if imputer is None else answered(lambda: imputer.read(frame))
    if user is not None:
        assert_finite(user.table.X)
        assert np.isfinite(user.table.Y[user.table.observed]).all()
        assert np.abs(user.table.X).max() < 1e3
        filled = user.fill(*np.ones((2, *user.table.Y.shape)))
        for name in frame.columns:
            seen = np.ones(len(frame), bool)
            if name in user.outputs:
                seen = ~user.missing[:, user.outputs.index(name)]
            if list(frame.columns).count(name) == 1:
                pd.testing.assert_series_equal(
                    filled[name][seen], frame[name][seen], check_dtype=frame[name].dtype != object
                )


@hypothesis.given(st.integers(-(2**20), 2**20), st.sampled_from([np.float64, np.int64, str]))
@cases(20)
def test_shifted_times_are_the_same_times(shift: int, dtype: Any) -> None:
    """Of inputs that a model sees nothing is left of an origin, in whatever type it comes."""
    times = np.arange(8)
    frame = pd.DataFrame({"t": times, "a": np.sin(times)})
    expected = Imputer(["a"], time="t").read(frame).table.X
    moved = frame.assign(t=(times + 1024 * shift).astype(dtype))
    found = Imputer(["a"], time="t").read(moved).table.X
    np.testing.assert_allclose(found, expected, atol=1e-6)


@hypothesis.given(arrays() | mutated(np.eye(6)[:, :2]), arrays() | mutated(np.eye(6)[:, 1:]))
@cases(60)
def test_arrays(X: Any, Y: Any) -> None:
    user = answered(lambda: Imputer().read(X, Y))
    if user is not None:
        assert_finite(user.table.X)


@hypothesis.given(
    st.dictionaries(
        st.sampled_from(["latent_dim", "num_steps", "seed", "settings", "kinds"]),
        SCALARS,
        min_size=1,
        max_size=2,
    ),
)
@cases(10)
def test_wrong_settings(options: dict[str, Any]) -> None:
    """Few are right, and those are of a fit of one step."""
    X = np.arange(6.0)[:, None]
    Y = np.sin([1.0, 2.0] * X)
    Y[2, 0] = np.nan
    arguments = {"num_steps": 1, "progress": False, **options}

    def filled() -> Any:
        return Imputer(**arguments).fit(X, Y).impute().filled

    found = answered(filled)
    if found is not None:
        assert_finite(found)
