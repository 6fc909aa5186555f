"""The page on extensions: its files, saved under their names in a folder of their own, run."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guides" / "extend.md"
BLOCK = re.compile(r"```\{code-block\} python\n:caption: (\w+\.py)\n\n(.*?)```", re.S)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """All files of the page."""
    files = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(files) == 8
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: pathlib.Path, *arguments: str) -> None:
    """Python in the folder, which finds the repository as the page says."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_extension_works_beside_the_others(folder: pathlib.Path) -> None:
    """In a fit, a chain, a file and a SavedModel; the guide too, which the page shows alone."""
    more = """
from cautious_guide import CautiousGuide
guide = CautiousGuide(LinearEncoder(5, 2))
own = models.VariationalAutoencoder(WideNormal(2), BasisDecoder(2, 5), guide, Laplace())
inference.fit_variational(own, (None, Y), settings, progress=False)
serving.export(Posterior.from_point(own, (None, Y)), "own", verbose=False)
"""
    program = (folder / "together.py").read_text(encoding="utf-8") + more
    (folder / "together.py").write_text(program, encoding="utf-8")
    run(folder, "together.py")
    assert list(folder.glob("together/1/saved_model.pb")) and list(folder.glob("own/1/*.pb"))


def test_an_experiment_leaves_a_row_and_a_page(folder: pathlib.Path) -> None:
    run(folder, "oscillations.py", "--preset=quick", "--out_dir=runs/oscillations")
    run(folder, *"-m experiments.report --collect runs/oscillations --results_dir=results".split())
    (row,) = json.loads((folder / "results" / "oscillations.json").read_text())
    assert row["command"] == "python oscillations.py --preset=quick --out_dir=OUT_DIR"
    assert row["settings"]["latent_dim"] == 2 and row["complete"]
    assert row["metrics"]["rmse"] < 0.1  # the mean curve's is 0.14, the noise 0.05
    assert (folder / "runs" / "oscillations" / "posterior.npz").exists()
    page = (folder / "results" / "runs" / "oscillations.md").read_text()
    assert "python oscillations.py --preset=quick" in page
