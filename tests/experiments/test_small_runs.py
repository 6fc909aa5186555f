"""A run of each study, as small as it can be: what it leaves behind for its pages."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from absl import app
from scipy import special, stats

from experiments import tabular_bae
from experiments.common import driver, pages, results
from experiments.moving_ball import __main__ as moving_ball
from experiments.moving_ball import figures as ball_figures
from experiments.moving_ball import networks as ball_networks
from experiments.moving_ball import plans as ball_plans
from experiments.moving_ball import study as ball_study
from experiments.rotated_mnist import figures as digit_figures
from experiments.rotated_mnist import scores as digit_scores
from experiments.rotated_mnist import study as digits
from experiments.rotated_mnist.plans import make_plan
from experiments.tabular import plans as tabular_plans
from experiments.tabular import study as tabular_study
from gpflow_bae import inference
from gpflow_bae.datasets.moving_ball import generate
from gpflow_bae.datasets.rotated_mnist import Images, RotatedMNIST
from gpflow_bae.datasets.tabular import Table
from tests.experiments.commands import call, goes_round, outcomes

pytestmark = pytest.mark.usefixtures("untraced_predictions")


def test_moving_ball(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that is stopped, and a variational fit."""
    monkeypatch.setattr(ball_networks, "WIDTH", 4)
    kept = outcomes(monkeypatch)
    chain = ("--burnin=50", "--num_samples=3", "--thinning=50", "--max_samples=2")
    own = ("--model=sgp_bae", "--num_inducing=4", "--point_decoder", "--nowarm_start")
    own += ("--weight_prior=fan_in", "--weight_prior_scale=2,3,20")
    found = call(moving_ball.STUDY, tmp_path / "a", *own, *chain, "--batch_size=2")
    assert found["variant"] == "first 2 of 3 samples" and not found["complete"]
    assert found["temperature"] == 1.0
    assert {"rmse", "rmse_test_aligned", "coverage_90", "lengthscale_median"} <= set(
        found["metrics"]
    )
    assert len(found["curves"]["rmse_per_sample"]) == 2 and found["curves"]["log_density"]
    chosen = found["settings"]["sampler"]  # the schedule and the sampler
    assert chosen["point_estimates"] == [".decoder"] and chosen["noise"] == "binomial"
    written = {path.name for path in (tmp_path / "a").glob("*.*")}
    assert written >= {"arrays.npz", "trajectories.png", "chain.png", "lengthscale.png"}
    assert "network_dtype" not in found["settings"]  # float32, as in rows from before the flag
    half = ("--model=vae", "--num_variational_steps=1", "--network_dtype=bfloat16")
    vae = call(moving_ball.STUDY, tmp_path / "b", *half)
    assert vae["temperature"] is None and "sampler" not in vae["settings"]
    assert vae["variant"] == vae["settings"]["network_dtype"] == "bfloat16"
    for folder, outcome in zip("ab", kept, strict=True):
        found = goes_round(tmp_path / folder, outcome.posterior, folder == "a")
        assert found.notes["run"]["experiment"] == "moving_ball"
    runs = pages.load_runs(tmp_path, "moving_ball")
    assert [run["model"] for run in runs] == ["sgp_bae", "vae"]
    # The page's figures are of ten inducing points, and of several numbers of them.
    assert set(ball_figures.draw_runs(runs)) == {"lengthscale_quick"}
    runs[0]["settings"]["num_inducing"] = 10
    assert set(ball_figures.draw_runs(runs)) == {
        *("lengthscale_quick", "trajectories_quick", "rmse_per_sample_quick", "inducing_quick")
    }


def test_the_published_chain_of_the_moving_ball() -> None:
    """Settings that nothing asks for go with the sampler; what is asked for holds."""
    published = ball_plans.make_plan("sgp_bae", "quick", sampler_name="adaptive_sghmc")
    assert (published.weight_prior, published.weight_prior_scale) == ("normal", 1.0)
    assert published.sampler.name == "adaptive_sghmc"
    assert published.schedule.coordinates == "none"
    ours = ball_plans.make_plan("sgp_bae", "quick")
    assert (ours.weight_prior, ours.weight_prior_scale) == ("fan_in", (2.0, 3.0, 20.0))
    assert ours.schedule.coordinates == "prior"
    for other in (
        {"point_estimates": (".decoder",)},
        {"sampler": {"temperature": 0}},
    ):
        assert ball_plans.make_plan("sgp_bae", "quick", **other).sampler.name == "adaptive_sghmc"
    unit = ball_plans.make_plan("sgp_bae", "quick", weight_prior="fan_in")
    assert unit.weight_prior_scale == 1.0
    wider = ball_plans.make_plan("sgp_bae", "quick", weight_prior_scale=3.0)
    assert (wider.weight_prior, wider.weight_prior_scale) == ("fan_in", 3.0)
    assert ball_plans.make_plan("gp_vae", "quick").weight_prior == "normal"


def test_the_deep_prior_of_the_moving_ball() -> None:
    """Three layers by default; tasks have inducing outputs of their own in the last one."""
    train = generate(0, 2)
    for flags, num_layers in (({}, 3), ({"num_layers": 2}, 2)):
        plan = ball_plans.make_plan("dsgp_bae", "quick", num_inducing=4, **flags)
        assert plan.sampler.name == "adaptive_sghmc"
        prior = ball_study.build_model(plan, train).latent_prior
        assert len(prior.hidden_layers) == num_layers - 1 == plan.describe()["num_layers"] - 1
        assert prior.whitened_inducing is None
        for layer in prior.hidden_layers:  # warps by a fraction of a frame
            variance = layer.kernels[0].variance
            np.testing.assert_allclose(variance, variance.prior.quantile(0.5), rtol=1e-9)
    assert "num_layers" not in ball_plans.make_plan("sgp_bae", "quick").describe()


def test_moving_ball_of_several_chains_with_moves(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ball_networks, "WIDTH", 4)
    kept = outcomes(monkeypatch)
    chain = ("--burnin=50", "--num_samples=4", "--thinning=50", "--nowarm_start")
    own = ("--num_chains=2", "--num_inducing=4")
    found = call(moving_ball.STUDY, tmp_path, *own, *chain)
    assert found["settings"]["sampler"]["integrator"] == "baoab"
    assert found["settings"]["sampler"]["coordinates"] == "prior"
    names = {"rhat_q95", "rhat_training_q95", "rhat_log_likelihood", "rhat_log_prior_layers"}
    assert names | {"rhat_log_prior", "log_likelihood_best"} <= set(found["metrics"])
    assert (kept[0].posterior.bank.trace["step_size"][:, -1] > 0).all()
    goes_round(tmp_path, kept[0].posterior, True)


@pytest.mark.parametrize("method", ["adam", "adapt_lg_star"])
def test_tabular(tmp_path: pathlib.Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = outcomes(monkeypatch)
    short = (
        "--num_samples=20",
        "--thinning=1",
        "--swap_interval=1",
        "--num_replicas=2",
        "--num_start_steps=5",
    )
    short += ("--whitening=none", "--max_steps=16")
    found = call(tabular_bae.STUDY, tmp_path, f"--method={method}", *short)
    assert found["model"] == f"swiss_roll/{method}" and found["metrics"]["mse"] < 1.0
    sampled = method != "adam"
    assert ("acceptance" in found["metrics"]) == sampled == (found["temperature"] == 1.0)
    assert found["variant"].endswith("first 16 of 20 steps") == sampled
    assert found["variant"].startswith("tuned num_replicas=2 swap_interval=1 num_samples=20")
    figures = {"mse.png", "log_likelihood.png", "weights.png"} if sampled else {"training.png"}
    figures.add("swiss_roll.png")
    assert {path.name for path in tmp_path.glob("*.png")} == figures
    posterior = goes_round(tmp_path, kept[0].posterior, is_exported=not sampled).posterior
    rows = np.random.default_rng(0).random((5, 3))
    np.testing.assert_array_equal(posterior.encode(rows), kept[0].posterior.encode(rows))


def test_classes_by_the_columns(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one column is the class, both classifiers find it, and there is no autoencoder."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    rows = np.column_stack([3.0 * labels, 0.1 * rng.standard_normal(60)])
    table = Table(rows[:40], rows[:0], rows[40:], labels[:40], labels[40:])
    monkeypatch.setattr(tabular_study, "load", lambda *_, **__: table)
    flags = ("--method=columns", "--dataset=coil2000", "--all_rows")
    found = call(tabular_bae.STUDY, tmp_path / "a", *flags)
    assert found["metrics"] == {"knn_accuracy": 1.0, "svm_accuracy": 1.0}
    assert (found["model"], found["variant"]) == ("coil2000/columns", "4000 test rows")
    for other, words in (
        (("--method=columns",), "of tables with classes"),
        (("--dataset=madelon", "--all_rows"), "--all_rows is of coil2000"),
    ):
        with pytest.raises(app.UsageError, match=words):
            call(tabular_bae.STUDY, tmp_path / "b", *other)


def test_tabular_from_the_best_of_many_modes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts that a resumed run has from its folder, and the chains that begin at the best."""
    lengths = tabular_plans._Lengths(2, 5, 1, 50, 8, 50)
    monkeypatch.setitem(tabular_plans._LENGTHS, ("swiss_roll", "quick"), lengths)
    kept = outcomes(monkeypatch)
    found = call(tabular_bae.STUDY, tmp_path, "--method=sghmc", "--max_steps=300")
    assert found["variant"] == "tuned first 5 of 8 samples" and found["temperature"] == 1.0
    assert len(found["curves"]["restarts_log_posterior"]) == 2
    monkeypatch.setattr(inference, "best_restart", None)
    found = call(tabular_bae.STUDY, tmp_path, "--method=sghmc", "--resume")
    names = {"rhat_q95", "rhat_chainwise_q95", "log_likelihood_best", "step_size"}
    assert names <= set(found["metrics"]) and found["variant"] == "tuned"
    goes_round(tmp_path, kept[-1].posterior)
    with pytest.raises(ValueError, match="sghmc has no thinning"):
        tabular_plans.make_plan("swiss_roll", "sghmc", "quick", "tuned", {"thinning": 3})


def images(seed: int = 0) -> RotatedMNIST:
    """Noise in the shape of the digits: 8 objects at 4 angles."""
    rng = np.random.default_rng(seed)

    def make(objects: range, angles: slice) -> Images:
        X = np.array([[o, a] for o in objects for a in ANGLES[angles]])
        return Images(X, rng.random((len(X), 784)).astype(np.float32))

    vectors = rng.standard_normal((8, 3))
    upright = rng.random((8, 784)).astype(np.float32)
    train, test = make(range(6), slice(0, 3)), make(range(6), slice(3, 4))
    return RotatedMNIST(train, make(range(6, 8), slice(0, 4)), test, vectors, ANGLES, upright)


ANGLES = np.arange(4) * np.pi / 2


def nll_is_of_the_mixture_over_codes(outcome: driver.Outcome) -> None:
    """SciPy's Gaussians around what is decoded from each draw, averaged: a pixel's density."""
    model, Y = outcome.posterior.model, images().test.Y
    draws = digit_scores._draw_codes(model, images(), 0, 4)
    decoded = np.stack([model.decoder(codes).numpy()[0] for codes in draws])
    deviation = np.sqrt(model.observation_likelihood.variance.numpy())
    log_density = special.logsumexp(stats.norm.logpdf(Y, decoded, deviation), axis=0, b=1 / 4)
    # Of float32, with squared errors over a variance.
    assert outcome.metrics["nll"] == pytest.approx(-log_density.mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("gppvae", {}),
        ("sgp_bae", {"missing_angles": 0.2}),
        ("deep_svigp", {"start_epochs": 1}),
        ("svgp_vae", {"parameters": "mean_field", "num_draws": 2}),
        ("svgp_vae", {"parameters": "sghmc"}),
    ],
)
def test_rotated_mnist(
    tmp_path: pathlib.Path, model: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases of a fit, and a chain from its warm start."""
    monkeypatch.setattr(digit_scores, "NUM_CODES", 1)  # each is traced
    regime = ["VAE-1", "GP-1"] if model == "gppvae" else ["joint-1"]
    chain = {"burnin": 5, "num_samples": 2, "thinning": 5, "num_sampler_steps": 5}
    plan = make_plan(
        model,
        "quick",
        regime=regime,
        batch_size=9,
        chain_batch_size=9,
        sampler={"step_size": 1e-3},  # for coordinates of five steps
        schedule=chain | {"num_encoder_steps": 1},
        latent_dim=2,
        object_dim=3,
        mode_epochs=1,
        **changes,
    )
    outcome = digits.run(plan, images(), driver.Options(0, tmp_path, progress=False))
    driver.write_figures(outcome, tmp_path)
    assert np.isfinite(list(outcome.metrics.values())).all()
    assert {"mse", "mse_one_draw", "coverage_90", "nll", "nll_moments"} <= set(outcome.metrics)
    if not plan.has_samples:
        nll_is_of_the_mixture_over_codes(outcome)
    assert outcome.unfinished == "" and outcome.num_parameters > 1000
    assert {"generated.png", "codes.png", "loss.png"} <= {p.name for p in tmp_path.iterdir()}
    assert ("mse_validation_reconstruction" in outcome.metrics) == (model != "deep_svigp")
    assert ("angle_error_median" in outcome.metrics) == bool(changes.get("missing_angles"))
    assert ("prediction_samples" in outcome.arrays) == (model == "sgp_bae")
    result = {"model": model, "preset": "quick", "seed": 0, "metrics": outcome.metrics}
    result |= {"settings": plan.describe(), "arrays": outcome.arrays, "curves": outcome.curves}
    assert "generated_quick" in digit_figures.draw_runs([result])
    # As the driver does it, with the same images when the run is read again.
    outcome.posterior.save(tmp_path / driver.POSTERIOR)
    config = {"experiment": "rotated_mnist", "model": model, "preset": "quick", "seed": 0}
    config |= {"digits": "3", "holdout_view": None, "settings": plan.describe()}
    results.write_json(tmp_path / results.CONFIG, config)
    monkeypatch.setattr(digits, "load", lambda *_: images())
    goes_round(tmp_path, outcome.posterior, model == "deep_svigp")
