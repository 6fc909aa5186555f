"""What users pass by mistake: numbers, arrays and tables that are hard to bear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

NUMBERS = [0.0, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 1e300, 1e-300]
TYPES = [
    np.float64,
    np.float32,
    np.float16,
    np.int64,
    np.uint8,
    np.bool_,
    np.complex64,
    "U3",
    "datetime64[s]",
    object,
]
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
SCALARS = st.sampled_from(
    [
        *(0, 1, -1, 2, 3, 10**12, -(10**12), 2**70),
        *(0.0, 0.5, -0.5, 1.5, 1e-12, 1e12, 1e-300, 1e300, np.nan, np.inf, -np.inf),
        *(None, True, "", "a", b"1", [], [1], ["a"], (), {}, {"a": 1}, 1j),
        *(np.float32(0.5), np.int64(3), np.nan + 0 * np.ones(2), len),
    ]
)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Of any shape and type, as NumPy, lists, masked arrays or frames have them."""
    shape = draw(SHAPES)
    size = int(np.prod(shape))
    values = np.array(draw(st.lists(st.sampled_from(NUMBERS), min_size=size, max_size=size)))
    values = values.reshape(shape)
    kind = draw(st.sampled_from(["list", "masked", "frame", "ragged", *TYPES]))
    if kind == "list":
        return values.tolist()
    if kind == "masked":
        return np.ma.masked_array(values, mask=np.isnan(values))
    if kind == "frame" and values.ndim == 2:
        frame = pd.DataFrame(values)
        return frame.astype("Float64") if draw(st.booleans()) else frame
    if kind == "ragged":
        return [values, values[:1] if values.ndim else values]
    if kind in ("frame", "ragged"):
        return values
    if np.dtype(kind).kind in "iubM" and not np.isfinite(values).all():
        return values
    with np.errstate(all="ignore"):
        return values.astype(kind)


def _with(values: np.ndarray, number: float, share: float) -> np.ndarray:
    changed = values.astype(np.float64)
    changed.flat[: max(1, int(share * changed.size))] = number
    return changed


MUTATIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "as it is": lambda v: v,
    "one NaN": lambda v: _with(v, np.nan, 0.0),
    "half NaN": lambda v: _with(v, np.nan, 0.5),
    "all NaN": lambda v: _with(v, np.nan, 1.0),
    "infinity": lambda v: _with(v, np.inf, 0.0),
    "huge": lambda v: _with(v, 1e30, 0.5),
    "too large for float32": lambda v: _with(v, 1e300, 0.0),
    "tiny": lambda v: 1e-30 * v,
    "constant": lambda v: 0.0 * v + 7.0,
    "float16": lambda v: v.astype(np.float16),
    "integers": lambda v: v.astype(np.int64),
    "truth values": lambda v: v > 0,
    "objects": lambda v: v.astype(object),
    "objects with None": lambda v: np.where(v > 0, v, None),
    "text": lambda v: v.astype(str),
    "complex": lambda v: v.astype(complex),
    "dates": lambda v: v.astype("datetime64[s]"),
    "a list": lambda v: v.tolist(),
    "ragged": lambda v: [*v.tolist(), []],
    "masked": lambda v: np.ma.masked_array(v, mask=v > 0),
    "a frame": lambda v: pd.DataFrame(v.reshape(-1, v.shape[-1])),
    "a frame of text": lambda v: pd.DataFrame(v.reshape(-1, v.shape[-1]).astype(str)),
    "no rows": lambda v: v[..., :0, :],
    "no columns": lambda v: v[..., :0],
    "one row": lambda v: v[..., :1, :],
    "one column more": lambda v: np.concatenate([v, v[..., :1]], -1),
    "one column less": lambda v: v[..., :-1],
    "an axis more": lambda v: v[None],
    "an axis less": lambda v: v[0],
    "another order": lambda v: np.asfortranarray(v)[..., ::-1, :],
    "one task twice": lambda v: np.concatenate([v, v]),
    "nothing": lambda v: None,
    "a number": lambda v: 3.0,
}


def mutated(values: np.ndarray) -> st.SearchStrategy[Any]:
    """An array as it is, or what a user may take for it."""
    return st.sampled_from(sorted(MUTATIONS)).map(lambda name: _mutated(name, values))


def _mutated(name: str, values: np.ndarray) -> Any:
    with np.errstate(all="ignore"):
        return MUTATIONS[name](values)
