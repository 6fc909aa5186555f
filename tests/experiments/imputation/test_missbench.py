"""The study of MissBench's tables: scores are over the hidden cells."""

import pathlib

import numpy as np
import pytest

from experiments import missbench as study
from gpflow_bae.datasets import missbench
from tests.experiments.commands import call


def test_scores_are_of_the_hidden_cells(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By NumPy; a column that is never observed is filled with zeros."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((40, 1)) + 0.3 * rng.standard_normal((40, 3))
    hidden = rng.random(Y.shape) < 0.2
    hidden[:, 2] = True
    means = np.zeros(Y.shape)
    table = missbench.HiddenTable(Y, hidden, {"column_mean": means})
    monkeypatch.setattr(missbench, "load", lambda *_: table)
    of_means = call(study.STUDY, tmp_path / "means", "--model=column_mean")["metrics"]
    assert of_means["rmse"] == pytest.approx(np.sqrt(np.mean(Y[hidden] ** 2)))
    columns = [np.sqrt(np.mean(Y[hidden[:, p], p] ** 2)) for p in range(3)]
    assert of_means["median_rmse"] == pytest.approx(np.median(columns))
    assert of_means["mae"] == pytest.approx(np.abs(Y[hidden]).mean())
    found = call(study.STUDY, tmp_path / "imputer", "--model=imputer")["metrics"]
    assert found["rmse"] < of_means["rmse"] and 0.0 < found["coverage_90"] <= 1.0
