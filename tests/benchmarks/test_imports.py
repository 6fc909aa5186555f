"""What commands import when they run, inside of functions, is there."""

from __future__ import annotations

import ast
import importlib
import pathlib

import pytest

OURS = ("benchmarks", "experiments", "gpflow_bae")
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["benchmarks", "experiments"])
def test_imported_names_exist(folder: str) -> None:
    if not (ROOT / "tests" / "models").exists():
        pytest.skip("Bazel gives a test the files of its own package alone.")
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert len(paths) > 10
    missing = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            if node.module.split(".")[0] not in OURS:
                continue
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                if hasattr(module, name):
                    continue
                try:
                    importlib.import_module(f"{node.module}.{name}")
                except ModuleNotFoundError:
                    missing.append(f"{path.relative_to(ROOT)}: {node.module}.{name}")
    assert not missing
