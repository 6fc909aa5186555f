"""Tables: scaled by their training rows, on the roll, and asked for where they are missing."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

from gpflow_bae.datasets import tabular

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "madelon").is_dir()), None)
needs_data = pytest.mark.skipif(
    DATA is None, reason="Madelon and Coil 2000 are not on this machine"
)


def test_scaling_sees_training_rows_only() -> None:
    train, test = np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[4.0, 7.0]])
    scaled, other = tabular.scale_to_unit(train, test)
    np.testing.assert_array_equal(scaled, [[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(other, [[2.0, 2.0]])  # outside of [0, 1], and not wrapped


def test_swiss_roll_lies_on_the_roll() -> None:
    table = tabular.swiss_roll(seed=1, num_rows=400)
    assert table.train.shape == (300, 3) and table.test.shape == (100, 3)
    # Undo the scaling with two rows, and the roll's equation holds for all.
    t = table.train_labels
    exact = np.stack([t * np.cos(t), t * np.sin(t)], 1)
    for column, values in ((0, exact[:, 0]), (2, exact[:, 1])):
        slope, offset = np.polyfit(table.train[:, column], values, 1)
        np.testing.assert_allclose(slope * table.train[:, column] + offset, values, atol=1e-4)
    np.testing.assert_array_equal(table.train, tabular.swiss_roll(1, 400).train)
    assert not np.array_equal(table.train, tabular.swiss_roll(2, 400).train)


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"madelon_train.data.gz.*data_dir"):
        tabular.madelon(tmp_path)
    with pytest.raises(FileNotFoundError, match="ticdata2000.txt"):
        tabular.coil2000(tmp_path)


@pytest.fixture
def coil(tmp_path: pathlib.Path) -> pathlib.Path:
    """Files as those of Coil 2000, of twelve rows and five others."""
    rng, folder = np.random.default_rng(0), tmp_path / "coil2000"
    folder.mkdir()
    known = rng.integers(0, 9, (12, 86))
    known[:, 85] = np.arange(12) % 2
    np.savetxt(folder / "ticdata2000.txt", known, "%d")
    np.savetxt(folder / "ticeval2000.txt", rng.integers(0, 9, (5, 85)), "%d")
    np.savetxt(folder / "tictgts2000.txt", [0, 1, 0, 0, 1], "%d")
    return tmp_path


def test_coil_is_tested_on_a_quarter_or_on_the_other_file(coil: pathlib.Path) -> None:
    """As in table 1 of the paper all rows are for training, and the others are the test."""
    quarter, whole = tabular.coil2000(coil), tabular.coil2000(coil, test_share=0.0)
    assert (len(quarter.train), len(quarter.test), len(quarter.labelled)) == (9, 3, 5)
    assert (len(whole.train), len(whole.train_labels)) == (12, 12)
    np.testing.assert_array_equal(whole.test, whole.labelled)
    assert whole.train.min() == 0.0 and whole.train.max() == 1.0


@needs_data
def test_real_tables() -> None:
    table = tabular.madelon(DATA)
    assert [len(t) for t in table[:3]] == [2000, 1800, 600] and table.train.shape[1] == 500
    assert set(table.labels) == {-1, 1} and table.labels.sum() == 0
    coil = tabular.coil2000(DATA, seed=0)
    assert len(coil.train) + len(coil.test) == 5822 and len(coil.labelled) == 4000
    assert coil.labels.sum() == 238  # published count of caravan policies
    for found in (table, coil):
        assert found.train.min() == 0.0 and found.train.max() == 1.0
