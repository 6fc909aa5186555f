"""The reader of MissBench's plain tables."""

import os
import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import missbench

_BESIDE = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and (pathlib.Path(d) / "missbench").exists()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="missbench is not in the data folder")


def test_missing_files_and_unknown_names(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"pah.npz not found.*data_dir"):
        missbench.load(tmp_path, "pah", "mar")
    with pytest.raises(ValueError, match="pattern must be one of .*, got 'points'"):
        missbench.load(tmp_path, "pah", "points")
    (tmp_path / "missbench").mkdir()
    np.savez(tmp_path / "missbench" / "pah.npz", mar_true=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="SHA-256"):
        missbench.load(tmp_path, "pah", "mar")


@needs_data
@pytest.mark.parametrize(
    ("pattern", "means", "best"), [("mcar", 1.063, 0.572), ("mar", 1.834, 0.739)]
)
def test_published_errors_are_those_of_the_tables(pattern: str, means: float, best: float) -> None:
    """Root mean squared errors of two methods that the tables came with."""
    table = missbench.load(DATA, "Student-Scores", pattern)
    assert table.Y.shape == (56, 13)
    np.testing.assert_array_equal(np.isnan(table.observed), table.hidden)
    for name, expected in (("column_mean", means), ("hyperimpute", best)):
        missed = (table.published[name] - table.Y)[table.hidden]
        assert np.sqrt(np.mean(missed**2)) == pytest.approx(expected, abs=5e-4)
        shown = ~table.hidden
        np.testing.assert_allclose(table.published[name][shown], table.Y[shown], atol=1e-4)
