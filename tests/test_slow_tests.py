"""The list of slow tests names tests that there are."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.conftest import SLOW_TESTS, slow_tests

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_every_name_is_of_a_test_in_its_file() -> None:
    """By the name of the function; of which parameters there are only pytest knows."""
    if not (ROOT / "tests" / "models").exists():
        pytest.skip("Bazel gives a test the files of its own package alone.")
    names = slow_tests()
    assert len(names) > 100
    for name in names:
        path, function = name.split("::", 1)
        source = (ROOT / path).read_text(encoding="utf-8")
        function = function.split("[")[0]
        assert re.search(rf"^def {re.escape(function)}\(", source, re.M), name


def test_the_list_is_sorted() -> None:
    lines = SLOW_TESTS.read_text(encoding="utf-8").splitlines()
    names = [line for line in lines if not line.startswith("#")]
    assert names == sorted(set(names))
