"""Settings: how steps become rounds, and what is refused."""

import dataclasses
from typing import Any

import pytest

from gpflow_bae import inference, mcmc


def test_steps_become_whole_rounds() -> None:
    """1500 steps of burn-in are 30 rounds of 50, thinning 400 is 8: 30 + 100 * 8 rounds."""
    paper, _ = inference.amortized_preset("paper")
    assert (paper.burnin_rounds, paper.rounds_per_sample, paper.num_rounds) == (30, 8, 830)
    # The last round of burn-in is not cut short, and samples are at least a round apart.
    uneven = dataclasses.replace(paper, burnin=1501, thinning=10, num_samples=3)
    assert (uneven.burnin_rounds, uneven.rounds_per_sample, uneven.num_rounds) == (31, 1, 34)


def test_presets() -> None:
    """The paper's numbers (protocols, section 1), at temperature 1; quick ones are shorter."""
    paper, sampler = inference.amortized_preset("paper")
    quick, cheaper = inference.amortized_preset("quick")
    published = mcmc.adaptive_sghmc.build(0.005, 0.05, 1.0, noise="gaussian")
    assert sampler.settings == published.settings and sampler.name == "adaptive_sghmc"
    assert cheaper.settings == published.settings | {"noise": "binomial"}
    assert (paper.burnin, paper.num_samples, paper.thinning) == (1500, 100, 400)
    assert (paper.num_sampler_steps, paper.num_encoder_steps) == (50, 30)
    assert quick.num_rounds < paper.num_rounds
    with pytest.raises(ValueError, match=r'"quick", "paper" and "ensemble", got \'slow\''):
        inference.amortized_preset("slow")


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"encoder_loss": "mae"}, "encoder_loss must be one of .*got 'mae'"),
        ({"codes": "free"}, "codes must be .*got 'free'"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"num_sampler_steps": 0}, "num_sampler_steps must be positive, got 0"),
        ({"burnin": -1}, "burnin must not be negative, got -1"),
        ({"num_samples": 0}, "num_samples must be positive, got 0"),
    ],
)
def test_amortized_settings_refuse(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inference.AmortizedSettings(**setting)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"num_steps": 0}, "num_steps must be positive, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
        ({"final_learning_rate_fraction": 0.0}, r"must lie in \(0, 1\], got 0.0"),
    ],
)
def test_variational_settings_refuse(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inference.VariationalSettings(**setting)
