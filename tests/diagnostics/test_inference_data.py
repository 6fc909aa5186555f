"""Chains and their statistics as ArviZ takes them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpflow_bae import diagnostics
from tests.diagnostics.chains import C, S, independent

arviz = pytest.importorskip("arviz")


def groups(idata: Any) -> list[str]:
    """Names of the groups; ArviZ 1 has trees."""
    return list(idata.children) if hasattr(idata, "children") else idata.groups()


def test_samples_have_their_chains_and_draws() -> None:
    samples = {".kernel.variance": independent(), ".Z": independent(3, 2)}
    idata = diagnostics.to_inference_data(samples, temperature=0.5)
    assert idata.attrs["temperature"] == 0.5
    assert set(idata.posterior.data_vars) == {"kernel.variance", "Z"}
    assert idata.posterior["Z"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(idata.posterior["chain"], np.arange(C))
    np.testing.assert_array_equal(idata.posterior["draw"], np.arange(S))
    for name, values in samples.items():
        np.testing.assert_array_equal(idata.posterior[name.lstrip(".")], values)
    np.testing.assert_array_equal(
        arviz.rhat(idata)["Z"], diagnostics.rank_normalised_rhat(samples[".Z"])
    )


def test_statistics_have_groups_of_their_own() -> None:
    history = np.arange(12.0).reshape(1, 4, 3)
    samples = {".a": independent(2)[:1]}
    steps = {"accepted": independent(seed=3)[:1] < 0.5}
    idata = diagnostics.to_inference_data(samples, history, step_stats=steps)
    assert groups(idata) == ["posterior", "step_stats", "round_stats"]
    np.testing.assert_array_equal(idata.posterior["a"], samples[".a"])
    np.testing.assert_array_equal(idata.round_stats["log_likelihood"], history[..., 1])
    np.testing.assert_array_equal(idata.step_stats["accepted"], steps["accepted"])
    without = diagnostics.to_inference_data(samples, np.empty((1, 0, 3)))
    assert groups(without) == ["posterior"]
    assert groups(diagnostics.to_inference_data({})) == []  # a model with nothing but a decoder


def test_bad_samples_and_statistics_are_refused() -> None:
    a = independent(2)
    with pytest.raises(ValueError, match=r"'a' has \[C, S\] = \[4, 500\], 'b' has \[4, 499\]"):
        diagnostics.to_inference_data({"a": a, "b": a[:, 1:]})
    with pytest.raises(ValueError, match=r"samples\['a'\] needs the axes .* got shape \(500,\)"):
        diagnostics.to_inference_data({"a": a[0, :, 0]})
    for history in (np.zeros((4, 6, 2)), np.zeros(3), np.zeros((6, 3))):
        with pytest.raises(ValueError, match=r"history must have shape \[4, rounds, 3\], got"):
            diagnostics.to_inference_data({"a": a}, history)
    with pytest.raises(ValueError, match="step_stats are of 3 chains, the samples of 4"):
        diagnostics.to_inference_data({"a": a}, step_stats={"lp": independent()[1:]})


@pytest.mark.parametrize(
    "call",
    [
        lambda: diagnostics.to_inference_data({"a": np.zeros(5)}),
        lambda: diagnostics.rank_normalised_rhat(np.zeros((2, 5))),
        lambda: diagnostics.effective_sample_size(np.zeros((2, 5))),
    ],
)
def test_without_arviz_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)  # import arviz raises ImportError
    with pytest.raises(ImportError, match=r"needs ArviZ: pip install 'gpflow-bae\[diagnostics\]'"):
        call()
