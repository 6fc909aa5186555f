"""The start of a command, and the JSON that it writes."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from absl import app

__all__ = ["made_with", "start", "write"]


def start(define_flags: Callable[[], None], main: Callable[[], None]) -> None:
    """Parse the command line, which has flags alone, and run the command."""
    define_flags()

    def checked(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
        main()

    app.run(checked)


def made_with() -> dict[str, Any]:
    """Versions of the libraries and the commit of the code."""
    from experiments.common import provenance

    return {"versions": provenance.versions(), "git_commit": provenance.git_commit()}


def write(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Write a record as JSON: the whole file, or the old one stays.

    :raises app.UsageError: where the path is a folder.
    """
    from gpflow_bae.core.files import write_atomically

    path = pathlib.Path(path)
    if path.is_dir():
        raise app.UsageError(f"{path} is a folder; name a file, such as {path / 'found.json'}.")
    text = json.dumps(record, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
