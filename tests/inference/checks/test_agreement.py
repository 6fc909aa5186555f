"""Runs that end when chains agree: when they look, what they compare, and what they keep."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import keras
import numpy as np
import pytest

from gpflow_bae import decoders, diagnostics, encoders, inference, likelihoods, mcmc, models
from gpflow_bae.data import prepare_data
from gpflow_bae.inference.checks.agreement import Agreement

SETTINGS = inference.AmortizedSettings(
    num_sampler_steps=2,
    encoder=inference.EncoderSettings(num_steps=1),
    burnin=20,
    num_samples=70,
    thinning=4,
)
LOOKS = (40, 50, 63, 70)  # a quarter more each time, and the end
LIMIT = 1.3
Y = np.random.default_rng(0).standard_normal((12, 2))
Y[0] = np.nan  # a row that is not compared


def model() -> models.BAE:
    """Codes of one number, and a line as decoder."""
    keras.utils.set_random_seed(0)
    line = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    encoder = encoders.partial_encoder("zeros", 2, 1, (3,), stochastic=True)
    return models.BAE(decoders.KerasDecoder(line), encoder, likelihoods.Gaussian(0.3), 1)


def sample(until: float | None = None, **options: Any) -> Any:
    options = {
        "settings": SETTINGS,
        "num_chains": 2,
        "warm_start": None,
        "progress": False,
    } | options
    sampler = mcmc.sghmc.build(0.2, 0.2, integrator="baoab")
    return inference.sample_amortized(
        model(), (None, Y), sampler=sampler, until_rhat=until, **options
    )


@pytest.fixture(scope="module")
def whole() -> Any:
    return sample()


def outputs(bank: Any) -> np.ndarray:
    """Outputs [C, S, 11, 2] of the rows with data, by a computation of their own."""
    kernel, bias = (v for k, v in bank.parameters.items() if ".decoder" in k)
    lines = bank.latents @ kernel[:, :, None] + bias[:, :, None, None]
    return lines[:, :, 0, 1:]


def rhat_after(bank: Any, number: int) -> float:
    kept = outputs(bank)[:, number // 2 : number]
    return diagnostics.function_space_diagnostics(kept).rhat_q95


def test_a_run_ends_at_the_first_look_at_which_its_second_half_agrees(whole: Any) -> None:
    """It is the beginning of the run without a limit, bit by bit."""
    found = [rhat_after(whole.bank, number) for number in LOOKS]
    limit = min(found) + 1e-6
    end = LOOKS[int(np.argmax(np.array(found) <= limit))]
    assert end > LOOKS[0]  # of these seeds
    ended = sample(limit)
    assert ended.bank.num_samples == end - end // 2
    for path, values in ended.bank.parameters.items():
        np.testing.assert_array_equal(values, whole.bank.parameters[path][:, end // 2 : end])
    assert ended.bank.settings["burnin_rounds"] == 10 + end // 2 * 2


def test_a_run_that_ended_resumes_to_the_same_end(whole: Any, tmp_path: pathlib.Path) -> None:
    limit = rhat_after(whole.bank, LOOKS[0]) + 1e-6
    first = sample(limit, out_dir=tmp_path, max_samples=30)
    assert first.bank.num_samples == 15
    ended = [sample(limit, out_dir=tmp_path, resume=True) for _ in range(2)]
    for posterior in ended:
        np.testing.assert_array_equal(posterior.bank.latents, whole.bank.latents[:, 20:40])


def test_chains_that_do_not_agree_are_warned_of() -> None:
    short = dataclasses.replace(SETTINGS, num_samples=16)
    with pytest.warns(UserWarning, match="chains do not agree yet: 95 % .* until_rhat=1.0001"):
        assert sample(1.0001, settings=short, num_chains=1).bank.num_samples == 8


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="until_rhat must be above 1, such as 1.05, got 0.9"):
        sample(0.9)
    with pytest.raises(ValueError, match="until_rhat needs num_samples of 16 or more, got 8"):
        sample(1.1, settings=dataclasses.replace(SETTINGS, num_samples=8))
    networks = [keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]) for _ in range(2)]
    with pytest.raises(ValueError, match="until_rhat compares what chains decode"):
        inference.sample_amortized(models.TemperedBAE(*networks), (None, Y[1:]), until_rhat=1.1)


def test_complete_data_are_compared_too() -> None:
    complete = inference.sample_amortized(
        model(),
        (None, Y[1:]),
        dataclasses.replace(SETTINGS, num_samples=16),
        sampler=mcmc.sghmc.build(0.2, 0.2, integrator="baoab"),
        warm_start=None,
        progress=False,
        until_rhat=100.0,
    )
    assert complete.bank.num_samples == 8


def test_tasks_that_share_their_inputs_are_compared() -> None:
    """The rows to compare are of all tasks, each at the inputs of its point."""
    X, several = np.arange(4.0)[:, None], Y[1:].reshape(-1)[:16].reshape(2, 4, 2)
    data = prepare_data(model(), (X, several))
    algorithm = inference.AmortizedSampling(model(), data, SETTINGS)
    agreement = Agreement(algorithm, 1.1)
    assert data.X.shape == (1, 4, 1) and len(agreement._rows) == 8
    np.testing.assert_array_equal(agreement._X[0], np.concatenate([X, X]))


def test_looks_end_at_the_last_sample() -> None:
    assert Agreement.looks(70) == set(LOOKS) and Agreement.looks(16) == {16}
