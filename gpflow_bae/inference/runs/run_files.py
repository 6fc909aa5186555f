"""Archives of arrays in a run's folder, with user-facing errors."""

from __future__ import annotations

import contextlib
import errno
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...core.files import save_arrays

__all__ = ["NOT_WHOLE", "DamagedError", "explained", "read_arrays", "save_counted"]

_NUM_ARRAYS = "checkpoint/num_arrays"
# Errors that NumPy and zipfile raise for damaged files.
NOT_WHOLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    ValueError,
    OSError,
)


class DamagedError(Exception):
    """An existing file is damaged."""


def save_counted(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Save arrays and their number: a damaged zip directory can hide some of them."""
    save_arrays(file, {_NUM_ARRAYS: np.array(len(arrays)), **arrays})


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a file and verify their number and checksums.

    :raises FileNotFoundError: if there is no file.
    :raises DamagedError: if it is truncated or its content has changed.
    """
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            arrays = dict(file)
        expected = int(arrays.pop(_NUM_ARRAYS, len(arrays)))
        if len(arrays) != expected:
            raise ValueError(f"{len(arrays)} arrays instead of {expected}")
        return arrays
    except NOT_WHOLE as error:
        # EINVAL comes from a damaged offset. A missing file, permission or disk is not damage.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise DamagedError(f"{path} is damaged ({type(error).__name__}: {error})") from error


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise an OSError with the file's path and advice if writing fails."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path} could not be written ({error.strerror}). What was written before is "
            "whole: make room for it, and go on with resume=True",
        ) from error
