"""``python -m experiments.impute`` is the command of the package."""

from __future__ import annotations

import runpy
import sys

import pytest

from gpflow_bae.impute import command


def test_the_module_starts_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before, started = set(command.FLAGS), []
    monkeypatch.setattr(command.app, "run", started.append)
    monkeypatch.setattr(sys, "argv", ["impute"])
    try:
        runpy.run_module("experiments.impute", run_name="__main__")
        assert started == [command.main]
        assert {"input", "out", "outputs", "posterior"} <= set(command.FLAGS) - before
    finally:
        for name in set(command.FLAGS) - before:
            delattr(command.FLAGS, name)
