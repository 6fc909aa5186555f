"""SPE10, and its study, from files made in the format of the published ones."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from experiments import spe10 as study
from gpflow_bae.datasets import spe10
from tests.experiments.commands import call

NX, NY, NZ = spe10.SHAPE
EVERY = 10


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Smooth fields along x and y that go together."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "spe10").mkdir()
    z, y, x = np.meshgrid(*map(np.arange, (NZ, NY, NX)), indexing="ij")
    smooth = np.sin(x / 15.0) + np.cos(y / 30.0)
    (0.2 + 0.05 * smooth).astype(np.float32).tofile(folder / "spe10" / "spe_phi.dat", " ", "%.4f")
    fields = np.stack([np.exp(smooth), np.exp(2.0 * smooth), np.exp(-smooth + 0.01 * z)])
    fields.astype(np.float32).tofile(folder / "spe10" / "spe_perm.dat", " ", "%.4g")
    return folder


def test_cells_are_where_the_format_has_them(data_dir: pathlib.Path) -> None:
    table = spe10.load(data_dir, EVERY, 0.5, seed=1)
    shape = tuple(-(-n // EVERY) for n in spe10.SHAPE)
    assert table.X.shape == (1, np.prod(shape), 3) and table.Y.shape[-1] == 4
    x, y, z = EVERY * table.X[0].T
    smooth = np.sin(x / 15.0) + np.cos(y / 30.0)
    expected = np.stack([0.2 + 0.05 * smooth, smooth, 2.0 * smooth, 0.01 * z - smooth], 1)
    np.testing.assert_allclose(table.truth[0], expected, atol=1e-3)  # four digits in the files
    assert abs(table.test_mask.mean() - 0.5) < 0.03
    np.testing.assert_array_equal(np.isnan(table.Y), table.test_mask)


def test_holes_are_filled(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Of 1188 places, a sixteenth of them without any observation; the mean has an SMSE of 1."""
    result = call(
        study.STUDY,
        tmp_path / "run",
        "--model=nearest_neighbours",
        f"--every={EVERY}",
        "--num_steps=300",
        "--batch_size=200",
        "--num_neighbours=8",
        f"--data_dir={data_dir}",
    )
    assert result["metrics"]["smse"] < 0.3
    assert 0.7 < result["metrics"]["coverage_90"] <= 1.0


def test_other_files_are_refused(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="por_perm_case2a.zip"):
        spe10.load(tmp_path)
    (tmp_path / "spe10").mkdir()
    for name in ("spe_phi.dat", "spe_perm.dat"):
        (tmp_path / "spe10" / name).write_text("0.1 0.2")
    with pytest.raises(ValueError, match="holds 2 numbers, and 1 times 60 x 220 x 85 = 1122000"):
        spe10.load(tmp_path)
    with pytest.raises(ValueError, match="missing is 1.0"):
        spe10.load(data_dir, missing=1.0)
