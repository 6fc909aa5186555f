"""Every code block of the guides runs, and every example in a docstring gives what it says."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import pathlib
import re
import warnings
from typing import Any

import numpy as np
import pytest

from gpflow_bae import inference

ROOT = pathlib.Path(__file__).parents[1]
SHORTENED = ["guides/impute.md", "serving.md"]  # which assert nothing
GUIDES = [
    "get_started.md",
    "inference.md",
    "guides/impute.md",
    "guides/gpflow.md",
    "guides/minibatches.md",
    "guides/unknown_inputs.md",
    "guides/spatial.md",
    "guides/streams.md",
    "guides/several_machines.md",
    "guides/saving.md",
    "guides/choose.md",
    "guides/troubleshooting.md",
]
SCIKIT_LEARN = "guides/scikit_learn.md"
WITH_EXAMPLES = [
    path.relative_to(ROOT)
    for folder in ("gpflow_bae", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def python_blocks(name: str) -> list[str]:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    return blocks


def run_blocks(name: str, names: dict[str, Any], folder: pathlib.Path) -> None:
    """All blocks of a page as one program, with loops cut down where a page asserts nothing."""
    source = "\n".join(python_blocks(name))
    if name in SHORTENED:
        source = re.sub(r"num_steps=\d+", "num_steps=50", source)
        source = re.sub(r"burnin=\d+, num_samples=\d+", "burnin=50, num_samples=2", source)
    file = folder / name.replace("/", "_").replace(".md", ".py")
    file.write_text(source, encoding="utf-8")  # TensorFlow reads the source of a user's kernel
    exec(compile(source, str(file), "exec"), names)


@pytest.mark.parametrize("name", GUIDES)
def test_the_blocks_of_a_guide_run_from_top_to_bottom(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the first of them leaves a posterior, which the page on serving exports."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".* of cells hold next to nothing")
        run_blocks(name, names, tmp_path)
    if name == "get_started.md":
        names["images"] = np.zeros((3, 6), np.float32)
        run_blocks("serving.md", names, tmp_path)
        assert names["answer"]["mean"].shape == (3, 2)


def test_the_table_of_settings_has_the_fields_and_their_defaults() -> None:
    text = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    rows = text.split("| setting | default |")[1].split("\n\n")[0].splitlines()[2:]
    stated = dict(re.findall(r"`([^`]+)`", " | ".join(row.split(" | ")[:2]))[:2] for row in rows)
    settings = inference.AmortizedSettings()
    defaults = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    encoder = defaults.pop("encoder")
    for field in dataclasses.fields(encoder):
        defaults[f"encoder.{field.name}"] = getattr(encoder, field.name)
    assert stated == {name: repr(value) for name, value in defaults.items()}


def test_pages_have_one_command_to_install() -> None:
    """From a clone, as the README; messages name the installed package, in any folder."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "gpflow_bae").rglob("*.py"),
    ]
    others = re.compile(r"`pip install '?gpflow-bae")
    found = [p for p in pages if others.search(p.read_text(encoding="utf-8"))]
    assert found == []


def test_every_page_with_python_blocks_is_tested_or_executed() -> None:
    """A new guide must not go untested: tutorials are executed when the pages are built."""
    pages = {
        str(path.relative_to(ROOT / "docs"))
        for path in (ROOT / "docs").rglob("*.md")
        if "```python\n" in path.read_text(encoding="utf-8") and "_build" not in path.parts
    }
    assert pages <= {*GUIDES, "serving.md", SCIKIT_LEARN}, pages


def test_every_room_and_every_data_set_is_on_a_page_of_the_reference() -> None:
    """A room is a folder or a file of the package; ``core`` shows three of its modules only."""
    package = ROOT / "gpflow_bae"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    rooms |= {path.stem for path in package.glob("*.py")}
    sets = {f"datasets.{path.stem}" for path in (package / "datasets").glob("*.py")}
    expected = (rooms | sets) - {"__init__", "core", "versions", "datasets"}
    expected -= {"datasets.__init__", "datasets.files"}
    pages = [p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "api").glob("*.md")]
    shown = re.findall(r"^\.\. automodule:: gpflow_bae\.(\S+)$", "\n".join(pages), flags=re.M)
    assert expected <= set(shown), expected - set(shown)
    assert len(shown) == len(set(shown))


def check_what_the_guide_for_scikit_learn_says(names: dict[str, Any]) -> None:
    error, reference = (names["standardised_error"](names[k]) for k in ("pipeline", "components"))
    assert reference == pytest.approx(0.46, abs=0.005)
    assert error < 0.65 * reference  # 0.26: seeds are fixed, rounding is not
    assert 0.86 < names["coverage"] < 0.94
    assert list(names["codes"].columns) == ["temperedautoencoder0", "temperedautoencoder1"]


@pytest.mark.slow
def test_the_guide_for_scikit_learn() -> None:
    """Its search with two folds of two sizes, one after the other and without the last fit.

    tests/test_estimators.py has one in two processes.
    """
    names: dict[str, Any] = {"__name__": "guide"}
    shorter = {"cv=3": "cv=2", "[1, 2, 3]": "[1, 2]", "n_jobs=2": "refit=False"}
    for block in python_blocks(SCIKIT_LEARN):
        for old, new in shorter.items():
            block = block.replace(old, new)
        exec(compile(block, SCIKIT_LEARN, "exec"), names)
    check_what_the_guide_for_scikit_learn_says(names)
    assert names["own"][-1].encoder(8, 2).output_shape == (None, 2)
    assert names["search"].best_params_ == {"temperedautoencoder__latent_dim": 2}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "tutorials").glob("*.md")), ids=str)
def test_tutorials_are_notebooks(path: pathlib.Path) -> None:
    """Jupytext turns each into a valid notebook with the code that the page shows.

    Their code runs when the documentation is built, which checks the executed notebooks too.
    """
    if path.stem == "index":
        return
    jupytext = pytest.importorskip("jupytext")
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.read(path)
    pytest.importorskip("nbformat").validate(notebook)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert len(cells) == text.count("```{code-cell} python\n")
    for cell in cells:
        compile(cell.source, str(path), "exec")
    assert sum("gallery" in cell.metadata.get("tags", []) for cell in cells) == 1
    assert f"<{path.stem}.ipynb>" in text  # offered for download


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_examples_in_docstrings(path: pathlib.Path) -> None:
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    outcome = doctest.testmod(module)
    assert outcome.attempted and not outcome.failed
