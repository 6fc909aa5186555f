"""Files of a run's folder: archives of arrays, and append-only records."""

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
from ...core.records import DamagedRecordsError, RecordFile, Records

__all__ = ["NOT_WHOLE", "DamagedError", "RunFile", "explained", "read_arrays", "save_counted"]

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


class RunFile:
    """Records of a run (:class:`~gpflow_bae.core.records.RecordFile`), with user-facing errors.

    Checkpoints store how many records are valid; later records, written by a process that died,
    are ignored, and overwritten when the run resumes.
    """

    def __init__(self, path: Path, what: str):
        """
        :param what: name of the records in the plural, for error messages.
        """
        self._file, self._what = RecordFile(path), what
        self.path = path
        self.is_own = True
        """Whether this process writes the file; otherwise writing has no effect."""

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Store rows [K, ...] as records ``start`` to ``start + K - 1``.

        :raises ValueError: if names, types or shapes differ from those of record 0, or the arrays
            have different numbers of rows.
        :raises OSError: if they cannot be written, for instance because the disk is full; records
            before ``start`` stay.
        """
        if self.is_own:
            with explained(self.path):
                self._file.write(start, rows)

    def flush(self) -> None:
        """Write all buffered data to disk.

        :raises OSError: as :meth:`write`.
        """
        if self.is_own:
            with explained(self.path):
                self._file.flush()

    def close(self) -> None:
        """Close the file; writing opens it again."""
        self._file.close()

    def records(self, count: int) -> Records:
        """Return the first ``count`` records without verifying their checksums."""
        return Records(self.path, count)

    def read(self, count: int) -> Records:
        """Return the first ``count`` records after verifying their checksums.

        :raises ValueError: if one of them is damaged or missing.
        """
        try:
            return self._file.read(count)
        except (DamagedRecordsError, FileNotFoundError) as error:
            reason = str(error)
            if isinstance(error, FileNotFoundError):
                reason = f"{error.filename} is missing"
            raise ValueError(
                f"{reason}. Of the run's {count} {self._what} these cannot be had again from its "
                "last checkpoint: put the file back, or choose another out_dir to start anew."
            ) from error
