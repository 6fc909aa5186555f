"""Commands in the test's own process: TensorFlow is there already, and takes seconds to load."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags

from experiments.common import driver, results


@contextlib.contextmanager
def parsed(define: Callable[[], Any], *arguments: str) -> Iterator[flags.FlagValues]:
    """The flags that ``define`` makes, parsed from a command line, and gone again afterwards."""
    before = set(flags.FLAGS)
    try:
        define()
        flags.FLAGS(["command", *arguments])
        yield flags.FLAGS
    finally:
        flags.FLAGS.remove_flag_values(set(flags.FLAGS) - before)
        flags.FLAGS.unparse_flags()


def call(study: driver.Study, out_dir: pathlib.Path, *arguments: str) -> dict[str, Any]:
    """Runs a study's command as a shell would, and gives its results.json."""
    line = [*arguments, f"--out_dir={out_dir}"]
    with parsed(lambda: driver.define(study), *line):
        driver.run(study, ["command"], line)
    return json.loads((out_dir / results.RESULTS).read_text())
