"""Every command that the project's pages name is there, with its flags."""

from __future__ import annotations

import json
import pathlib
import re
import shlex

import pytest

import experiments
from experiments.imputation.tables import TABLES
from tests.experiments.commands import parsed, study

FOLDER = pathlib.Path(experiments.__file__).parent
ROOT = FOLDER.parent
FOLDERS = ("docs", "docs/guides", "docs/results", "docs/results/runs")
PAGES = ("README.md", "Makefile", *(f"{folder}/*.md" for folder in FOLDERS))
#: Every command there is; of those that are no study, the flags that the pages name.
STUDIES = set(TABLES) | {
    path.parent.name if path.stem == "__main__" else path.stem
    for path in FOLDER.rglob("*.py")
    if "driver.start(STUDY)" in path.read_text(encoding="utf-8")
}
OTHERS = {
    "export": {"run_dir", "out"},
    "impute": {"input", "time", "inputs", "outputs", "task", "out"},
    "report": {"collect", "experiment"},
    "rotated_mnist_bias": {"data_dir", "epochs"},
    "rotated_mnist_figures": {"runs", "out_dir"},
    "imputation.benchmark_figures": {"results_dir"},
}


def named() -> list[list[str]]:
    """Commands of the pages and of the collected runs: the module's name and its arguments."""
    lines = {
        line
        for pattern in PAGES
        for path in ROOT.glob(pattern)
        for line in re.findall(r"-m (experiments\.[^`\n#|]*)", path.read_text(encoding="utf-8"))
    }
    for path in ROOT.glob("docs/results/*.json"):
        runs = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(runs, list):  # of a study; benchmarks write one record
            lines |= {r["command"].split("-m ")[1] for r in runs if "command" in r}
    commands = []
    for line in sorted(lines):
        words = shlex.split(line.replace("$(DEMO_DIR)", "demo"))
        commands.append([words[0].removeprefix("experiments."), *words[1:]])
    return commands


def test_the_list_is_that_of_the_pages() -> None:
    found = {name for name, *_ in named()}
    assert len(STUDIES) > 14
    assert {"moving_ball", "rotated_mnist_figures", "export", "eeg", "report"} <= found
    assert found <= STUDIES | set(OTHERS)


@pytest.mark.parametrize("name", sorted(STUDIES | set(OTHERS)))
def test_commands_are_modules_that_can_be_run(name: str) -> None:
    path = FOLDER / f"{name.replace('.', '/')}.py"
    path = path if path.exists() else FOLDER / name / "__main__.py"
    assert 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    if name in OTHERS:
        sources = [path, FOLDER / "common" / "flags.py", FOLDER / "common" / "pages.py"]
        if name == "impute":  # the package's own command
            sources = [FOLDER.parent / "gpflow_bae" / "impute" / "command_flags.py"]
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
        for flag in OTHERS[name]:
            assert re.search(rf'DEFINE_\w+\(\s*"{flag}"', text), flag


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_flags_are_understood(name: str) -> None:
    """As the pages and the records of finished runs have them; each gives at least one run."""
    for command, *arguments in named():
        if command == name and "..." not in arguments:
            given = [a for a in arguments if not a.startswith("--out_dir")]
            with parsed(study(name).define_flags, *given, "--out_dir=OUT_DIR") as values:
                assert values.out_dir == "OUT_DIR"
