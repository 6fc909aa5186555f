"""Settings stay small: what belongs together is an object of its own."""

from __future__ import annotations

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "gpflow_bae"
ENDINGS = ("Settings", "Plan", "Spec", "Start", "BlockFit", "Proposal", "Whitening")
MOST_FIELDS = 10


def settings_classes() -> dict[str, int]:
    """Number of fields of each dataclass of the package that is named like settings."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith(ENDINGS):
                if any("dataclass" in ast.unparse(d) for d in node.decorator_list):
                    found[node.name] = sum(isinstance(part, ast.AnnAssign) for part in node.body)
    return found


def test_no_settings_have_more_fields_than_a_reader_holds_in_mind() -> None:
    found = settings_classes()
    known = {"AmortizedSettings", "SpatialPlan", "TemperedSettings", "VariationalSettings"}
    assert known <= set(found)
    assert {name: fields for name, fields in found.items() if fields > MOST_FIELDS} == {}
