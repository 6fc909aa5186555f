"""A series whose truth is known, holes that are scored as such, and small runs of their study."""

from __future__ import annotations

import json
import pathlib

import gpflow
import numpy as np
import pytest
from absl import app

from experiments.common import driver
from experiments.long_series import __main__ as long_series
from experiments.long_series import made, study
from gpflow_bae.datasets import healing_mnist
from tests.experiments.commands import call, parsed

pytestmark = pytest.mark.usefixtures("untraced_predictions")


def digits(_: str, num_train: int, num_test: int, **options: float) -> object:
    """Bright squares, somewhere else on each image, in place of MNIST."""
    rng = np.random.default_rng(0)
    images = np.zeros((num_train + num_test, 28, 28), np.uint8)
    for image, (row, column) in zip(images, rng.integers(6, 16, (len(images), 2)), strict=True):
        image[row : row + 6, column : column + 6] = 255
    labels = np.zeros(len(images), int)
    options = {"num_frames": 4} | options  # short ones are quick to compile
    return healing_mnist.build(images, labels, num_train, num_test, **options)


@pytest.mark.parametrize("kernel", [gpflow.kernels.Matern32(), gpflow.kernels.Matern52()])
def test_draws_have_the_covariance_of_the_kernel(kernel: gpflow.kernels.Kernel) -> None:
    """At irregular times, two of them nearly equal: within four standard errors of 20,000 draws."""
    times = np.array([0.0, 0.3, 0.3 + 1e-9, 1.5, 4.0])
    draws = made.draw(kernel, times, np.random.default_rng(0), 20_000)
    expected = kernel(times[:, None]).numpy()
    variance = np.outer(np.diag(expected), np.diag(expected)) + expected**2  # of a product
    error = draws @ draws.T / draws.shape[1] - expected
    assert (np.abs(error) < 4.0 * np.sqrt(variance / draws.shape[1])).all()
    np.testing.assert_allclose(draws[1], draws[2], atol=1e-3)


def test_the_series_is_what_it_says() -> None:
    """Twenty times to a unit, the noise asked for, and the shares of holes within four errors."""
    series = made.make(4000, 0.3, 0)
    again = made.make(4000, 0.3, 0)
    np.testing.assert_array_equal(series.Y, again.Y)
    assert series.Y.shape == (4000, 8) and series.Y.dtype == np.float32
    times = series.X[:, 0]
    assert (np.diff(times) >= 0.0).all() and times[-1] == pytest.approx(200.0, abs=1.0)
    np.testing.assert_allclose(series.truth.std(0), 1.0)
    noise = series.complete - series.truth
    assert abs(noise.std() / 0.3 - 1.0) < 4.0 / np.sqrt(2.0 * noise.size)
    there = ~np.isnan(series.Y)
    np.testing.assert_array_equal(series.Y[there], series.complete[there])
    empty = ~there.any(1)
    assert abs(empty.mean() - 0.2) < 4.0 * np.sqrt(0.2 * 0.8 / 4000)
    others = np.isnan(series.Y[~empty])
    assert abs(others.mean() - 0.1) < 4.0 * np.sqrt(0.09 / others.size)
    # One gap in every five units of time, a unit long; times end before its ends, by a twentieth.
    edges = np.flatnonzero(np.diff(np.r_[False, empty, False].astype(int)))
    first, last = times[edges[::2]], times[edges[1::2] - 1]
    assert (last - first < 1.0).all() and abs(np.mean(last - first) - 0.9) < 0.05
    assert len(set((first / 5.0).astype(int))) == len(first) == 40


def test_scores_are_of_hidden_cells_alone() -> None:
    """A prediction that is right there and wrong elsewhere is perfect, and the line is not."""
    X, truth = np.arange(4.0)[:, None], np.array([[0.0], [1.0], [4.0], [9.0]])
    Y = np.array([[0.0], [np.nan], [4.0], [np.nan]])
    hidden = np.where(np.isnan(Y), truth + 0.5, np.nan)
    holes = study.Holes((X, Y), None, hidden, truth, None)
    mean = np.where(np.isnan(Y), truth, 100.0)
    density = np.where(np.isnan(Y), -2.0, np.nan)
    found = study.score(holes, mean, np.ones_like(mean), density)
    assert (found["rmse"], found["rmse_truth"], found["nll"]) == (0.5, 0.0, 2.0)
    assert found["rmse_truth_gaps"] == 0.0 and found["coverage_90"] == 1.0
    np.testing.assert_array_equal(study.interpolated(X, Y)[:, 0], [0.0, 2.0, 4.0, 4.0])
    assert found["rmse_interpolated"] == pytest.approx(np.sqrt((0.5**2 + 5.5**2) / 2.0))


def test_flips_are_taken_back_from_a_prediction() -> None:
    """A model that knows the pixels says flips or 1 - flips, and its pixels without noise are 0, 1.

    Its errors are those of the flips, whose mean square is flips (1 - flips).
    """
    _, test = digits("", 1, 100, flips=0.1)  # type: ignore[misc]
    hidden = np.where(np.isnan(test.Y), test.complete, np.nan)
    holes = study.Holes((test.X, test.Y), (test.X, test.Y), hidden, test.truth, 0.1)
    mean = 0.1 + 0.8 * test.truth
    found = study.score(holes, mean, mean * (1.0 - mean), np.zeros_like(mean))
    assert found["rmse_truth"] == pytest.approx(0.0, abs=1e-6)
    assert found["rmse"] ** 2 == pytest.approx(0.09, rel=0.01)
    assert "coverage_90" not in found


def test_commands_ask_for_what_can_be_run() -> None:
    def planned(*arguments: str) -> list[driver.Run]:
        with parsed(long_series.define_flags, *arguments, "--out_dir=x"):
            return list(long_series.runs())

    assert [r.model for r in planned("--model=all")] == ["markov_gp", "svgp_vae"]
    small = planned("--model=all", "--num_points=500", "--seconds=60")
    assert [r.model for r in small] == ["markov_gp", "svgp_vae", "gp_vae"]
    assert [list(r.words) for r in small] == 3 * [["made", "500 times", "60 s"]]
    assert [r.plan.variational.batch_size for r in small] == [None, 500, None]
    (paper,) = planned("--preset=paper")
    assert (paper.plan.num_points, paper.plan.num_train) == (100_000, None)
    (healing,) = planned("--preset=paper", "--series=healing_mnist", "--model=gp_vae")
    assert (healing.plan.num_points, healing.plan.num_train) == (None, 4000)
    with pytest.raises(ValueError, match="gp_vae with 2000 times; .* at most 1000. Lower"):
        planned("--model=gp_vae")


@pytest.mark.parametrize("model", ["markov_gp", "svgp_vae"])
def test_a_long_series_is_filled(model: str, tmp_path: pathlib.Path) -> None:
    """Closer to the truth than straight lines are to what was seen, less the noise of that."""
    found = call(
        long_series.STUDY,
        tmp_path,
        f"--model={model}",
        "--num_points=300",
        "--num_steps=150",
        "--num_inducing=40",
    )["metrics"]
    assert found["rmse_truth"] < np.sqrt(found["rmse_interpolated"] ** 2 - 0.3**2) + 0.1
    assert found["rmse_truth"] < 0.6 and 0.7 < found["coverage_90"] <= 1.0
    assert (tmp_path / "filled.png").exists()


def test_sequences_are_filled_alike_by_both_ways_to_the_same_prior(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Markov process and the dense GP are one prior; seeds agree, so fits do, but for rounding.

    The number of steps that seconds allow is kept for runs that are resumed.
    """
    monkeypatch.setattr(healing_mnist, "load", digits)
    monkeypatch.setattr(study, "_PROBE", 1)
    common = ("--series=healing_mnist", "--num_train=20")
    markov = call(long_series.STUDY, tmp_path / "a", *common, "--num_steps=50")
    assert not (tmp_path / "a" / "num_steps.json").exists()
    dense = call(long_series.STUDY, tmp_path / "b", *common, "--model=gp_vae", "--seconds=1e-3")
    assert json.loads((tmp_path / "b" / "num_steps.json").read_text()) == 50
    assert dense["metrics"]["num_steps"] == markov["metrics"]["num_steps"] == 50
    for name in ("rmse", "nll", "rmse_truth"):
        assert markov["metrics"][name] == pytest.approx(dense["metrics"][name], rel=1e-3)
    assert markov["metrics"]["nll"] < np.log(2.0)  # of a coin
    with pytest.raises(app.UsageError, match="other settings"):
        call(long_series.STUDY, tmp_path / "a", *common, "--num_steps=100", "--resume")
