"""The missing-data experiments: nothing sees the test cells, and how runs are averaged."""

from __future__ import annotations

import dataclasses
import pathlib
import types

import numpy as np
import pytest
from absl import app
from PIL import Image
from scipy import stats

from experiments.common import scores
from experiments.imputation import command, fitting, plans, run_figures, study, tables
from gpflow_bae.data import MultiOutputTable, Standardiser
from gpflow_bae.datasets import bouncing_ball
from tests.experiments.commands import call, goes_round, outcomes
from tests.impute.tables import mixed_sines as table

pytestmark = pytest.mark.usefixtures("untraced_predictions")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the codes, since each is traced; what is asserted holds for any number."""
    monkeypatch.setattr(study, "NUM_CODES", 4)
    monkeypatch.setattr(fitting, "_num_codes", lambda posterior: 4)


@pytest.mark.parametrize(
    ("model", "net"),
    [("sgp_vae", "indexnet"), ("sgp_vae", "free"), ("gppvae", "factornet"), ("vae", "zeros")],
)
def test_what_is_hidden_is_not_seen(model: str, net: str) -> None:
    """Another truth in the test cells changes the scores and no prediction."""
    data = table()
    other = dataclasses.replace(data, truth=data.truth + 7.0 * data.test_mask)
    plan = plans.default_plan(
        model, "quick", net=net, num_steps=20, latent_dim=1, num_inducing=6, lengthscale=0.3
    )
    one, two = (study.run(plan, t, seed=0, progress=False) for t in (data, other))
    np.testing.assert_array_equal(one.prediction.mean, two.prediction.mean)
    assert one.metrics["mae"] != two.metrics["mae"]
    assert ("mae_encoder_only" in one.metrics) == (net != "free")


def test_holes_of_tasks_that_the_fit_saw_and_of_one_that_it_never_saw() -> None:
    """The third output is three times the first: far better than its mean (SMSE 1)."""
    tasks = table(4)
    plan = plans.default_plan(
        "sgp_vae", "quick", num_steps=600, learning_rate=0.02, latent_dim=1, lengthscale=0.3
    )
    seen, unseen = tasks.select([0, 1, 2]), tasks.select([3])
    outcome = study.run(plan, seen, unseen, seed=0, progress=False)
    assert outcome.prediction.mean.shape == unseen.Y.shape
    assert outcome.metrics["smse"] < 0.3
    standardiser = Standardiser.fit(seen.Y, seen.output_names)
    moments = standardiser.inverse_moments(*fitting.predict(outcome.posterior, standardiser))
    assert scores.score(seen, *moments)["smse"] < 0.2


def test_a_chain_in_coordinates_of_the_priors_is_at_temperature_one() -> None:
    """Momenta of 72 weights and codes over 400 steps; half of each is forgotten after some 14."""
    sizes = {"num_inducing": 6, "latent_dim": 1, "lengthscale": 0.3, "num_steps": 50}
    rounds = {"num_sampler_steps": 20, "num_encoder_steps": 5, "burnin": 200, "num_samples": 20}
    plan = plans.default_plan(
        "sgp_bae", "quick", sampler={"name": "sghmc"}, schedule=rounds | {"thinning": 20}, **sizes
    )
    posterior = study.fit(plan, table(), Standardiser.fit(table().Y), seed=0, progress=False)
    temperatures = posterior.bank.trace["kinetic_temperature"][:, 10:].mean((0, 1))
    paths = posterior.model.sampled.paths
    moved = [t for path, t in zip(paths, temperatures, strict=False) if ".decoder" in path]
    assert np.mean(moved) == pytest.approx(1.0, abs=0.2)
    with pytest.raises(ValueError, match="sgp_vae has no such chain"):
        plans.default_plan("sgp_vae", "quick", sampler={"name": "sghmc"}, **sizes)


def test_a_mixture_of_runs_is_the_mixture_of_their_densities() -> None:
    """Two runs that disagree: the mean between them, a variance that says so, and two modes."""
    data = table()
    gaussians = ((1.0, 0.2), (4.0, 0.6))
    runs = [
        types.SimpleNamespace(
            prediction=scores.TablePrediction.gaussian(
                data, np.full(data.Y.shape, m), np.full(data.Y.shape, v)
            )
        )
        for m, v in gaussians
    ]
    rng = np.random.default_rng(1)
    draws = np.concatenate([rng.normal(m, np.sqrt(v), 10**6) for m, v in gaussians])
    expected = scores.score(
        data, np.full(data.Y.shape, draws.mean()), np.full(data.Y.shape, draws.var())
    )
    found = study.mixture_scores(runs, data)
    density = np.mean([stats.norm.pdf(data.test_truth, m, np.sqrt(v)) for m, v in gaussians], 0)
    nll = -scores_of_outputs(data, np.log(density))
    assert found.pop("nll") == pytest.approx(nll, rel=1e-12)
    for name, value in found.items():
        # A million draws of standard deviation 1.6: errors of the moments are about 2e-3.
        assert value == pytest.approx(expected[name], rel=1e-2), name


def test_logarithms_are_scored_by_their_own_density_and_median() -> None:
    """A run on logarithms against SciPy's lognormal mixture, over its own draws of the codes."""
    data = table()
    positive = dataclasses.replace(data, Y=np.exp(data.Y), truth=np.exp(data.truth))
    plan = plans.default_plan(
        "sgp_vae", "quick", num_steps=5, latent_dim=1, num_inducing=4, log_outputs=True
    )
    outcome = study.run(plan, positive, seed=0, progress=False)
    logs = study.run(dataclasses.replace(plan, log_outputs=False), data, seed=0, progress=False)
    # Of y = exp(z) the density is that of z less z: means over test cells, then over outputs.
    jacobian = scores_of_outputs(data, data.test_truth)
    assert outcome.metrics["nll"] == pytest.approx(logs.metrics["nll"] + jacobian, rel=1e-5)
    median = np.exp(logs.prediction.mean)
    error = scores_of_outputs(data, np.abs(positive.test_truth - median))
    assert outcome.metrics["mae"] == pytest.approx(error, rel=1e-5)
    assert outcome.metrics["coverage_90"] == logs.metrics["coverage_90"]
    assert "nll_encoder_only" not in outcome.metrics
    assert {"mae_encoder_only", "nll_moments_encoder_only"} <= set(outcome.metrics)


def scores_of_outputs(data: MultiOutputTable, cells: np.ndarray) -> float:
    """The mean over the test cells of each output, and over the outputs that have some."""
    return float(np.mean(np.nanmean(cells[..., data.test_mask.any((0, 1))], axis=(0, 1))))


def test_a_run_leaves_figures_and_its_posterior(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the published drivers' word for steps; an export says how rows are standardised."""
    monkeypatch.setattr(tables, "load", lambda name: (table(2), None))
    kept = outcomes(monkeypatch)
    settings = ("--epochs=3", "--num_inducing=4", "--latent_dim=1", "--decoder_dims=")
    written = call(command.study("eeg"), tmp_path, *settings)
    assert written["settings"]["variational"]["num_steps"] == 3
    figures = {path.stem for path in tmp_path.glob("*.png")}
    assert figures == {"series", "loss"}
    notes = goes_round(tmp_path, kept[0].posterior).notes
    scale = Standardiser.fit(table(2).Y, table(2).output_names, False)
    assert notes["mean"] == scale.mean.tolist() and not notes["log_outputs"]


def test_a_deep_prior_of_three_layers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row says so in words, since stored rows of two do not know the setting."""
    monkeypatch.setattr(tables, "load", lambda name: (table(), None))
    kept = outcomes(monkeypatch)
    settings = ("--model=dsgp_bae", "--num_layers=3", "--hidden_variance=1e-4", "--epochs=3")
    settings += ("--num_inducing=4", "--latent_dim=1", "--pinference_net=indexnet")
    settings += ("--decoder_dims=", "--burnin=50", "--num_samples=2", "--thinning=50")
    written = call(command.study("eeg"), tmp_path, *settings)
    assert written["settings"]["num_layers"] == 3
    assert written["variant"] == "indexnet 3 layers"
    assert np.isfinite(written["metrics"]["smse"])
    prior = kept[0].posterior.model.latent_prior
    assert len(prior.hidden_layers) == 2
    goes_round(tmp_path, kept[0].posterior)


def test_frames_show_what_was_hidden() -> None:
    """What was not seen is masked."""
    rng = np.random.default_rng(1)
    truth, hidden = rng.standard_normal((1, 9, 2)), np.zeros((1, 9, 2), bool)
    hidden[0, 5:, 1] = True
    X = rng.standard_normal((1, 9, 2))
    data = MultiOutputTable(X, np.where(hidden, np.nan, truth), truth, hidden)
    mean = truth + 0.5
    prediction = scores.TablePrediction.gaussian(data, mean, np.ones_like(mean))
    found = run_figures.draw("bouncing_ball", data, prediction)
    seen, predicted, whole = (axis.images[0].get_array() for axis in found["frames"].axes[:3])
    np.testing.assert_array_equal(seen.mask, hidden[0].T)
    np.testing.assert_allclose(predicted - whole, 0.5)


def _balls(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    flags = {"balls": 2, "seed": 0, "num_context": None} | values
    monkeypatch.setattr(tables, "FLAGS", types.SimpleNamespace(**flags))
    few = [bouncing_ball.two_balls(seed, num_sequences=1, missing=0.3) for seed in (0, 1)]
    monkeypatch.setattr(bouncing_ball, "load_two", lambda seed: tuple(few))


def test_errors_ahead_are_of_the_images_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction that is off by 0.1 k at k frames ahead, and by 0.25 at removed pixels."""
    _balls(monkeypatch)
    _, test = tables.load("bouncing_ball")
    assert np.isnan(test.Y[:, 250:]).all() and 0.25 < np.isnan(test.Y[:, :250]).mean() < 0.35
    heights = bouncing_ball.load_two(0)[1].heights
    mean = bouncing_ball.render(heights, 100, bouncing_ball.TWO_WIDTH)
    mean[:, 250:] += 0.1 * np.arange(1, 251)[:, None]
    mean[:, :250][np.isnan(test.Y[:, :250])] += 0.25
    found, curves = tables.errors_ahead(mean, test)
    assert found["mae_1_steps"] == pytest.approx(0.1) and found["mae_10_steps"] == pytest.approx(1)
    np.testing.assert_allclose(curves["mae_ahead"], 0.1 * np.arange(1, 251))
    assert found["mae_removed"] == pytest.approx(0.25)
    # The noise has a tenth of the error: |1 + 0.1 e| has mean 1; four standard errors of 70 pixels.
    assert abs(found["mae_10_steps_noisy"] - 1.0) < 4 * 0.1 / np.sqrt(70)


def test_a_film_begins_before_the_future_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns are those of the tables: the first frame is seen, the last is not."""
    _balls(monkeypatch, num_context=300)
    _, test = tables.load("bouncing_ball")
    task, rows = run_figures._window(test)
    assert (task, rows) == (0, slice(260, 380))
    mean = np.full_like(test.Y, 0.5)
    (_, seen), (_, predicted), _ = run_figures._panels(test, mean, task, rows)
    np.testing.assert_array_equal(seen.mask[:, 0], np.isnan(test.Y[0, 260]))
    assert seen.mask[:, 40:].all() and (predicted == 0.5).all()
    monkeypatch.setattr(run_figures, "_FILMED", 60)
    run_figures.film(test, mean).save(tmp_path / "film.gif", writer="pillow")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 2


def test_periods_of_the_channels_in_turn(tmp_path: pathlib.Path) -> None:
    """80, 50, 80 for three channels; a word that is no period is refused by name."""
    plan = plans.default_plan("sgp_vae", "quick", latent_dim=3, num_inducing=4, period=(80.0, 50.0))
    model = plans.build_model(plan, table())
    found = [kernel.period.numpy() for kernel in model.latent_prior.kernels]
    np.testing.assert_allclose(found, [80.0, 50.0, 80.0])
    for words in ("80,x", "80,-1", "nan"):
        with pytest.raises(app.UsageError, match=f"--period is '{words}'"):
            call(command.study("bouncing_ball"), tmp_path, f"--period={words}")


def test_inputs_in_different_units_are_scaled_by_the_table_that_is_fitted() -> None:
    """Metres and degrees: unit variances there, padding left out, and the same map for others."""
    data = table()
    X = np.concatenate([data.X, 300.0 + 100.0 * data.X], -1)
    train = dataclasses.replace(data, X=X, input_names=("km", "m"))
    other = dataclasses.replace(train, X=X + [0.0, 100.0])
    rows = tables.with_scaled_inputs(train, train).X[train.rows]
    np.testing.assert_allclose(rows.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(rows.std(0), 1.0)
    moved = tables.with_scaled_inputs(other, train).X[train.rows] - rows
    np.testing.assert_allclose(
        moved, np.tile([0.0, 100.0 / X[train.rows].std(0)[1]], (len(rows), 1))
    )
