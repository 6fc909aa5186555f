"""Suppression of TensorFlow's C++ log lines on the terminal."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

__all__ = ["LEVEL_VARIABLE", "load_tensorflow_quietly", "quiet_tensorflow", "without_noise"]

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"

# Log lines of absl's C++, such as "I0000 00:00:1795356608.804999    8181 port.cc:153] oneDNN ...".
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\)"
    r"|[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    r"|To enable the following instructions: "
)


def quiet_tensorflow() -> None:
    """Suppress log lines of TensorFlow's C++, during its import and afterwards.

    The variable TF_CPP_MIN_LOG_LEVEL alone does not suppress lines during the import. If
    the user set it to 0 or 1, which requests those lines, nothing is done. Python's warnings and
    errors, and fatal errors of C++, are still shown. The lines include those that explain why a GPU
    is not used.

    Importing ``gpflow_bae`` does not call this function, because log lines and the environment of
    child processes are the choice of a program. Call it before TensorFlow is imported, which reads
    the variable once; otherwise it warns.
    """
    level = os.environ.get(LEVEL_VARIABLE)
    if level in ("0", "1"):
        return
    if level is None and "tensorflow" in sys.modules:
        warnings.warn(
            "quiet_tensorflow() is too late: TensorFlow was imported before it, by itself or by "
            "keras or gpflow, and goes on logging. Call it before those imports.",
            stacklevel=2,
        )
    os.environ[LEVEL_VARIABLE] = "3"
    waiting = any(isinstance(finder, _QuietImport) for finder in sys.meta_path)
    if "tensorflow" not in sys.modules and not waiting:
        sys.meta_path.insert(0, _QuietImport())


class _QuietImport(importlib.abc.MetaPathFinder):
    """Import hook that executes TensorFlow's import in :func:`without_noise`, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return TensorFlow's spec with a quiet loader; None for other modules."""
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def quietly(module: ModuleType) -> None:
                del loader.exec_module  # restores the method of the class
                with without_noise():
                    execute(module)

            loader.exec_module = quietly
        return spec


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Buffer standard error, C++ included, and print all but TensorFlow's log lines at the end.

    If the descriptor cannot be replaced, everything is shown.
    """
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError):
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            text = held.read().decode(errors="replace")
            lines = [line for line in text.splitlines() if line and not _NOISE.match(line)]
            if lines:
                print(*lines, sep="\n", file=sys.stderr)


def load_tensorflow_quietly() -> None:
    """Import TensorFlow with :func:`quiet_tensorflow`, and without its Python warnings.

    If the user set the variable to 0 or 1, nothing is done. Errors are always shown.
    """
    if os.environ.get(LEVEL_VARIABLE) in ("0", "1"):
        return
    quiet_tensorflow()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    import tensorflow  # noqa: F401
