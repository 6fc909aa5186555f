"""Jura: the published split, from the published files only."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import jura

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "jura").is_dir()), None)
needs_data = pytest.mark.skipif(DATA is None, reason="Jura is not on this machine")


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"prediction.dat.*validation.dat.*data_dir"):
        jura.load(tmp_path)


def test_other_files_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "jura").mkdir()
    for name in ("prediction.dat", "validation.dat"):
        (tmp_path / "jura" / name).write_text("rownames,Xloc,Yloc\n1,2.0,3.0\n")
    with pytest.raises(ValueError, match=r"prediction.dat has the SHA-256 .*Copy it again"):
        jura.load(tmp_path)


@needs_data
def test_the_published_split() -> None:
    table = jura.load(DATA)
    assert table.X.shape == (1, 359, 2) and table.output_names == ("Ni", "Zn", "Cd")
    # Goovaerts's split: 100 validation sites lose Cd, and nothing else is missing.
    assert table.test_mask.sum((0, 1)).tolist() == [0, 0, 100]
    assert (~table.observed).sum((0, 1)).tolist() == [0, 0, 100]
    assert table.test_mask[0, 259:, 2].all()
    # First line of prediction.dat: site (2.386, 3.077), Cd 1.74, Ni 21.32, Zn 92.56.
    np.testing.assert_array_equal(table.X[0, 0], [2.386, 3.077])
    np.testing.assert_array_equal(table.Y[0, 0], [21.32, 92.56, 1.74])
