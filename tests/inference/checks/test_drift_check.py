"""Chains that are still on their way are told from those that fluctuate."""

from __future__ import annotations

import types
import warnings
from typing import Any

import numpy as np
import pytest

from gpflow_bae.inference.checks.drift_check import drift_of, warn_of_drift


def autoregressive(correlation: float, number: int, count: int) -> np.ndarray:
    """Stationary series [count, number] of variance 1."""
    noise = np.random.default_rng(0).normal(size=(number, count))
    found = [noise[0]]
    for shock in noise[1:]:
        found.append(correlation * found[-1] + np.sqrt(1.0 - correlation**2) * shock)
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("correlation", "number"), [(0.0, 24), (0.3, 24), (0.5, 40), (0.8, 120), (0.95, 600)]
)
def test_alarms_without_drift_are_rare(correlation: float, number: int) -> None:
    """Less than one in a hundred, of series from ten autocorrelation times on."""
    assert number * (1.0 - correlation) / (1.0 + correlation) > 10.0
    alarms = [drift_of(v).is_sure for v in autoregressive(correlation, number, 2000)]
    assert np.mean(alarms) < 0.01


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("number", [40, 120])
def test_a_series_on_its_way_is_seen(number: int, sign: float) -> None:
    """One that goes by ten times its fluctuation, and flattens."""
    way = sign * 10.0 * (1.0 - np.exp(-2.0 * np.arange(number) / number))
    alarms = [drift_of(way + v).is_sure for v in autoregressive(0.3, number, 200)]
    assert np.mean(alarms) > 0.9


def test_the_standard_error_is_that_of_an_autocorrelated_series() -> None:
    """Of the difference of two thirds: sqrt(2 (1 + r) / (1 - r) / (n / 3)) for AR(1)."""
    number, correlation = 3000, 0.8
    found = [drift_of(v).standard_error for v in autoregressive(correlation, number, 100)]
    expected = np.sqrt(2.0 * (1.0 + correlation) / (1.0 - correlation) / (number / 3.0))
    np.testing.assert_allclose(np.mean(found), expected, rtol=0.1)


def with_trace(values: np.ndarray) -> Any:
    """What is looked at of a posterior."""
    return types.SimpleNamespace(bank=types.SimpleNamespace(trace={"log_likelihood": values}))


def test_a_chain_that_still_rises_is_warned_of() -> None:
    """Of the rounds after burn-in, and by how much; of few rounds and trifles nothing is said."""
    noise = autoregressive(0.3, 80, 2)
    way = np.linspace(-174.0, -106.0, 60) + noise[:, :60]
    rising = np.concatenate([np.full((2, 20), -900.0), way], 1)
    with pytest.warns(UserWarning, match=r"still on its way: .* rose from -16\d.* to -11\d"):
        warn_of_drift(with_trace(rising), 20)
    with pytest.warns(UserWarning, match=r"still on its way: .* fell from -11\d.* to -16\d"):
        warn_of_drift(with_trace(rising[:, :19:-1]), 0)
    settled = np.concatenate([rising, noise - 106.0], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_drift(with_trace(settled), 80)
        warn_of_drift(with_trace(rising[:, :40]), 20)  # too few
        warn_of_drift(with_trace(1e-3 * rising), 20)  # a tenth of a nat
