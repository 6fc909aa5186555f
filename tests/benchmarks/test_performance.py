"""The tools of ``benchmarks.run``: times in turns, memory, and the page."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from benchmarks.common import machine, report, timing

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_variants_take_turns_and_the_first_calls_are_not_timed() -> None:
    calls: list[str] = []

    def own() -> timing.Seconds:
        calls.append("own")
        return timing.Seconds(2.0)

    seconds = timing.interleaved({"a": lambda: calls.append("a"), "own": own}, 3)
    assert calls == ["a", "own"] * 4
    np.testing.assert_array_equal(seconds["own"], [2.0, 2.0, 2.0])
    assert seconds["a"].shape == (3,) and np.all(seconds["a"] < 1.0)


def test_ratios_are_of_single_turns() -> None:
    """A machine that slows down by a factor of ten changes no ratio."""
    drift = np.array([1.0, 10.0, 3.0])
    found = timing.ratio(2.0 * drift, drift)
    assert found == {"median": 2.0, "lower_quartile": 2.0, "upper_quartile": 2.0}


def test_exponents_are_those_of_powers() -> None:
    sizes = np.array([10.0, 100.0, 1000.0])
    assert timing.exponent(sizes, 3.0 * sizes**1.5) == pytest.approx(1.5)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_working_memory_is_that_of_the_call() -> None:
    """64 MB of ones, which are given back; a few MB are NumPy's."""
    found = machine.in_child(lambda: machine.working_memory(lambda: np.ones(8 * 10**6).sum()))
    assert 60.0 < found < 80.0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        machine.in_child(lambda: float("no such thing"))


def test_the_page_has_all_suites(tmp_path: pathlib.Path) -> None:
    about = {"command": "c", "processor": "p", "threads": 1, "seconds": 3, "git_commit": "abcdefgh"}
    about |= {"versions": {"tensorflow": "2"}}
    ratio = {"median": 1.5, "lower_quartile": 1.25, "upper_quartile": 2.0}
    bounds = {"products": {"ms": 4.0, "fraction_of_step": ratio}}
    row = {"model": "ball", "sampler_step_ms": 5.0, "working_memory_mb": 7.0, "bounds": bounds}
    kinds = ("gflops_float32", "gflops_bfloat16", "gflops_float64", "million_normals_per_second")
    limits = dict.fromkeys((*kinds, "gigabytes_per_second"), 1.0)
    gpu_row = {"model": "ball", "precision": "float32", "step_ms": ratio}
    gpu_row |= {"largest_difference": 2e-5, "tolerance": 1e-3}
    records = [
        {"suite": "step", "limits": limits, "rows": [row], "left_out": []},
        {
            "suite": "scaling",
            "rows": [{"varied": "points", "size": n, "ms": 2.0} for n in (10, 1000)],
            "exponents": {"points": 0.0},
            "working_memory_mb": {"1000": 1.25},
        },
        {
            "suite": "chains",
            "operations_at_a_time": 8,
            "rows": [
                {
                    "model": "EEG",
                    "chains": 2,
                    "step_ms": 3.0,
                    "over_one_chain": ratio,
                    "ess_per_second": 11.0,
                }
            ],
        },
        {
            "suite": "serving",
            "milliseconds": {"encode": 1.0},
            "milliseconds_fastest_tenth": {"encode": 0.5},
        },
        {
            "suite": "peers",
            "rows": [{"work": "ball", "code": "other 1", "step_ms": 9.0, "over_ours": ratio}],
            "left_out": [],
        },
        {"suite": "start", "rows": [{"imported": "x", "seconds": 3.0, "ratio": ratio}]},
        {
            "suite": "xla",
            "rows": [
                {
                    "model": "ball",
                    "over_graph": ratio,
                    **{f"{how}_step_ms": 4.0 for how in ("graph", "xla")},
                    **{f"{how}_first_round_s": 8.0 for how in ("graph", "xla")},
                }
            ],
        },
        {
            "suite": "gpu",
            "rows": [gpu_row],
            "peers": [{"model": "ball", "code": "torch 2", "step_ms": ratio}],
            "versions": {"jax": "1"},
        },
    ]
    for record in reversed(records):
        path = tmp_path / f"performance_{record['suite']}.json"
        path.write_text(json.dumps(about | record))
    report.write_page(tmp_path / "page.md", tmp_path)
    front = (tmp_path / "page.md").read_text()
    assert front.startswith("# Performance\n") and "(page_tables.md)" in front
    page = (tmp_path / "page_tables.md").read_text()
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## Steps", "## Growth", "## Several chains"] + [
        "## Exported models",
        "## Other libraries",
        "## Imports",
        "## Compiled by XLA, on a CPU",
        "## Through JAX, for GPUs",
    ]
    assert "| ball | 5 |  | 7 | products | 4 | 1.5 (1.25 to 2) |" in page
    assert "| ball | float32 | 1.5 (1.25 to 2) | 2e-05 | 0.001 |" in page
    assert "p, 1 threads, JAX 1, 3 s" in page and "p, 1 threads, TensorFlow 2, 3 s" in page
    assert "| ball | 4 | 4 | 1.5 (1.25 to 2) | 8 | 8 |" in page
    assert "| ball | torch 2 | 1.5 (1.25 to 2) |" in page
    assert "| points | 10: 2, 1,000: 2 | 0.00 |" in page
    assert "by the number of points: 1,000: 1.2." in page


def test_pages_of_the_project_are_what_the_command_writes(tmp_path: pathlib.Path) -> None:
    report.write_page(tmp_path / "performance.md", ROOT / "docs" / "results")
    for name in ("performance.md", "performance_tables.md"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()
