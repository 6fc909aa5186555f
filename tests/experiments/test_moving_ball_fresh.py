"""The moving ball by the protocol of Jazbec et al. (2021): new videos, and what is scored."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from absl import app

from experiments.moving_ball import __main__ as command
from experiments.moving_ball import fresh, networks
from gpflow_bae.data import Observations
from gpflow_bae.datasets import moving_ball
from tests.experiments.commands import call

pytestmark = pytest.mark.usefixtures("untraced_predictions")


def test_new_videos_are_those_of_the_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pixels from the same normal numbers; another seed has other videos."""
    rng = np.random.default_rng(3)
    white = rng.standard_normal((4, 2, 30))
    monkeypatch.setattr(fresh, "standard_noise", lambda *_: tf.constant(white))
    found = fresh.draw_videos(tf.constant([0, 1]), 4).numpy()
    expected = moving_ball.generate(3, num_videos=4)  # default_rng(3), too
    np.testing.assert_array_equal(found, expected.Y)
    monkeypatch.undo()
    one, other, again = (fresh.draw_videos(tf.constant([0, i]), 2).numpy() for i in (1, 2, 1))
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, again)


def test_every_step_has_new_videos() -> None:
    first = moving_ball.generate(0, 5)
    data = fresh.FreshVideos(tf.constant(first.X), tf.constant(first.Y), None)
    assert isinstance(data, Observations)
    batch = data.gather(None, None, tf.constant([3, 4]))
    assert batch.Y.shape == first.Y.shape and not np.array_equal(batch.Y, first.Y)
    assert batch.scale == 1.0
    np.testing.assert_array_equal(data.gather(None).Y, first.Y)


def test_scores_have_a_map_for_each_batch() -> None:
    """Codes that are an affine map of the truth, another one in each batch, have no error; noise
    of 0.1 that no map explains has its variance.
    """
    truth = moving_ball.sample_trajectories(0, 70)
    codes = np.concatenate([2.0 * truth[:35] - 1.0, truth[35:] @ [[0.0, 1.0], [-3.0, 0.0]]])
    found = fresh.scores(codes, truth)
    assert found["rmse_test_aligned"] < 1e-6
    noise = np.random.default_rng(0).normal(0.0, 0.1, truth.shape)
    found = fresh.scores(truth + noise, truth)
    # Of 4200 squares; the fit of the codes shrinks them by a hundredth.
    assert found["rmse_test_aligned"] == pytest.approx(0.1, rel=0.06)
    expected = found["rmse_test_aligned"] ** 2 * truth[:35].size
    assert found["sse_test_aligned"] == pytest.approx(expected)


def test_published_settings() -> None:
    plan = fresh.make_plan("svgp_vae", "paper")
    fit = plan.variational
    assert (fit.num_steps, fit.learning_rate, fit.batch_size) == (25_000, 1e-3, None)
    assert (plan.num_inducing, plan.num_test) == (15, 350)
    model = fresh.build_model(plan)
    prior = model.latent_prior
    assert not any(p.trainable for k in prior.kernels for p in k.parameters)
    np.testing.assert_array_equal([k.lengthscales.numpy() for k in prior.kernels], 2.0)
    Z = prior.inducing_variable.Z.numpy()[:, 0]
    np.testing.assert_allclose(Z, np.linspace(0.0, 29.0, 15))  # the published 1 to 30, from 0
    sizes = [w.shape for w in model.decoder.trainable_parameters]
    assert sizes == [(2, 500), (500,), (500, 1024), (1024,)]  # one hidden layer
    learnt = fresh.build_model(fresh.make_plan("svgp_vae", "paper", learn_inducing=True))
    assert len(learnt.trainable_parameters) == len(model.trainable_parameters) + 1


FEW = ("--protocol=fresh", "--num_steps=1", "--num_test=35")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model=vae",), "fresh videos"),
        (
            ("--model=svgp_vae", "--GP_joint", "--ip_joint", "--ip_min=1", "--ip_max=4"),
            "fresh videos M = 15 learnt lengthscale learnt inducing inputs from 1 to 4",
        ),
    ],
    ids=["vae", "learnt"],
)
def test_small_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(networks, "WIDTH", 4)
    monkeypatch.setattr(fresh, "NUM_VIDEOS", 5)
    found = call(command.STUDY, tmp_path, *FEW, *flags)
    assert found["variant"] == words and found["temperature"] is None
    assert {"rmse", "rmse_test_aligned", "sse_test_aligned"} <= set(found["metrics"])
    assert ("lengthscale" in found["metrics"]) == (found["model"] == "svgp_vae")
    assert (tmp_path / "inducing.png").exists() == (found["model"] == "svgp_vae")
    assert (tmp_path / "posterior.npz").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model=sgp_bae",), "is of vae, gp_vae, svgp_vae"),
        (("--model=vae", "--num_test=36"), "must be a multiple of 35"),
        (("--model=svgp_vae", "--ip_min=4", "--ip_max=2"), "start from frame 3 to 1"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: pathlib.Path, flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(app.UsageError, match=words):
        call(command.STUDY, tmp_path / "a", "--protocol=fresh", *flags)
