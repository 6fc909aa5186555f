"""The study of priors for many points: its made data, and small runs of each model."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from experiments import priors
from tests.experiments.commands import call, parsed


def made(problem: str, num_points: int) -> priors.Observed:
    arguments = (f"--problem={problem}", f"--num_points={num_points}", "--out_dir=x")
    with parsed(priors.define_flags, *arguments):
        return priors.make_data(priors.make_plan("svgp_vae"), 0)


@pytest.mark.parametrize("problem", list(priors.MODELS))
def test_the_truth_is_standardised_and_noise_is_half_of_it(problem: str) -> None:
    data = made(problem, 3000)
    np.testing.assert_allclose(data.truth.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(data.truth.std(0), 1.0, rtol=1e-5)
    assert np.std(data.observed - data.truth) == pytest.approx(0.5, rel=0.02)


def test_gaps_hold_a_fifth_of_the_times_and_are_a_lengthscale_long() -> None:
    data = made("series", 10_000)
    assert len(data.Xnew) / 10_000 == pytest.approx(0.2, abs=0.01)
    slots = (data.Xnew[:, 0] // 5).astype(int)
    for slot in range(100):
        hidden = data.Xnew[slots == slot, 0]
        assert np.ptp(hidden) < 1.0
        assert not ((data.X[:, 0] > hidden.min()) & (data.X[:, 0] < hidden.max())).any()


@pytest.mark.parametrize(
    ("problem", "model"), [(p, m) for p in priors.MODELS for m in priors.MODELS[p]]
)
def test_small_runs_predict(problem: str, model: str, tmp_path: pathlib.Path) -> None:
    result = call(
        priors.STUDY,
        tmp_path / "run",
        f"--problem={problem}",
        f"--model={model}",
        "--num_points=700",
        "--num_steps=200",
        "--num_inducing=60",
    )
    assert result["metrics"]["rmse"] < 0.95  # of a standard deviation
    assert 0.6 < result["metrics"]["coverage_90"] <= 1.0


def test_a_model_of_the_other_problem_is_refused() -> None:
    arguments = ("--problem=series", "--model=nearest_neighbours", "--out_dir=x")
    with (
        parsed(priors.define_flags, *arguments),
        pytest.raises(ValueError, match="markov_gp or svgp_vae"),
    ):
        next(priors.runs())
