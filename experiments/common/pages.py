"""Commands that draw the figures of a results page, from finished or collected runs."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from absl import flags

from experiments.common import results, terminal

FLAGS = flags.FLAGS
DPI = 110


def draw_runs(experiment: str, draw: Callable[[list[dict]], dict[str, Any]]) -> None:
    """Run a command with --runs and --out_dir that draws figures of the runs below a folder.

    :param draw: maps the results of :func:`load_runs` to figures, by names without the
        experiment's.
    """
    flags.DEFINE_string("runs", None, "Folder below which finished runs lie.", required=True)
    flags.DEFINE_string("out_dir", "docs/results/figures", "Where the PNG files go.")
    terminal.run(
        lambda argv: _save(
            pathlib.Path(FLAGS.out_dir), experiment, draw(load_runs(FLAGS.runs, experiment))
        )
    )


def draw_collected(
    experiment: str,
    draw: Callable[[list[dict]], dict[str, Any]],
    then: Callable[[list[dict]], None] | None = None,
) -> None:
    """Run a command with --results_dir that draws figures of the collected runs of a page.

    :param then: called with the runs after the figures are written.
    """
    flags.DEFINE_string("results_dir", "docs/results", "Folder of the collected runs.")

    def main(argv: list[str]) -> None:
        folder = pathlib.Path(FLAGS.results_dir)
        runs = results.read_collected(folder / f"{experiment}.json")
        _save(folder / "figures", experiment, draw(runs))
        if then is not None:
            then(runs)

    terminal.run(main)


def _save(folder: pathlib.Path, experiment: str, figures: dict[str, Any]) -> None:
    from experiments.common.images import save_png

    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = folder / f"{experiment}_{name}.png"
        # Thousands of dots do not compress, and need no higher resolution.
        save_png(figure, path, 70 if name.startswith("codes") else DPI)
        print(path)


def load_runs(folder: str | pathlib.Path, experiment: str) -> list[dict]:
    """Return results with ``arrays``, in the order of their paths, without validation runs."""
    import numpy as np

    runs = []
    for path in sorted(pathlib.Path(folder).rglob(results.RESULTS)):
        result = json.loads(path.read_text())
        if result["experiment"] != experiment or "validation" in result.get("variant", ""):
            continue
        with np.load(path.with_name("arrays.npz")) as arrays:
            runs.append(result | {"arrays": dict(arrays)})
    return runs
