"""The study of TSI-Bench: scores are over the hidden cells of the test windows."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from absl import app

from experiments import tsi_bench as study
from experiments.baselines import saits
from gpflow_bae import impute
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


class Flat:
    """An imputer that fills everything with 0, from -1 to 1."""

    def __init__(self, **settings: object):
        pass

    def fit(self, X: np.ndarray, Y: np.ndarray) -> Flat:
        assert len(Y) == 40
        return self

    def predict_cells(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, ...]:
        ones = np.ones_like(Y)
        return 0.0 * ones, ones, -ones, ones


def test_intervals_are_judged_on_test_and_on_validation_windows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    parts = {part: windows(number, rng) for part, number in (("train", 40), ("val", 15))}
    parts["test"] = windows(10, rng)
    monkeypatch.setattr(tsi_bench, "load", lambda *_: parts)
    monkeypatch.setattr(impute, "Imputer", Flat)
    found = call(study.STUDY, tmp_path, "--model=imputer")["metrics"]
    for name, part in (("coverage_90", "test"), ("validation_coverage_90", "val")):
        hidden = parts[part].Y[parts[part].hidden]
        assert found[name] == pytest.approx(np.mean(np.abs(hidden) <= 1.0))


def test_a_baseline_has_no_choice_of_windows(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Exception, match="--fit_to is for --model=imputer"):
        call(study.STUDY, tmp_path, "--model=linear_interpolation", "--fit_to=both")


def test_saits_sees_no_hidden_cell_but_those_of_validation_windows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    parts = {part: windows(10, rng) for part in ("train", "val", "test")}
    filled = parts["test"].Y + rng.normal(size=(10, 12, 3))

    def fill(dataset: str, given: dict[str, np.ndarray], seed: int) -> np.ndarray:
        assert (dataset, seed) == ("ett_h1", 3)
        assert set(given) == {"train", "val", "val_complete", "test"}
        for part, window in parts.items():
            np.testing.assert_array_equal(np.isnan(given[part]), window.hidden)
        return filled

    monkeypatch.setattr(tsi_bench, "load", lambda *_: parts)
    monkeypatch.setattr(saits, "fill", fill)
    found = call(study.STUDY, tmp_path, "--model=saits", "--dataset=ett_h1", "--seed=3")["metrics"]
    missed = (filled - parts["test"].Y)[parts["test"].hidden]
    assert set(found) == {"mae", "mse"}
    assert found["mae"] == pytest.approx(np.abs(missed).mean(), rel=1e-9)


def test_saits_without_its_package_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is trained; the folder can be used again."""
    rng = np.random.default_rng(0)
    parts = {part: windows(10, rng) for part in ("train", "val", "test")}
    monkeypatch.setattr(tsi_bench, "load", lambda *_: parts)
    monkeypatch.setattr(saits, "is_installed", lambda: False)
    with pytest.raises(app.UsageError, match=r"saits needs PyPOTS: pip install .*\[pypots\]"):
        call(study.STUDY, tmp_path, "--model=saits")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not saits.is_installed(), reason="PyPOTS is not installed")
def test_saits_fills_windows() -> None:
    """Cells that are seen stay, and others are finite."""
    rng = np.random.default_rng(0)
    parts = {part: windows(8, rng) for part in ("train", "val", "test")}
    given = {name: part.observed for name, part in parts.items()}
    given["val_complete"] = parts["val"].Y
    filled = saits.fill("italy_air", given, settings={"epochs": 1, "patience": 1})
    assert filled.shape == (8, 12, 3) and np.isfinite(filled).all()
    seen = ~parts["test"].hidden
    np.testing.assert_allclose(filled[seen], parts["test"].Y[seen], rtol=1e-6)
