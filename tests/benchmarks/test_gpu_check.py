"""The comparison of rounds on a GPU with the CPU's, on the CPU."""

from __future__ import annotations

import numpy as np

from benchmarks import gpu_check
from benchmarks.common import cases


def test_the_difference_is_relative_to_the_largest_number_of_an_array() -> None:
    """0.5 of 10 is 0.05, and 0.1 of 1 is 0.1; a NaN on one side is infinitely far away."""
    expected = {"a": np.array([10.0, 1.0]), "b": np.array([1.0]), "empty": np.zeros([0])}
    found = {"a": np.array([10.0, 1.5]), "b": np.array([0.9]), "empty": np.zeros([0])}
    np.testing.assert_allclose(gpu_check.difference(found, expected), 0.1, rtol=1e-12)
    assert gpu_check.difference(expected, expected) == 0.0
    assert gpu_check.difference(found | {"b": np.array([np.nan])}, expected) == np.inf


def test_a_compiled_round_has_the_numbers_of_one_that_is_not() -> None:
    rows = gpu_check.compare(cases.certificate_parts(), ["/CPU:0"], steps=3, repeats=1)
    assert [(row["device"], row["jit_compile"]) for row in rows] == [
        ("/CPU:0", False),
        ("/CPU:0", True),
    ]
    assert rows[0]["largest_difference"] == 0.0 and all(row["agrees"] for row in rows)
    assert all(row["step_ms"] > 0 for row in rows)
