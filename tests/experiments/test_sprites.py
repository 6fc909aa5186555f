"""SPRITES: minibatches of whole characters, scores in passes, and a run of each model."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from absl import app
from scipy import stats

from experiments.common import driver
from experiments.sprites import __main__ as command
from experiments.sprites import frames, models, plans, pretraining, scores, study
from experiments.sprites.frames import Task
from experiments.sprites.networks import conv_decoder, conv_encoder, side_of
from experiments.sprites.published import (
    published_decoder,
    published_encoder,
    published_representation,
)
from gpflow_bae import inputs
from gpflow_bae.base import Batch
from gpflow_bae.datasets import sprites
from gpflow_bae.datasets.sprites import LAYERS, Frames, Sprites, as_float
from gpflow_bae.posteriors import FittedModel
from tests.experiments.commands import call

SIDE, POSES, TRAIN = 8, 10, 9
SMALL: dict[str, Any] = {
    "latent_dim": 3,
    "character_dim": 3,
    "pose_dim": 2,
    "encoder_filters": 2,
    "representation_filters": 2,
    "decoder_filters": 2,
    "frames_per_character": POSES,
}


def made() -> Sprites:
    """Nine characters to train on, with ten poses each, and seven others, of random colours."""
    rng = np.random.default_rng(0)
    sheets = {}
    for layer, count in zip(LAYERS, (2, 2, 2, 2, 1), strict=True):
        sheet = rng.integers(0, 256, (count, 21 * SIDE, 13 * SIDE, 4), dtype=np.uint8)
        sheet[..., 3] = 255 * rng.integers(0, 2, sheet.shape[:-1])
        sheets[layer] = sheet
    return sprites.build(sheets, num_train=TRAIN, num_train_poses=POSES)


@pytest.fixture(scope="module")
def data() -> Task:
    return frames.task(made(), TRAIN, 4, 0)


def small_plan(model: str = "svgp_vae", **changes: Any) -> models.Plan:
    plan = {"num_epochs": 1, "batch_size": 3 * POSES, "pretrain_steps": 0}
    return plans.make_plan(model, "quick", **(plan | SMALL | changes))


def some(found: Frames, number: int) -> Frames:
    return Frames(found.X[:number], found.Y[:number])


# Frames


def test_minibatches_hold_whole_characters(data: Task) -> None:
    """In every epoch, also where its end is inside of a minibatch; and each frame once in one."""
    rows = frames.stream(data.train, POSES)
    assert rows.num_points == 90 and not rows.has_missing
    X, Y = (v.numpy() for v in rows.reader(4 * POSES, 9, (0, 1)).read(0))  # four epochs
    for batch in X:
        # One character may end an epoch and begin the next.
        assert (np.unique(batch[:, 0], return_counts=True)[1] % POSES == 0).all()
    X, Y = X.reshape(4, 90, 2), Y.reshape(4, 90, -1)
    place = {tuple(row): n for n, row in enumerate(data.train.X)}
    for epoch_X, epoch_Y in zip(X, Y, strict=True):
        found = [place[tuple(row)] for row in epoch_X]
        assert sorted(found) == list(range(90))
        np.testing.assert_array_equal(epoch_Y, as_float(data.train.Y)[found])
    assert not np.array_equal(X[0], X[1])


def test_part_of_a_characters_frames_may_come_together(data: Task) -> None:
    rows = frames.stream(data.train, 5)
    X = rows.reader(30, 3, (0, 1)).read(0)[0].numpy()
    for batch in X:
        assert (np.unique(batch[:, 0], return_counts=True)[1] % 5 == 0).all()
    assert {tuple(row) for row in X.reshape(-1, 2)} == {tuple(row) for row in data.train.X}
    with pytest.raises(ValueError, match="frames_per_character is 4, which does not divide the 10"):
        frames.stream(data.train, 4)


def test_any_frames_where_nothing_is_pooled(data: Task) -> None:
    rows = frames.stream(data.train, None)
    X = rows.reader(30, 3, (0, 1)).read(0)[0].numpy()
    assert min(len(np.unique(batch[:, 0])) for batch in X) > 5
    assert {tuple(row) for row in X.reshape(-1, 2)} == {tuple(row) for row in data.train.X}


def test_contexts_are_nested(data: Task) -> None:
    found = [frames.first_poses(data.context, n) for n in (1, 4, 12, 36)]
    sets = [{tuple(row) for row in part.X} for part in found]
    assert [len(s) for s in sets] == [4 * n for n in (1, 4, 12, 36)]
    assert sets[0] < sets[1] < sets[2] < sets[3]
    np.testing.assert_array_equal(found[-1].X, data.context.X)
    for part in found:
        for row, image in zip(part.X, part.Y, strict=True):
            same = (data.context.X == row).all(1)
            np.testing.assert_array_equal(image, data.context.Y[same][0])


def test_held_out_characters_are_not_trained_on() -> None:
    whole = made()
    held = frames.task(whole, 8, None, 3)
    assert set(held.train.X[:, 0]) == set(range(5)) and held.num_characters == 8
    for part in (held.context, held.test):
        assert set(part.X[:, 0]) == {5.0, 6.0, 7.0} and len(part.X) == 3 * POSES // 2
    rows = [{tuple(row) for row in part.X} for part in (held.context, held.test)]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == {tuple(row) for row in whole.train.X if 5 <= row[0] < 8}
    with pytest.raises(ValueError, match="holdout is 8; of 8 training characters some must stay"):
        frames.task(whole, 8, None, 8)


# Models


def test_networks() -> None:
    decoder, encoder = conv_decoder(5, 16 * 16 * 3, 4), conv_encoder(16 * 16 * 3, 7, 4)
    image = decoder(np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32))
    assert image.shape == (2, 16 * 16 * 3) and encoder(image).shape == (2, 7)
    with pytest.raises(ValueError, match="have 75 numbers; .* a multiple of 8"):
        side_of(75)


def test_published_networks() -> None:
    """Numbers of weights of tables A.3 and A.4, counted by hand."""
    P, F = 64 * 64 * 3, 16
    first, other = 27 * F + F, 9 * F * F + F
    encoder = published_encoder(P, 128, F)
    assert encoder.count_params() == first + 5 * other + (8 * 8 * F + 1) * 128
    decoder = published_decoder(64, P, F)
    assert decoder.count_params() == 65 * 1024 + 6 * other + (9 * F + 1) * 3
    network = published_representation(P, 16)
    assert network.count_params() == (4 * 3 * 16 + 16) + 2 * (4 * 16 * 16 + 16)
    assert published_encoder(192, 7, 2, num_features=5)(np.zeros((2, 197))).shape == (2, 7)
    codes = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    assert published_decoder(3, 192, 2)(codes).shape == (2, 192)


def test_published_settings() -> None:
    """As printed: pooled by a sum over all 50 frames, vectors of 8 numbers, a constant rate of
    0.001, 400 epochs of pretraining in minibatches of 500.
    """
    plan = plans.make_plan("svgp_vae", "paper", networks="published")
    assert (plan.pooling, plan.frames_per_character, plan.pose_dim) == ("sum", 50, 8)
    assert plan.character_dim == plan.encoder_filters == plan.decoder_filters == 16
    assert plan.pretrain_steps == 400 * 100 and plan.num_epochs == 50 and plan.latent_dim == 64
    assert plan.variational.learning_rate == 1e-3
    assert plan.variational.final_learning_rate_fraction == 1.0


def test_a_chain_of_the_published_networks(data: Task) -> None:
    """It goes on with the fit's decoder, and its encoder takes as much noise as codes."""
    plan = small_plan("sgp_bae", networks="published")
    fitted = models.build_model(small_plan(networks="published"), data)
    chain = models.build_chain(plan, fitted)
    assert chain.decoder.weights[0] is fitted.decoder.weights[0]
    Y, noise = as_float(data.test.Y[:2])[None], np.ones((1, 2, plan.latent_dim), np.float32)
    assert chain.encoder(Y, noise).shape == (1, 2, plan.latent_dim)
    assert not np.array_equal(chain.encoder(Y, noise), chain.encoder(Y, 0.0 * noise))


def test_the_kernel_sees_no_scale_of_vectors(data: Task) -> None:
    """A sum over a character's frames gives the codes that their mean gives."""
    few = frames.first_poses(data.train, 4)
    X, Y = few.X, as_float(few.Y)
    found = []
    for pooling in ("mean", "sum"):
        tf.keras.utils.set_random_seed(0)
        model = models.build_model(small_plan(networks="published", pooling=pooling), data)
        batch = Batch(tf.constant(X[None]), tf.constant(Y[None]), None)
        prior = model.prior_for(batch)
        found.append(prior.kernels[0].K(batch.X).numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_pixels_lie_where_their_place_is() -> None:
    """Of a decoder whose convolutions see the middle of their window alone."""
    decoder = conv_decoder(1, 32 * 32 * 3, 1)
    dense, first, last = (layer for layer in decoder.layers if layer.weights)
    for layer in (first, last):
        kernel, bias = (np.zeros(w.shape, np.float32) for w in layer.weights)
        kernel[1, 1] = 1.0
        layer.set_weights([kernel, bias])
    places = np.arange(16, dtype=np.float32)
    dense.set_weights([np.zeros((1, 16), np.float32), places])
    image = decoder(np.zeros((1, 1), np.float32)).numpy().reshape(32, 32, 3)
    expected = np.kron(places.reshape(4, 4), np.ones((8, 8)))
    np.testing.assert_allclose(image, np.repeat(expected[..., None], 3, -1), rtol=1e-6)


def test_inducing_points_span_the_kernel(data: Task) -> None:
    """Then no variance is left, whatever the vectors."""
    model = models.build_model(small_plan(), data)
    batch = Batch(tf.constant(data.train.X[None]), tf.constant(as_float(data.train.Y)[None]), None)
    prior = model.prior_for(batch)
    _, left = prior._features(batch.X)
    assert left.numpy().max() < 1e-4 * prior.marginal_variance(batch.X).numpy().max()


def test_principal_components_tell_poses_apart(data: Task) -> None:
    mean = models.mean_frames(data.train, 1, data.num_poses)
    seen = data.train.X[:, 1] == data.train.X[0, 1]
    expected = as_float(data.train.Y[seen]).mean(0)
    np.testing.assert_allclose(mean[int(data.train.X[0, 1])], expected, atol=1e-6)
    found = models._principal_components(mean, 3, 0)
    np.testing.assert_allclose(found.T @ found, 72.0 * np.eye(3), atol=1e-3)


def test_a_classifier_is_better_after_its_steps(data: Task, tmp_path: pathlib.Path) -> None:
    network = models.representation_network(small_plan(), SIDE * SIDE * 3)
    before = [w.numpy() for w in network.weights]
    kept = tmp_path / "classifier.npz"
    losses = pretraining.pretrain(network, data.train, 60, 45, learning_rate=1e-2, kept=kept)
    assert losses[0] == pytest.approx(np.log(TRAIN), rel=0.3) and losses[-1] < 0.9 * losses[0]
    for weight, value in zip(network.weights, before, strict=True):
        assert not np.array_equal(weight.numpy(), value)
    # A resumed run has what was learnt, and takes no further step.
    again = models.representation_network(small_plan(), SIDE * SIDE * 3)
    assert pretraining.pretrain(again, data.train, 60, 45, kept=kept) == losses
    for weight, value in zip(again.get_weights(), network.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, value)


# Scores


@pytest.mark.parametrize("representation", ["network", "gplvm"])
def test_codes_are_those_of_the_model(
    data: Task, monkeypatch: pytest.MonkeyPatch, representation: str
) -> None:
    """In passes over frames, characters and channels, as of all at once."""
    plan, context = small_plan(representation=representation), frames.first_poses(data.context, 4)
    model = models.build_model(plan, data)
    given = frames.pooled(data.train, context)
    asked = data.test.X
    mean, variance = model.predict_f(asked, given=(given.X, as_float(given.Y)))
    monkeypatch.setattr(scores, "CHUNK", 7)
    monkeypatch.setattr(scores, "_CHANNELS", 2)
    parts = [scores.know(plan, model, data, part) for part in (data.train, context)]
    found = scores.codes_of(plan, model, parts, asked)
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.variance[0], variance, rtol=1e-4, atol=1e-6)
    if representation == "network":
        vectors, scale = scores.character_vectors(model, given, data.num_characters)
        whole = model.inputs.vectors(given.X, as_float(given.Y))
        there = np.isfinite(whole[:, 0])
        np.testing.assert_allclose(vectors[: len(whole)][there], whole[there], rtol=1e-5)
        assert not vectors[: len(whole)][~there].any() and not scale.any()


def test_codes_under_draws_of_vectors(data: Task) -> None:
    """They have the spread that the vectors give them, which more frames of a
    character make smaller.
    """
    plan = small_plan(pooling="gaussian")
    model = models.build_model(plan, data)
    spread = []
    for number in (1, 36):
        parts = [
            scores.know(plan, model, data, part)
            for part in (data.train, frames.first_poses(data.context, number))
        ]
        codes = scores.codes_of(plan, model, parts, data.test.X, 6)
        assert codes.mean.shape == (6, len(data.test.X), plan.latent_dim)
        spread.append(codes.mean.std(0).mean())
        given = parts[1].vectors
        one, other = given.draws(2)
        np.testing.assert_allclose(0.5 * (one + other), given.mean, atol=1e-12)  # mirrored
        asked = np.unique(data.test.X[:, 0]).astype(int)
        deviation = given.draws(4000)[:, asked].std(0)
        # Four standard errors of 4000 draws.
        np.testing.assert_allclose(deviation, given.scale[asked], rtol=4.0 / np.sqrt(8000))
    assert spread[0] > 1.5 * spread[1]
    at_means = scores.codes_of(plan, model, parts, data.test.X)
    assert at_means.mean.shape[0] == 1


def test_codes_of_a_cvae_are_means_over_the_context(data: Task) -> None:
    model = models.build_model(small_plan("cvae"), data)
    given = frames.first_poses(data.context, 4)
    parts = [scores.know(small_plan("cvae"), model, data, given)]
    codes = scores.codes_of(small_plan("cvae"), model, parts, data.test.X)
    mean, variance = (v.numpy() for v in model.encode(given.X, as_float(given.Y)))
    for i in np.unique(data.test.X[:, 0]):
        own, asked = given.X[:, 0] == i, data.test.X[:, 0] == i
        np.testing.assert_allclose(codes.mean[0, asked], [mean[own].mean(0)] * 36, rtol=1e-5)
        np.testing.assert_allclose(codes.variance[0, asked], [variance[own].mean(0) / 4] * 36, 1e-5)


def test_scores_of_passes_are_those_of_all_frames(data: Task) -> None:
    model = models.build_model(small_plan(), data)
    rng = np.random.default_rng(1)
    few = some(data.test, 50)
    codes = scores.Codes(rng.standard_normal((4, 50, 3)), rng.uniform(0.1, 1.0, (4, 50, 3)))
    whole, passes = (scores.score(model, few, codes, 4, chunk=n) for n in (50, 7))
    assert whole == pytest.approx(passes, rel=1e-5)
    made = scores.generate(model, few.X, codes, 4, 0)
    truth = as_float(few.Y)
    assert whole["mse"] == pytest.approx(np.mean(np.square(made.mean - truth)), rel=1e-5)
    spread = np.sqrt(made.noise_variance + made.epistemic_variance)
    density = stats.norm(made.mean, spread).logpdf(truth)
    assert whole["nll_moments"] == pytest.approx(-density.mean(), rel=1e-4)
    inside = np.abs(truth - made.mean) <= stats.norm.ppf(0.95) * spread
    assert whole["coverage_90"] == pytest.approx(inside.mean(), abs=1e-3)
    # Without spread every draw is the mean.
    one = scores.Codes(codes.mean[:1], np.zeros((1, 50, 3)))
    certain = scores.score(model, few, one, 2)
    assert certain["epistemic_variance"] == pytest.approx(0.0, abs=1e-10)
    assert certain["mse"] == pytest.approx(certain["mse_one_draw"], rel=1e-5)


# Runs


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, of made characters, networks of two filters, and two steps in a call."""
    default = plans.make_plan

    def make(model: str, preset: str, **settings: Any) -> models.Plan:
        own = {name: v for name, v in SMALL.items() if name.endswith(("filters", "_dim"))}
        if model == "sgp_bae":
            rounds = {"num_sampler_steps": 5, "num_encoder_steps": 1}
            own |= {"chain_start_steps": 2, "schedule": settings["schedule"] | rounds}
        return default(model, preset, **(settings | own))

    monkeypatch.setattr(plans, "make_plan", make)
    monkeypatch.setattr(study.sprites, "load", lambda *_, **__: made())
    monkeypatch.setattr(study, "_STEPS_PER_CALL", 2)
    monkeypatch.setattr(study, "CONTEXT_SIZES", (4,))


WIDTHS = (
    "--L=3",
    "--batch_size=30",
    "--nr_epochs=1",
    "--num_test=2",
)
OTHER_CHOICES = ("--noGECO", "--pooling=gaussian")
CHAIN = ("--burnin=5", "--num_samples=2", "--thinning=5")
OF_NETWORK = ("--frames_per_character=10", "--pretrain_steps=2")


@pytest.mark.usefixtures("small", "untraced_predictions")
@pytest.mark.parametrize(
    "flags",
    [
        ("--model=svgp_vae", *OF_NETWORK),
        ("--elbo=SVGPVAE_Hensman", *OTHER_CHOICES, *OF_NETWORK),
        ("--model=svgp_vae", "--representation=gplvm"),
        ("--model=cvae",),
        ("--model=cvae", "--networks=published"),
        ("--model=svgp_vae", "--networks=published", *OF_NETWORK),
        pytest.param(
            ("--model=sgp_bae", "--chain_frames=4", *CHAIN, *OF_NETWORK), marks=pytest.mark.slow
        ),
    ],
)
def test_small_runs(tmp_path: pathlib.Path, flags: tuple[str, ...]) -> None:
    found = call(command.STUDY, tmp_path, *flags, *WIDTHS)
    metrics = found["metrics"]
    assert np.isfinite(list(metrics.values())).all() and metrics["mse"] < 2.0
    has_sizes = "--representation=gplvm" not in flags
    assert ("mse_context_4" in metrics) == has_sizes
    assert metrics["mse"] == metrics["mse_context_36"]
    assert (found["temperature"] == 1.0) == (found["model"] == "sgp_bae")
    assert ("classifier_loss" in found["curves"]) == ("--pretrain_steps=2" in flags)
    assert ("gplvm" in found["variant"]) != has_sizes
    assert {"generated.png", "loss.png", "arrays.npz"} <= {p.name for p in tmp_path.iterdir()}
    if "--noGECO" not in flags and found["model"] == "svgp_vae":
        assert metrics["noise_variance"] == pytest.approx(0.0075)
        assert found["settings"]["variational"]["objective"]["name"] == "GECO"


@pytest.mark.usefixtures("small")
def test_a_saved_run_is_the_fit(tmp_path: pathlib.Path) -> None:
    plan = small_plan()
    task = study.load("", 36, TRAIN, None, 2)
    outcome = study.run(plan, task, driver.Options(0, tmp_path, progress=False))
    outcome.posterior.save(tmp_path / "posterior.npz")
    model = FittedModel.load(tmp_path / "posterior.npz", models.build_model(plan, task)).model
    metrics, _ = study.evaluate(plan, model, task)
    assert metrics["mse"] == pytest.approx(outcome.metrics["mse"], rel=1e-4)
    assert isinstance(model.inputs, inputs.RepresentationNetwork)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--batch_size=35",), "batch_size is 35; it must be a multiple of the 10 frames"),
        (("--representation=gplvm", "--pretrain_steps=5"), "no representation network"),
        (("--model=cvae", "--representation=gplvm"), "--representation is of svgp_vae"),
        (("--model=sgp_bae", "--representation=gplvm"), "has the vectors that a representation"),
        (("--holdout_characters=1000",), "leave none to train on"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: pathlib.Path, flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(app.UsageError, match=words):
        call(command.STUDY, tmp_path / "a", "--frames_per_character=10", *flags)


def test_missing_sheets_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(app.UsageError, match="body/0.png"):
        call(command.STUDY, tmp_path / "a", f"--data_dir={tmp_path}")
