"""Chains and their statistics as ArviZ takes them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest

from gpflow_bae import diagnostics
from tests.diagnostics.chains import C, S, independent

arviz = pytest.importorskip("arviz")


def test_the_same_chains_in_every_form() -> None:
    """One mapping to [C, S, ...], or a list of mappings to [S, ...], one for each chain."""
    samples = {".kernel.variance": independent(), ".Z": independent(3, 2)}
    together = diagnostics.to_inference_data(samples, chains=True, temperature=0.5)
    listed = diagnostics.to_inference_data(
        [{name: values[c] for name, values in samples.items()} for c in range(C)]
    )
    assert together.attrs["temperature"] == 0.5
    for idata in (together, listed):
        assert set(idata.posterior.data_vars) == {"kernel.variance", "Z"}
        assert idata.posterior["Z"].dims[:2] == ("chain", "draw")
        np.testing.assert_array_equal(idata.posterior["chain"], np.arange(C))
        np.testing.assert_array_equal(idata.posterior["draw"], np.arange(S))
        for name, values in samples.items():
            np.testing.assert_array_equal(idata.posterior[name.lstrip(".")], values)
    np.testing.assert_array_equal(
        arviz.rhat(together)["Z"], diagnostics.rank_normalised_rhat(samples[".Z"])
    )


def test_one_chain_as_before() -> None:
    """[S, ...] is chain 0, and [rounds, 3] its history."""
    history = np.arange(12.0).reshape(4, 3)
    samples = {".a": independent(2)[0]}
    idata = diagnostics.to_inference_data(samples, history)
    assert idata.groups() == ["posterior", "round_stats"]
    np.testing.assert_array_equal(idata.posterior["a"], samples[".a"][None])
    np.testing.assert_array_equal(idata.round_stats["log_likelihood"], history[None, :, 1])
    without = diagnostics.to_inference_data(samples, np.empty((0, 3)))
    assert without.groups() == ["posterior"]
    assert diagnostics.to_inference_data({}).groups() == []  # a model with nothing but a decoder


def test_sample_stats_under_the_names_of_arviz() -> None:
    """ArviZ finds the energy: of independent draws its BFMI, E (e' - e)^2 / Var e, is 2.

    It is 2 (1 - r) with r the correlation of neighbours, whose standard deviation is 1 / sqrt(S):
    five of these.
    """
    rng = np.random.default_rng(2)
    history = rng.standard_normal((C, 6, 3))
    given = {
        "energy": independent(seed=3),
        "log_prob": independent(seed=4),
        "acceptance_probability": rng.uniform(size=(C, S)),
        "accepted": rng.uniform(size=(C, S)) < 0.5,
        "diverged": np.zeros((C, S), bool),
        "swap_rate": rng.uniform(size=(C, S, 3)),
        "temperature": np.ones((C, S)),
    }
    steps = {name: np.repeat(values, 3, axis=1) for name, values in given.items()}  # thinned by 3
    idata = diagnostics.to_inference_data(
        {"a": independent()}, history, chains=True, sample_stats=given, step_stats=steps
    )
    found = idata.sample_stats
    renamed = {"log_prob": "lp", "acceptance_probability": "acceptance_rate"}
    renamed["diverged"] = "diverging"
    assert set(found.data_vars) == {renamed.get(name, name) for name in given}
    for name, values in given.items():
        name = renamed.get(name, name)
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        np.testing.assert_array_equal(idata.step_stats[name][:, ::3], values, err_msg=name)
    np.testing.assert_allclose(arviz.bfmi(idata), 2.0, atol=10 / math.sqrt(S))
    np.testing.assert_array_equal(idata.round_stats["encoder_loss"], history[..., 2])


def test_bad_samples_are_refused() -> None:
    a = independent(2)
    with pytest.raises(ValueError, match=r"'a' has \[C, S\] = \[1, 500\], 'b' has \[1, 499\]"):
        diagnostics.to_inference_data({"a": a[0], "b": a[0, 1:]})
    with pytest.raises(ValueError, match=r"samples\['a'\] needs the axes .* got shape \(500,\)"):
        diagnostics.to_inference_data({"a": a[0, :, 0]}, chains=True)
    with pytest.raises(ValueError, match="list with a mapping for each chain"):
        diagnostics.to_inference_data([{"a": a}], chains=True)
    with pytest.raises(ValueError, match="empty list"):
        diagnostics.to_inference_data([])
    with pytest.raises(ValueError, match=r"Chains 0 and 1 hold different parameters: \['b'\]"):
        diagnostics.to_inference_data([{"a": a[0]}, {"a": a[1], "b": a[1]}])
    with pytest.raises(ValueError, match=r"\(500, 2\) in chain 0 and \(499, 2\) in chain 1"):
        diagnostics.to_inference_data([{"a": a[0]}, {"a": a[1, 1:]}])
    for history in (np.zeros((6, 2)), np.zeros(3)):
        with pytest.raises(ValueError, match=r"history must have shape \[rounds, 3\], got"):
            diagnostics.to_inference_data({"a": a[0]}, history)
    with pytest.raises(ValueError, match=r"shape \[4, rounds, 3\], got \(6, 3\)"):
        diagnostics.to_inference_data({"a": a}, np.zeros((6, 3)), chains=True)


@pytest.mark.parametrize(
    "sample_stats, message",
    [
        ({"lp": independent()[:, 1:]}, r"\[C, S\] = \[4, 499\], the samples \[4, 500\]"),
        ({"lp": independent()[0]}, r"sample_stats\['lp'\] needs the axes of chains and draws"),
        ({"lp": independent(), "log_prob": independent()}, "'lp' twice"),
        ({"log_likelihood": independent()}, "takes for that of every single observation"),
        ({"lp": independent(), "energy": independent()[1:]}, "sample_stats differ"),
    ],
)
def test_bad_sample_stats_are_refused(sample_stats: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnostics.to_inference_data({"a": independent(2)}, chains=True, sample_stats=sample_stats)


def test_step_stats_of_other_chains_are_refused() -> None:
    with pytest.raises(ValueError, match="step_stats are of 3 chains, the samples of 4"):
        diagnostics.to_inference_data(
            {"a": independent(2)}, chains=True, step_stats={"lp": independent()[1:]}
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda: diagnostics.to_inference_data({"a": np.zeros(5)}),
        lambda: diagnostics.rank_normalised_rhat(np.zeros((2, 5))),
        lambda: diagnostics.effective_sample_size(np.zeros((2, 5))),
        lambda: diagnostics.trace_plot({"a": np.zeros((2, 5))}),
        lambda: diagnostics.rank_plot({"a": np.zeros((2, 5))}),
    ],
)
def test_without_arviz_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)  # import arviz raises ImportError
    with pytest.raises(ImportError, match=r"needs ArviZ: pip install 'gpflow-bae\[diagnostics\]'"):
        call()
