"""The study of TSI-Bench: scores are over the hidden cells of the test windows."""

import pathlib

import numpy as np
import pytest

from experiments import tsi_bench as study
from gpflow_bae.datasets import tsi_bench
from tests.experiments.commands import call


def windows(number: int, rng: np.random.Generator) -> tsi_bench.Windows:
    Y = np.cumsum(rng.normal(size=(number, 12, 3)), axis=1)
    return tsi_bench.Windows(Y, rng.uniform(size=Y.shape) < 0.2)


def test_scores_are_of_the_hidden_cells(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Straight lines between the observed hours of a window, as NumPy draws them."""
    rng = np.random.default_rng(0)
    parts = {part: windows(number, rng) for part, number in (("train", 40), ("test", 10))}
    monkeypatch.setattr(tsi_bench, "load", lambda *_: parts)
    found = call(study.STUDY, tmp_path, "--model=linear_interpolation")["metrics"]
    test = parts["test"]
    errors = []
    for t, p in np.ndindex(10, 3):
        hidden = test.hidden[t, :, p]
        hours = np.arange(12.0)
        line = np.interp(hours, hours[~hidden], test.Y[t, ~hidden, p])
        errors.append((line - test.Y[t, :, p])[hidden])
    missed = np.concatenate(errors)
    assert found["mae"] == pytest.approx(np.abs(missed).mean(), rel=1e-9)
    assert found["mse"] == pytest.approx(np.square(missed).mean(), rel=1e-9)
    assert 0.0 < found["crps"] < found["mae"] * 1.5 and 0.5 < found["coverage_90"] <= 1.0


def test_a_baseline_has_no_choice_of_windows(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Exception, match="--fit_to is for --model=imputer"):
        call(study.STUDY, tmp_path, "--model=linear_interpolation", "--fit_to=both")
