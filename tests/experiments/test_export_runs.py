"""Runs on disk become exports: the folders of the drivers, read as they are written."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiments.export import runs as export_runs
from experiments.moving_ball import study
from experiments.moving_ball.plans import make_plan
from experiments.sprites import models, plans
from experiments.sprites.frames import Task
from gpflow_bae import serving
from gpflow_bae.data import prepare_data
from gpflow_bae.datasets import moving_ball, sprites
from gpflow_bae.posteriors import FittedModel, Posterior


def test_a_run_of_the_moving_ball(tmp_path: pathlib.Path) -> None:
    """The samples, under a model of the run's own settings."""
    plan = make_plan("sgp_bae", "quick", num_inducing=7)
    train, _ = moving_ball.load(3)
    model = study.build_model(plan, train)
    config = {"experiment": "moving_ball", "model": "sgp_bae", "preset": "quick", "seed": 3}
    (tmp_path / "config.json").write_text(json.dumps(config | {"settings": plan.describe()}))
    parameters = [p.unconstrained_variable.numpy()[None] for p in model.sampled.parameters]
    weights = [v.numpy()[None] for v in model.amortized.variables]
    data = prepare_data(model, (train.X, train.Y))
    Posterior.from_arrays(model, data, parameters, weights).save(tmp_path / "posterior.npz")
    run = export_runs.read(tmp_path)
    assert run.posterior.num_samples == 1
    assert run.posterior.model.latent_prior.num_inducing == 7
    for values, parameter in zip(run.posterior.parameters, model.sampled.parameters, strict=True):
        np.testing.assert_array_equal(values[0], parameter.unconstrained_variable)
    assert run.notes["run"]["seed"] == 3
    served = serving.ServedModel(run.posterior, num_draws=2)
    y = np.zeros((2, 1024), np.float32)
    assert served.answer("reconstruct", y=y)["mean"].shape == (2, 1024)
    assert "35 training tasks" in str(served.refusal("generate"))


def test_runs_that_cannot_be_read_say_why(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no config.json"):
        export_runs.read(tmp_path)
    config = {"experiment": "moving_ball", "model": "sgp_bae", "preset": "quick", "seed": 3}
    config["settings"] = make_plan("sgp_bae", "quick").describe()
    (tmp_path / "config.json").write_text(json.dumps(config | {"experiment": "other"}))
    with pytest.raises(export_runs.UnsupportedRunError, match="a run of other"):
        export_runs.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"model": "jura/gpar"}))
    with pytest.raises(export_runs.UnsupportedRunError, match="the baseline gpar, GPflow's models"):
        export_runs.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError, match="has no posterior.npz yet, .* --resume"):
        export_runs.read(tmp_path)


def test_a_fit_of_the_imputation_command_is_refused(tmp_path: pathlib.Path) -> None:
    """Its model has no encoder; the message says how it is read instead."""
    (tmp_path / "fit.json").write_text("{}")
    with pytest.raises(export_runs.UnsupportedRunError, match="no encoder to export: use gpflow"):
        export_runs.read(tmp_path)


@pytest.mark.parametrize(
    "name, changes",
    [("cvae", {}), ("svgp_vae", {}), ("svgp_vae", {"representation": "gplvm"})],
    ids=["cvae", "network", "gplvm"],
)
def test_a_run_of_sprites(name: str, changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """Networks are served as the run left them; frames that predictions condition on are gone."""
    black = sprites.Frames(np.zeros((1, 2)), np.zeros((1, sprites.NUM_PIXELS), np.uint8))
    plan = plans.make_plan(
        name,
        "quick",
        pretrain_steps=0,
        encoder_filters=2,
        decoder_filters=2,
        latent_dim=5,
        **changes,
    )
    model = models.build_model(plan, Task(black, black, black, 7, sprites.NUM_POSES))
    FittedModel(model).save(tmp_path / "posterior.npz")
    config = {"experiment": "sprites", "model": name, "preset": "quick", "seed": 0}
    (tmp_path / "config.json").write_text(json.dumps(config | {"settings": plan.describe()}))
    run = export_runs.read(tmp_path)
    served = serving.serve(run.posterior)
    rng = np.random.default_rng(0)
    rows: dict[str, np.ndarray] = {"latents": rng.standard_normal((3, 5)).astype(np.float32)}
    codes = tf.constant(rows["latents"])[None]
    if name == "cvae":
        rows["x"] = np.stack([np.zeros(3), [0.0, 7.0, 71.0]], 1)
        codes = tf.concat([codes, tf.one_hot([[0, 7, 71]], sprites.NUM_POSES)], -1)
    answer = served.answer("decode", **rows)["mean"]
    np.testing.assert_allclose(answer, model.decoder(codes)[0], rtol=1e-4, atol=1e-5)
    assert ("generate" in run.signatures) == (name == "cvae")
