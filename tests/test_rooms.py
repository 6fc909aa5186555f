"""Arrows between rooms point down: imports, those inside functions included, against the page."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gpflow_bae"


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in PACKAGE.rglob("*.py")}


def imported(name: str, path: pathlib.Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names} | {base}
    # The longest prefix that is a module: a name may be one, or something inside of one.
    known = set()
    for target in found:
        while target and target not in MODULES:
            target = target.rpartition(".")[0]
        if target and target != "gpflow_bae":
            known.add(target)
    return known - {name}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


@functools.cache
def arrows() -> set[tuple[str, str]]:
    return {
        (name, target)
        for name, path in MODULES.items()
        for target in imported(name, path)
        if name != "gpflow_bae"
    }


def floors() -> dict[str, int]:
    """Rooms by the number of their line under "Who may know whom" in docs/design.md."""
    page = (ROOT / "docs" / "design.md").read_text()
    listing = page.split("Who may know whom", 1)[1].split("\n\n")[1]
    found = {}
    for line in listing.splitlines():
        number = re.match(r"(\d+)\. ", line)
        assert number, f"not a numbered line of rooms: {line!r}"
        rooms = line.split("(")[0]  # remarks follow in brackets
        found |= {name: int(number[1]) for name in re.findall(r"`(\w+)`", rooms)}
    return found


def test_the_page_names_every_room() -> None:
    rooms = {room(name) for name in MODULES if name != "gpflow_bae"}
    assert rooms - set(floors()) == set()


@pytest.mark.parametrize("name", sorted({room(a) for a in MODULES if a != "gpflow_bae"}))
def test_arrows_point_down(name: str) -> None:
    """A room imports only rooms of lines below its own."""
    floor = floors()
    wrong = {
        f"{a} -> {b}"
        for a, b in arrows()
        if room(a) == name and room(b) != name and floor[room(b)] <= floor[name]
    }
    assert wrong == set()


def test_files_have_no_circle() -> None:
    """Inside of a room too: a folder's files come in an order (its __init__ re-exports them)."""
    waiting = {
        name: {b for a, b in arrows() if a == name and MODULES[b].name != "__init__.py"}
        for name, path in MODULES.items()
        if path.name != "__init__.py"
    }
    while free := {name for name, targets in waiting.items() if not targets & set(waiting)}:
        for name in free:
            del waiting[name]
    assert waiting == {}
