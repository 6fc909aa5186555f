"""Runs of Algorithm 1: equal seeds, folders, divergence, and SIGKILL.

This file is also the program that the SIGKILL test runs: ``test_sampling.py OUT_DIR WHEN``.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_bae
from gpflow_bae import decoders, encoders, inference, likelihoods, models
from gpflow_bae.datasets import moving_ball
from gpflow_bae.mcmc.adaptive_sghmc import build as adaptive

SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=3,
    encoder=inference.EncoderSettings(num_steps=2, batch_size=8),
    burnin=6,
    num_samples=3,
    thinning=6,
)
# Two rounds of burn-in, then two rounds to each of three samples. After round 5 the last checkpoint
# is that of round 4, in which the first sample was written.
CHECKPOINT_EVERY, KILLED_AFTER = 2, 5
# The same rounds with a step each, and fewer of them: for runs that are not compiled.
ROUNDS = dataclasses.replace(
    SETTINGS,
    num_sampler_steps=1,
    encoder=dataclasses.replace(SETTINGS.encoder, num_steps=1),
    burnin=2,
    thinning=2,
)
TINY = dataclasses.replace(ROUNDS, burnin=1, num_samples=2, thinning=1)


def dense(num_inputs: int, num_outputs: int) -> keras.Model:
    return keras.Sequential([keras.Input((num_inputs,)), keras.layers.Dense(num_outputs)])


def ball() -> tuple[np.ndarray, np.ndarray]:
    """Four videos of six frames of 6 x 6 pixels."""
    videos = moving_ball.generate(0, 4, num_frames=6, image_size=6, scale=1.2, radius=1.5)
    return videos.X, videos.Y


def ball_model(P: int = 36) -> models.SGPBAE:
    keras.utils.set_random_seed(0)
    return models.SGPBAE(
        kernel=gpflow.kernels.SquaredExponential(),
        inducing_variable=np.array([[0.5], [2.5], [4.5]]),
        decoder=dense(2, P),
        encoder=dense(2 * P, 2),
        likelihood=likelihoods.Bernoulli(),
        latent_dim=2,
    )


def start(**options: Any) -> inference.WarmStart:
    """Four fits, one after the other, of which the third is the variational one."""
    keras.utils.set_random_seed(1)
    return inference.WarmStart(
        encoders.GaussianEncoder(dense(36, 4)),
        inference.VariationalSettings(num_steps=100),
        distillation=inference.EncoderSettings(batch_size=256, num_steps=10),
        num_initial_steps=10,
        **options,
    )


def sample(
    out_dir: pathlib.Path | None = None,
    batch_size: int | None = None,
    settings: inference.AmortizedSettings = SETTINGS,
    **kwargs: Any,
) -> gpflow_bae.Posterior:
    settings = dataclasses.replace(settings, batch_size=batch_size)
    arguments: dict[str, Any] = {"seed": 7, "checkpoint_every": CHECKPOINT_EVERY} | kwargs
    return inference.sample_amortized(
        ball_model(),
        ball(),
        settings,
        out_dir=out_dir,
        progress=False,
        **({"warm_start": None} | arguments),
    )


def sample_as(when: str, out_dir: pathlib.Path | None = None, **kwargs: Any) -> Any:
    """The run that is killed in some round, with minibatches or without, or in its start.

    That with a start is compiled, the others are not, in whatever process.
    """
    if when == "start":
        return sample(out_dir, **({"warm_start": start()} | kwargs))
    tf.config.run_functions_eagerly(True)
    try:
        return sample(out_dir, 2 if when == "minibatches" else None, ROUNDS, **kwargs)
    finally:
        tf.config.run_functions_eagerly(False)


@functools.cache
def uninterrupted(when: str) -> gpflow_bae.Posterior:
    return sample_as(when)


def assert_bitwise_equal(one: gpflow_bae.Posterior, other: gpflow_bae.Posterior) -> None:
    """Every array of every sample, and what was recorded of every round."""
    assert one.num_samples == other.num_samples
    pairs = [*zip(one.parameters, other.parameters, strict=True)]
    pairs += [*zip(one.encoder, other.encoder, strict=True)]
    pairs += [(one.latents, other.latents), (one.history, other.history)]
    for a, b in pairs:
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert one.bank.trace.keys() == other.bank.trace.keys()
    for name, values in one.bank.trace.items():
        assert np.array_equal(values, other.bank.trace[name])
    finals = (p.unconstrained_variable.numpy() for p in one.model.sampled.parameters)
    for final, values in zip(finals, other.parameters, strict=True):
        assert np.array_equal(final, values[-1])


KILLED = ("rounds", "minibatches", "start")


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Folders of runs that were killed with SIGKILL, by when."""
    folders = {when: tmp_path_factory.mktemp("run") / when for when in KILLED}
    root = str(pathlib.Path(gpflow_bae.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.run(  # one process that forks: TensorFlow takes long to load
        [sys.executable, __file__, *(f"{when}={folder}" for when, folder in folders.items())],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout
    return folders


@pytest.mark.parametrize("when", KILLED)
def test_killed_and_resumed_is_an_uninterrupted_run(
    when: str, killed_runs: dict[str, pathlib.Path]
) -> None:
    """Bit by bit: round r draws from seed (7, r) alone, and the checkpoint holds all the rest.

    That is the chain with its statistics, the encoder, Adam's moments, and the history; of a start
    it is the fits that are finished, and where the present one was.
    """
    folder = killed_runs[when]
    if when == "start":
        assert not (folder / "state.npz").exists(), "the kill must be in the start"
        kept = sorted(path.name for path in (folder / "start_0").iterdir() if path.is_dir())
        assert kept == ["first_decoder", "first_encoder", "variational"]
    else:
        with np.load(folder / "state.npz") as state:
            counters = [int(state[f"run/{name}"]) for name in ("number", "num_samples")]
        assert counters == [4, 1], "the kill must lose a round"
    rounds: list[int] = []

    def note(number: int, _: Any) -> None:
        rounds.append(number)

    resumed = sample_as(when, folder, resume=True, callback=note)
    assert rounds == list(range(1 if when == "start" else 5, 9))
    assert resumed.num_samples == SETTINGS.num_samples
    assert_bitwise_equal(resumed, uninterrupted(when))
    # A finished run has nothing left to do.
    rounds.clear()
    again = sample_as(when, folder, resume=True, callback=note)
    assert rounds == []
    assert_bitwise_equal(again, uninterrupted(when))


@pytest.mark.usefixtures("untraced")
def test_equal_seeds_give_equal_samples_others_others() -> None:
    """In one process; and every draw depends on the seed."""
    first, again, other = (sample(settings=TINY, seed=seed) for seed in (7, 7, 8))
    assert_bitwise_equal(first, again)
    assert not np.any(first.latents == other.latents)
    for a, b in zip(first.parameters, other.parameters, strict=True):
        assert not np.any(a == b)


def test_a_folder_with_a_run_is_not_overwritten(
    killed_runs: dict[str, pathlib.Path],
) -> None:
    """The same run again needs ``resume``; another one needs another folder, and is told why."""
    folder = killed_runs["rounds"]
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*.*") if p.name != ".lock"}
    with pytest.raises(ValueError, match="with these settings already; .* resume=True"):
        sample(folder, settings=ROUNDS)
    with pytest.raises(ValueError, match="other settings .*seed: 7 there, 8 now"):
        sample(folder, settings=ROUNDS, seed=8, resume=True)
    with pytest.raises(ValueError, match="other settings .*batch_size: None there, 3 now"):
        sample(folder, 3, ROUNDS, resume=True)
    X, Y = ball()
    other = {"sampler": adaptive(0.125), "seed": 7, "out_dir": folder, "resume": True}
    with pytest.raises(
        ValueError, match=r"data \(of shape \[4, .* have \[3, .*step_size: 0.005 there, 0.125 now"
    ):
        inference.sample_amortized(ball_model(), (X[:3], Y[:3]), ROUNDS, warm_start=None, **other)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.*") if p.name != ".lock"} == before


def scalar_bae(noise_variance: float = 1.0) -> models.BAE:
    """y = w z + noise, one scalar weight sampled."""
    decoder = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    likelihood = likelihoods.Gaussian(noise_variance)
    gpflow.set_trainable(likelihood, False)
    encoder = encoders.StochasticEncoder(dense(2, 1))
    return models.BAE(decoders.KerasDecoder(decoder), encoder, likelihood, latent_dim=1)


@pytest.mark.usefixtures("untraced")
def test_divergence_keeps_the_last_good_round(tmp_path: pathlib.Path) -> None:
    """Far beyond the stable step size codes grow geometrically until the density overflows.

    On a precision A the linear recursion is stable for h^2 P A < 4 - 2 a. Here h = 10, P = 1, A = 2
    (decoder and noise fixed at 1): a step multiplies a code by h^2 P A = 200, a round of three by
    8e6, and the square of the residual is beyond float32 (3e38) where the code is beyond 2e19. That
    takes a code of order 0.01 to 10 three rounds: two good ones, and the third is -inf.
    """
    model = scalar_bae()
    gpflow.set_trainable(model.decoder, False)
    settings = dataclasses.replace(SETTINGS, burnin=0, num_samples=50, thinning=3, codes="carried")
    Y = np.random.default_rng(0).standard_normal((1, 5, 1))
    good: list[int] = []
    with pytest.raises(FloatingPointError) as error:
        inference.sample_amortized(
            model,
            (None, Y),
            settings,
            sampler=adaptive(step_size=10.0),
            out_dir=tmp_path,
            checkpoint_every=1000,
            progress=False,
            callback=lambda number, _: good.append(number),
            warm_start=None,
        )
    assert good == [1, 2]
    message = str(error.value)
    assert "diverged in round 3: the log density became -inf" in message
    assert f"that of round 2 (saved in {tmp_path}). Lower step_size (now 10.0)" in message
    assert_checkpoint_is_good(tmp_path, 2, largest_code=1e19)


@pytest.mark.parametrize(
    "sampled, named",
    [("weights", r"\.decoder\.weights\[0\] became"), ("nothing", "the latent codes became")],
)
@pytest.mark.usefixtures("untraced")
def test_divergence_names_the_quantity(sampled: str, named: str, tmp_path: pathlib.Path) -> None:
    """A step size of 1e30 squared is beyond float32: the float32 weights go first, in round 1.

    The codes are float64, where it takes 1e200.
    """
    model = scalar_bae()
    step_size = 1e30
    if sampled == "nothing":
        gpflow.set_trainable(model.decoder, False)
        step_size = 1e160
    settings = dataclasses.replace(SETTINGS, burnin=0, num_sampler_steps=1, codes="carried")
    options = {"sampler": adaptive(step_size), "out_dir": tmp_path, "progress": False}
    Y = np.random.default_rng(0).standard_normal((1, 5, 1))
    with pytest.raises(FloatingPointError, match=f"in round 1: {named} non-finite"):
        inference.sample_amortized(model, (None, Y), settings, **({"warm_start": None} | options))
    assert_checkpoint_is_good(tmp_path, 0)


def assert_checkpoint_is_good(
    folder: pathlib.Path, last_round: int, largest_code: float = np.inf
) -> None:
    """The newest checkpoint is that of ``last_round``; all is finite, codes are below a limit."""
    with np.load(folder / "state.npz") as state:
        assert int(state["run/number"]) == last_round
        assert any(name.startswith("encoder/adam/") for name in state.files)
        for name in state.files:
            if state[name].dtype.kind == "f":
                moves = name.startswith("sampler/") and "temperature" not in name  # of squares
                limit = largest_code if moves else np.inf
                assert np.all(np.abs(state[name]) < limit), name


@pytest.mark.parametrize("burnin", [0, 30])
@pytest.mark.usefixtures("untraced")
def test_negative_variance_of_equation_17_is_refused(burnin: int, tmp_path: pathlib.Path) -> None:
    """2 a T h^2 P - h^4 < 0 iff h > sqrt(2 a T P): the error names that bound.

    Without burn-in P is 1 and the bound sqrt(2 * 0.05) = 0.316, seen before the first step. With
    burn-in P falls as gradients of a precision of 1e4 come in, and the bound with it, in the middle
    of a round. (Nothing is clamped: the released code's cold chain is impossible.)
    """
    model = scalar_bae(noise_variance=1e-4)
    gpflow.set_trainable(model.decoder, False)  # then the codes alone decide
    settings = dataclasses.replace(
        SETTINGS,
        burnin=burnin,
        num_sampler_steps=30,
        codes="carried",
    )
    sampler = adaptive(0.32 if burnin == 0 else 0.1, subtract_gradient_noise=True)
    options = {"sampler": sampler, "out_dir": tmp_path, "progress": False}
    Y = np.random.default_rng(0).standard_normal((1, 5, 1))
    with pytest.raises(ValueError, match="the largest valid step_size is") as error:
        inference.sample_amortized(model, (None, Y), settings, **({"warm_start": None} | options))
    largest = float(str(error.value).split("the largest valid step_size is ")[1].split()[0])
    if burnin == 0:
        np.testing.assert_allclose(largest, np.sqrt(2 * 0.05), rtol=1e-5)
    else:
        assert 0 < largest < 0.1


@pytest.mark.usefixtures("untraced")
def test_a_valid_step_size_with_equation_17_runs() -> None:
    """The same bound from below: h = 0.31 at P = 1 is accepted."""
    model = scalar_bae()
    gpflow.set_trainable(model.decoder, False)
    settings = dataclasses.replace(SETTINGS, burnin=0, codes="carried")
    sampler = adaptive(step_size=0.31, subtract_gradient_noise=True)
    Y = np.random.default_rng(0).standard_normal((1, 5, 1))
    posterior = inference.sample_amortized(
        model, (None, Y), settings, sampler=sampler, progress=False, warm_start=None
    )
    assert np.isfinite(posterior.latents).all()


@pytest.mark.usefixtures("untraced")
def test_a_run_that_stops_early_goes_on_as_if_it_had_not(tmp_path: pathlib.Path) -> None:
    """Resumed with more samples, or without ``max_samples``, it has an uninterrupted run's."""
    finished = sample(tmp_path / "run", settings=dataclasses.replace(TINY, num_samples=1))
    assert finished.num_samples == 1
    more = dataclasses.replace(TINY, num_samples=3)
    short = sample(tmp_path / "run", settings=more, resume=True, max_samples=2)
    assert short.num_samples == 2
    resumed = sample(tmp_path / "run", settings=more, resume=True)
    assert_bitwise_equal(resumed, sample(settings=more))
    assert resumed.bank.settings["num_samples"] == more.num_samples
    all_there = sample(tmp_path / "run", settings=TINY, resume=True)  # none is thrown away
    assert all_there.num_samples == more.num_samples
    with pytest.raises(ValueError, match="max_samples must be at least 1, got 0"):
        sample(max_samples=0)


def run_and_die(when: str, folder: pathlib.Path) -> None:
    """The process gets no chance to write anything more."""

    def kill(number: int, _: Any) -> None:
        if when == "start" or number == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"warm_start": start(callback=kill)} if when == "start" else {"callback": kill}
    sample_as(when, folder, **options)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        child = os.fork()  # before TensorFlow has started its own threads
        if child == 0:
            tf.config.threading.set_intra_op_parallelism_threads(2)  # as tests/conftest.py does
            name, path = argument.split("=", 1)
            run_and_die(name, pathlib.Path(path))
        else:
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, argument
