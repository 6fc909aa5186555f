"""What the package uses of TensorFlow Probability is what docs/design.md lists, no more or less."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARY = "tensorflow_probability"


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """The full name of what an expression such as ``tfd.Normal`` is; None for others."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, known)
        return base and f"{base}.{node.attr}"
    return None


def uses(source: str) -> set[str]:
    """Names of the library that a file uses, as longest chains of attributes.

    Whoever names a module anew (``tfd = tfp.distributions``) uses what he takes from it.
    """
    tree = ast.parse(source)
    known: dict[str, str] = {}
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == LIBRARY:
                    known[alias.asname or LIBRARY] = alias.name if alias.asname else LIBRARY
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == LIBRARY:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                imported.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = dotted(node.value, known)
            if name is not None:
                known[node.targets[0].id] = name
    found = {name for node in ast.walk(tree) if (name := dotted(node, known)) is not None}
    found |= imported
    longest = {n for n in found if not any(other.startswith(f"{n}.") for other in found)}
    return {name.replace(LIBRARY, "tfp", 1) for name in longest if name != LIBRARY}


def listed() -> set[str]:
    """In the first column of the table under the heading, ``tfp.room.{One, Other}``."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.split("### What of TFP", 1)[1].split("\n#", 1)[0]
    found = set()
    for line in section.splitlines():
        for room, names in re.findall(r"`(tfp\.\w+)\.\{([^}]*)\}`", line.split(" | ")[0]):
            found |= {f"{room}.{name.strip()}" for name in names.split(",")}
    return found


def test_the_page_lists_what_is_used() -> None:
    used: set[str] = set()
    for path in (ROOT / "gpflow_bae").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if LIBRARY in source:
            used |= uses(source)
    assert len(used) > 10  # or the search would have found nothing
    assert used == listed()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tensorflow_probability as tfp\nx = tfp.math.ive(1)", {"tfp.math.ive"}),
        ("import tensorflow_probability\ntensorflow_probability.math.ive", {"tfp.math.ive"}),
        (
            "import tensorflow_probability as tfp\ntfd = tfp.distributions\n"
            "def f(a: tfd.Normal) -> tfd.Gamma:\n    own = tfp.util.Own\n    return own(0, 1).b",
            {"tfp.distributions.Normal", "tfp.distributions.Gamma", "tfp.util.Own"},
        ),
        (
            "from tensorflow_probability import bijectors as tfb\nclass A(tfb.Bijector): pass",
            {"tfp.bijectors.Bijector"},
        ),
        (
            "from tensorflow_probability.python.internal import samplers\nsamplers.split_seed(1)",
            {"tfp.python.internal.samplers.split_seed"},
        ),
        ("from tensorflow_probability.distributions import Normal", {"tfp.distributions.Normal"}),
        ("import tensorflow as tf\ntf.math.ive", set()),
    ],
)
def test_uses_are_found(source: str, expected: set[str]) -> None:
    assert uses(source) == expected
