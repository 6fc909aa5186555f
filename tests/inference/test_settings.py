"""Settings: how steps become rounds, and what is refused."""

import dataclasses
from typing import Any

import pytest

from gpflow_bae import inference


def test_steps_become_whole_rounds() -> None:
    """1500 steps of burn-in are 30 rounds of 50, thinning 400 is 8: 30 + 100 * 8 rounds."""
    paper, _ = inference.amortized_preset("paper")
    assert (paper.burnin_rounds, paper.rounds_per_sample, paper.num_rounds) == (30, 8, 830)
    # The last round of burn-in is not cut short, and samples are at least a round apart.
    uneven = dataclasses.replace(paper, burnin=1501, thinning=10, num_samples=3)
    assert (uneven.burnin_rounds, uneven.rounds_per_sample, uneven.num_rounds) == (31, 1, 34)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"codes": "free"}, "codes must be .*got 'free'"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"num_sampler_steps": 0}, "num_sampler_steps must be positive, got 0"),
        ({"burnin": -1}, "burnin must be at least 0, got -1"),
        ({"num_samples": 0}, "num_samples must be positive, got 0"),
    ],
)
def test_amortized_settings_refuse(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inference.AmortizedSettings(**setting)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"loss": "mae"}, "loss must be one of .*got 'mae'"),
        ({"num_steps": -1}, "num_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
    ],
)
def test_encoder_settings_refuse(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inference.EncoderSettings(**setting)


def test_a_record_of_settings_is_flat() -> None:
    """The keys of stored rows, which pages and their tools read."""
    encoder = inference.EncoderSettings(num_steps=3, loss="nll", learning_rate=0.1, batch_size=7)
    record = inference.AmortizedSettings(encoder=encoder).describe()
    assert record["num_encoder_steps"] == 3 and record["encoder_loss"] == "nll"
    assert record["encoder_learning_rate"] == 0.1 and record["encoder_batch_size"] == 7
    assert "encoder" not in record and record["batch_size"] is None
    pair = inference.VariationalSettings(batch_size=(4, None)).describe()
    assert (pair["batch_size"], pair["num_columns"]) == (4, None)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"num_steps": 0}, "num_steps must be positive, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"batch_size": (4, 0)}, r"batch_size must be positive, got \(4, 0\)"),
        ({"final_learning_rate_fraction": 0.0}, r"must lie in \(0, 1\], got 0.0"),
    ],
)
def test_variational_settings_refuse(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inference.VariationalSettings(**setting)
