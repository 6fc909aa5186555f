"""A terminal that shows a command's own lines, and none of TensorFlow's C++."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile

__all__ = ["load_tensorflow_quietly"]

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

# "I0000 00:00:1795356608.804999    8181 port.cc:153] oneDNN ...", and what goes with it.
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\)"
    r"|[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    r"|To enable the following instructions: "
)


def load_tensorflow_quietly() -> None:
    """Imports TensorFlow without the lines that its C++ logs, during the import and later.

    Where the user set the variable TF_CPP_MIN_LOG_LEVEL to 0 or 1, which asks for these lines, they
    are shown. Python's warnings of TensorFlow are shown where that variable is below 2 as well;
    errors always. Lines that are no log are shown after the import.
    """
    level = os.environ.setdefault(_LEVEL, "3")
    if level in ("0", "1") or "tensorflow" in sys.modules:
        return
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # The level does not reach what is logged while the library is loaded.
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, AttributeError):  # no such descriptor, as in some notebooks
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            lines = held.read().decode(errors="replace").splitlines()
            shown = [line for line in lines if line and not _NOISE.match(line)]
            if shown:
                print(*shown, sep="\n", file=sys.stderr)
