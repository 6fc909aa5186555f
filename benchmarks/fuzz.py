"""Ask every public entry point for what it cannot do, thousands of times: has it an answer?

python -m benchmarks.fuzz --times=10 --seed=1

An answer is a finite result, or an error that this package raises in words (tests/fuzz/answers.py).
Tests of tests/fuzz have so many cases as their ``@cases(...)`` says, and here that many times as
many, drawn from the seed. A case makes one call that is judged, or a few: settings, and what is
done with them. The file is written after each module of tests, and keeps what it has of other
seeds: counts of several commands add up.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import flags

from benchmarks.common import commands

FLAGS = flags.FLAGS

# What runs in the process of the tests: it says how many calls were judged, test by test.
_PROGRAM = """
import json, pathlib, sys
import pytest
status = pytest.main(sys.argv[2:])
from tests.fuzz.answers import COUNTS
pathlib.Path(sys.argv[1]).write_text(json.dumps({"status": int(status), "calls": dict(COUNTS)}))
"""


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_integer("times", 10, "Cases, in those that the tests have by default.", 1)
    flags.DEFINE_integer("seed", 1, "Of the cases; another one adds to what the file has.")
    flags.DEFINE_multi_string("module", [], "Such as test_calls; all if there is none.")
    flags.DEFINE_string("out_file", "docs/results/fuzz.json", "JSON to write.")


def fuzz(module: pathlib.Path, times: int, seed: int) -> dict[str, Any]:
    """The tests of one module, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts.json"
        arguments = [str(module), "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}"]
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(counts), *arguments],
            env={**os.environ, "GPFLOW_BAE_FUZZ": str(times)},
            check=False,
        )
        found = json.loads(counts.read_text())
    calls = {name.rsplit("::", 1)[-1]: count for name, count in found["calls"].items()}
    return {
        "module": module.stem,
        "seed": seed,
        "times": times,
        "seconds": round(time.monotonic() - began),
        "passed": found["status"] == 0,
        "calls": calls,
    }


def main() -> None:
    """Fuzz, module by module, and write."""
    out = pathlib.Path(FLAGS.out_file)
    runs = json.loads(out.read_text())["runs"] if out.exists() else []
    modules = sorted(pathlib.Path("tests/fuzz").glob("test_*.py"))
    for module in [m for m in modules if not FLAGS.module or m.stem in FLAGS.module]:
        found = fuzz(module, FLAGS.times, FLAGS.seed)
        found |= commands.made_with()
        runs = [r for r in runs if (r["module"], r["seed"]) != (module.stem, FLAGS.seed)]
        runs = [*runs, found]
        total = sum(count for run in runs for count in run["calls"].values())
        report = {"calls": total, "all_answered": all(r["passed"] for r in runs), "runs": runs}
        commands.write(out, report)
        said = "all answered" if found["passed"] else "NOT all answered"
        print(f"{module.stem}: {sum(found['calls'].values())} calls, {said}; {total} in all")
    if not all(run["passed"] for run in runs):
        sys.exit("Some calls had no answer of ours.")


if __name__ == "__main__":
    commands.start(define_flags, main)
