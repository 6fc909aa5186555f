import json
import pathlib

import numpy as np
import pytest

from experiments.common import pages, results
from experiments.common.driver import Outcome, write_figures
from experiments.rotated_mnist import figures
from gpflow_bae.datasets.rotated_mnist import Images, RotatedMNIST
from gpflow_bae.posteriors import Prediction

N, NUM_TRAIN, SAMPLES, PIXELS = 12, 60, 6, 16
SETTINGS = {
    "inducing_per_view": 2,
    "variational": {"batch_size": 256},
    "sampler": {"batch_size": 512},
}


def draw(outcome: Outcome, prediction: Prediction | None, out_dir: pathlib.Path) -> None:
    one_draw = None if prediction is None else prediction.mean[0]
    figures.draw(outcome, _data(), prediction, one_draw)
    write_figures(outcome, out_dir)


def test_a_sampled_run_leaves_arrays_and_every_figure(tmp_path: pathlib.Path) -> None:
    draw(_outcome(), _prediction(), tmp_path)
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"arrays.npz", "generated.png", "codes.png", "curve.png", "loss.png"}
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["mean"].shape == arrays["truth"].shape == (N, PIXELS)
        assert arrays["prediction_samples"].shape == (SAMPLES, N, PIXELS)
        assert arrays["prediction_samples"].dtype == np.float16
        assert arrays["embedding"].shape == (NUM_TRAIN, 2)
        assert arrays["codes"].shape == (NUM_TRAIN, 3)


def test_a_model_without_predictions_has_its_codes_only(tmp_path: pathlib.Path) -> None:
    outcome = _outcome()
    outcome.curves = {"variational_loss": [3.0, 2.0, 1.0]}
    draw(outcome, None, tmp_path)
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"arrays.npz", "codes.png", "loss.png"}


def test_codes_that_cannot_be_drawn_cost_no_other_figure() -> None:
    outcome = _outcome()
    outcome.posterior.predict_latent = lambda: (np.full((1, NUM_TRAIN, 3), np.nan), None)
    figures.draw(outcome, _data(), _prediction(), np.zeros((N, PIXELS)))
    assert "generated" in outcome.figures and "codes" not in outcome.figures


def test_validation_runs_are_left_out(tmp_path: pathlib.Path) -> None:
    for name, variant in (("a", ""), ("b", "validation view 5"), ("c", "cold validation view 5")):
        _write(tmp_path / name, _run(variant=variant))
    (run,) = pages.load_runs(tmp_path, "rotated_mnist")
    assert run.get("variant", "") == ""


def test_figures_of_many_runs() -> None:
    runs = [_run(model=m) for m in ("cvae", "svgp_vae")]
    runs += [_run(seed=s) for s in (0, 1)]
    assert set(figures.draw_runs(runs)) == {
        "generated_quick",
        "codes_quick",
        "mse_against_seconds_quick",
        "mse_per_sample_quick",
        "rhat_quick",
        "traces_quick",
    }
    assert figures.draw_runs([]) == {}


def test_rhat_compares_chains_of_one_posterior_only() -> None:
    other = _run(seed=1, settings=SETTINGS | {"inducing_per_view": 4})
    with pytest.raises(ValueError, match="same settings"):
        figures.plot_rhat([_run(seed=0), other])
    with pytest.raises(ValueError, match="a seed each"):
        figures.plot_rhat([_run(seed=0), _run(seed=0)])


def test_rhat_is_drawn_of_pixels_that_vary() -> None:
    runs = [_run(seed=seed) for seed in range(4)]
    for run in runs:
        run["arrays"]["prediction_samples"][..., 0] = 0.0
    (axis,) = figures.plot_rhat(runs).axes
    counted = sum(patch.get_height() for patch in axis.patches)
    assert counted == N * (PIXELS - 1)


def test_traces_are_of_the_greyest_pixel_in_the_order_of_the_chain() -> None:
    runs = [_run(seed=seed) for seed in range(4)]
    for run in runs:
        samples = run["arrays"]["prediction_samples"]
        samples[:] = samples > 0.5
        samples[:, 0, 7] = 0.5 + 0.01 * np.arange(SAMPLES)
    figure = figures.plot_traces(runs)
    assert len(figure.axes) == 4
    first = figure.axes[0]
    assert first.get_title() == "image 0, pixel 7" and len(first.lines) == 4
    np.testing.assert_allclose(
        first.lines[2].get_ydata(), 0.5 + 0.01 * np.arange(SAMPLES), atol=1e-3
    )


def _data() -> RotatedMNIST:
    rng = np.random.default_rng(0)

    def images(number: int) -> Images:
        X = np.column_stack([np.arange(number) % 20, rng.uniform(0, 2 * np.pi, number)])
        return Images(X, rng.random((number, PIXELS)).astype(np.float32))

    vectors, upright = rng.normal(size=(20, 2)), rng.random((20, PIXELS)).astype(np.float32)
    angles = np.arange(16) * np.pi / 8
    return RotatedMNIST(images(NUM_TRAIN), images(5), images(N), vectors, angles, upright)


class _Posterior:
    """What the figures ask of a sampled posterior."""

    num_samples = SAMPLES
    latents = np.zeros((SAMPLES, 1, NUM_TRAIN, 3))

    def select(self, samples: list[int]) -> "_Posterior":
        return self

    def predict(self, X: np.ndarray, num_codes: int) -> Prediction:
        shape = (1, X.shape[1], PIXELS)
        return Prediction(np.full(shape, 0.5), np.ones(shape), np.ones(shape))

    def predict_latent(self) -> tuple[np.ndarray, None]:
        return np.random.default_rng(1).normal(size=(1, NUM_TRAIN, 3)), None


def _outcome() -> Outcome:
    curves = {**_curves(), "log_density": [1.0, 2.0, 3.0], "variational_loss": [5.0, 4.0]}
    return Outcome(metrics={}, num_parameters=1, curves=curves, posterior=_Posterior())


def _prediction() -> Prediction:
    mean = np.random.default_rng(2).random((1, N, PIXELS))
    return Prediction(mean, np.full(mean.shape, 0.02), np.full(mean.shape, 0.01))


def _curves() -> dict[str, list[float]]:
    mse = np.geomspace(0.1, 0.02, SAMPLES + 3)
    return {
        "seconds": np.geomspace(1.0, 100.0, SAMPLES + 3).tolist(),
        "mse": mse.tolist(),
        "mse_per_sample": (1.1 * mse[-SAMPLES:]).tolist(),
    }


def _run(
    model: str = "sgp_bae", seed: int = 0, variant: str = "", settings: dict = SETTINGS
) -> dict:
    """A result with its arrays, as load_runs reads it."""
    rng = np.random.default_rng(seed)
    sampled = model == "sgp_bae"
    arrays = {
        "X": np.zeros((N, 2)),
        "truth": rng.random((N, PIXELS)),
        "mean": rng.random((N, PIXELS)),
        "epistemic_variance": rng.random((N, PIXELS)),
        "embedding": rng.normal(size=(NUM_TRAIN, 2)),
        "code_angles": rng.uniform(0, 2 * np.pi, NUM_TRAIN),
        "num_train": np.array(NUM_TRAIN),
    }
    if sampled:
        arrays["prediction_samples"] = rng.normal(size=(SAMPLES, N, PIXELS)).astype(np.float16)
    curves = _curves()
    if not sampled:
        del curves["mse_per_sample"]
    return {
        "experiment": "rotated_mnist",
        "model": model,
        "preset": "quick",
        "seed": seed,
        "variant": variant,
        "settings": settings if sampled else settings | {"sampler": None},
        "metrics": {"mse": 0.025},
        "curves": curves,
        "arrays": arrays,
    }


def _write(folder: pathlib.Path, run: dict) -> None:
    folder.mkdir()
    np.savez(folder / "arrays.npz", **run.pop("arrays"))
    (folder / results.RESULTS).write_text(json.dumps(run))
