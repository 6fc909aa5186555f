"""Chains that stay in different modes of a missing input are named."""

from __future__ import annotations

import types
import warnings
from typing import Any

import numpy as np
import pytest

from gpflow_bae.inference.checks.input_check import split_rhat, warn_of_inputs
from gpflow_bae.inputs import MissingInputs

TURN = 2.0 * np.pi


def posterior(values: np.ndarray, **options: Any) -> Any:
    """What is looked at: the samples [C, S, 3] of three missing entries of column 1."""
    X = np.random.default_rng(0).standard_normal((9, 2))
    X[[1, 4, 7], 1] = np.nan
    inputs = MissingInputs(X, **options)
    sampled = types.SimpleNamespace(parameters=[inputs.tables[0].values])
    bank = types.SimpleNamespace(parameters={".inputs": values[..., None]})
    return types.SimpleNamespace(
        model=types.SimpleNamespace(inputs=inputs, sampled=sampled), bank=bank
    )


def test_r_hat_is_that_of_half_chains() -> None:
    """Of two chains at m and -m with unit variance, in four halves: B / W is 4 m^2 / 3."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((2, 4000, 1)) + np.array([3.0, -3.0])[:, None, None]
    np.testing.assert_allclose(split_rhat(values), np.sqrt(1.0 + 4.0 * 9.0 / 3.0), rtol=0.03)
    assert (split_rhat(np.ones((2, 40, 3))) <= 1.0).all()


def test_chains_that_mix_are_not_warned_of() -> None:
    """Three thousand times three entries, in chains of the least length; angles are modulo 2 pi."""
    rng = np.random.default_rng(2)
    assert split_rhat(rng.standard_normal((1, 40, 9000))).max() < 1.5
    around = rng.standard_normal((2, 60, 3)) * 0.1
    turned = around + TURN * rng.integers(-1, 2, (2, 1, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_inputs(posterior(around))
        warn_of_inputs(posterior(turned, periods={1: TURN}))
        warn_of_inputs(posterior(around[:, :30] + np.array([5.0, -5.0])[:, None, None]))  # few
        warn_of_inputs(types.SimpleNamespace(model=types.SimpleNamespace(inputs=None)))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("chains", [1, 2])
def test_chains_that_stay_in_a_mode_are_named(chains: int, circular: bool) -> None:
    """Two chains, or the halves of one, in opposite modes of the last entry."""
    values = 0.1 * np.random.default_rng(3).standard_normal((chains, 60, 3))
    values.reshape(-1, 3)[chains * 30 :, 2] += np.pi
    options = {"periods": {1: TURN}} if circular else {}
    with pytest.warns(UserWarning, match=r"disagree about 1 missing input.*: 1 of column 1 .R-hat"):
        warn_of_inputs(posterior(values, **options))
