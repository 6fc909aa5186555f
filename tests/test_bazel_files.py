"""The BUILD files declare what the Python files import, so that `make bazel` finds every module."""

import ast
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
OURS = ("benchmarks", "experiments", "gpflow_bae", "tests")

pytestmark = pytest.mark.skipif(
    not (ROOT / "gpflow_bae" / "BUILD").exists(), reason="Bazel shows tests no BUILD files"
)


def read_build(folder: pathlib.Path) -> dict[str, tuple[set[pathlib.Path], list[str]]]:
    """Python files and dependencies of each label that a BUILD file declares."""
    package = f"//{folder.relative_to(ROOT).as_posix()}".replace("//.", "//")
    found: dict[str, tuple[set[pathlib.Path], list[str]]] = {}

    def glob(patterns: list[str], exclude: tuple[str, ...] = ()) -> list[str]:
        chosen = {path for pattern in patterns for path in folder.glob(pattern)}
        left_out = {path for pattern in exclude for path in folder.glob(pattern)}
        return [str(path.relative_to(folder)) for path in chosen - left_out]

    def py_library(name: str, srcs: Any = (), deps: Any = (), **_: Any) -> None:
        labels = [package + label if label.startswith(":") else label for label in deps]
        found[f"{package}:{name}"] = ({folder / source for source in srcs}, labels)

    def pytest_tests(deps: list[str], **_: Any) -> None:
        py_library("all tests", glob(["*.py"]), ["//tests:conftest", *deps])

    def nothing(*_: Any, **__: Any) -> None:
        return None

    names = {"glob": glob, "py_library": py_library, "pytest_tests": pytest_tests}
    for name in ("exports_files", "filegroup", "load", "package", "test_suite"):
        names[name] = nothing
    exec((folder / "BUILD").read_text(), names)
    return found


def declared() -> dict[str, tuple[set[pathlib.Path], list[str]]]:
    """Every label of the project."""
    targets: dict[str, tuple[set[pathlib.Path], list[str]]] = {}
    for name in OURS:
        for build in (ROOT / name).rglob("BUILD"):
            targets |= read_build(build.parent)
    return targets


def visible(label: str, targets: dict[str, tuple[set[pathlib.Path], list[str]]]) -> set:
    """Python files of a label and of all that it depends on."""
    waiting, seen, files = [label], set(), set()
    while waiting:
        name = waiting.pop()
        name = name if ":" in name else f"{name}:{name.rsplit('/', 1)[-1]}"
        if name not in seen and name in targets:  # documentation has labels without Python
            seen.add(name)
            files |= targets[name][0]
            waiting += targets[name][1]
    return files


def imported(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The project's files that a file imports; of the package's own files, those on loading it.

    A room of the package may import one above it inside a function, when a user calls that.
    """
    folder = path.relative_to(ROOT).parts[:-1]
    tree = ast.parse(path.read_text())
    for node in tree.body if folder[0] == "gpflow_bae" else ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            base = (*above, *(node.module or "").split(".")) if node.module else above
            # A name is a module, or something in the module that it is imported from.
            modules = [(*base, alias.name) for alias in node.names]
        else:
            continue
        for module in modules:
            if module[0] in OURS:
                yield from file_of(module) or file_of(module[:-1])


def file_of(module: tuple[str, ...]) -> list[pathlib.Path]:
    """The file of a module or package, if there is one."""
    path = ROOT.joinpath(*module)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return [candidate for candidate in candidates if candidate.exists()][:1]


def test_labels_depend_on_what_their_files_import() -> None:
    targets = declared()
    missing = []
    for label, (sources, _) in targets.items():
        files = visible(label, targets)
        for source in sources:
            for needed in imported(source):
                # A package's __init__.py is Bazel's to make, where another file of it is there.
                package = needed.name == "__init__.py"
                alternatives = set(needed.parent.glob("*.py")) if package else {needed}
                if not files & alternatives:
                    names = (source.relative_to(ROOT), needed.relative_to(ROOT))
                    missing.append(f"{label}: {names[0]} imports {names[1]}")
    assert not missing, "\n".join(sorted(missing))


def test_every_file_has_a_label() -> None:
    known = {source for sources, _ in declared().values() for source in sources}
    files = {path for name in OURS for path in (ROOT / name).rglob("*.py")}
    without = {str(path.relative_to(ROOT)) for path in files - known}
    assert without <= {"tests/run_pytest.py"}, without
