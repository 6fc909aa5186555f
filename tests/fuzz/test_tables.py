"""Files that are no tables, and tables that are hardly any: said, or read."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from gpflow_bae.data import MultiOutputTable, SparseTable
from gpflow_bae.impute.reading import frames, table_files
from tests.fuzz.answers import answered, assert_finite, cases
from tests.fuzz.strategies import arrays

CELLS = st.one_of(
    st.sampled_from(
        ["", "NA", "nan", "inf", "-", "1,5", "1e400", "1e-400", "0x1", "−3", "31.02.2024"]
    ),
    st.floats(width=32).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.text(max_size=4),
)
LINES = st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Bytes, or lines of cells with a header that fits them more or less."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=60))
    separator = draw(st.sampled_from([",", ";", "\t"]))
    header = draw(st.lists(st.sampled_from(["a", "b", "time", "", "a b"]), max_size=4))
    lines = [separator.join(cells) for cells in [header, *draw(LINES)]]
    encoding = draw(st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]))
    return "\n".join(lines).encode(encoding, errors="replace")


@hypothesis.given(files(), st.sampled_from([None, "a", "time", "nowhere"]))
@cases(60)
def test_any_file_is_read_or_refused(content: bytes, time: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.csv"
        path.write_bytes(content)

        def read() -> Any:
            return frames.read_frame(table_files.read_file(path), outputs=["b"], time=time).table

        table = answered(read)
    if table is not None:
        assert_finite(table.X)
        assert np.isfinite(table.Y[table.observed]).all()


@hypothesis.given(arrays(), arrays(), st.none() | arrays(), st.none() | arrays())
@cases(150)
def test_any_arrays_are_a_table_or_are_not(X: Any, Y: Any, truth: Any, mask: Any) -> None:
    table = answered(lambda: MultiOutputTable(X, Y, truth, mask))
    if table is not None:
        assert_finite(table.X)
        assert table.Y.ndim == 3 and not np.isinf(table.Y).any()


@hypothesis.given(arrays(), arrays(), arrays(), st.none() | st.integers(-2, 5))
@cases(150)
def test_any_triplets_are_a_sparse_table_or_are_not(
    rows: Any, columns: Any, values: Any, most: int | None
) -> None:
    table = answered(lambda: SparseTable(rows, columns, values, max_entries=most))
    if table is not None:
        assert_finite(table.triplets()["values"])
