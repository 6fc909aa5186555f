"""The files of a run's folder: arrays that are written at once, and records that come singly."""

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
# What NumPy and zipfile raise for bytes that they did not expect.
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
    """A file that is there, but not whole."""


def save_counted(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """With their number in front: a byte in the directory of a zip file may make it skip some."""
    save_arrays(file, {_NUM_ARRAYS: np.array(len(arrays)), **arrays})


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file, which zip files keep with their checksums.

    :raises FileNotFoundError: where there is none.
    :raises DamagedError: where it is cut short, or other than what was written.
    """
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            arrays = dict(file)
        expected = int(arrays.pop(_NUM_ARRAYS, len(arrays)))
        if len(arrays) != expected:
            raise ValueError(f"{len(arrays)} arrays instead of {expected}")
        return arrays
    except NOT_WHOLE as error:
        # A place before the file's beginning is damage. No file, no permission, no disk are not.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise DamagedError(f"{path} is damaged ({type(error).__name__}: {error})") from error


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Where a disk fails, which file it was, and what to do."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path} could not be written ({error.strerror}). What was written before is "
            "whole: make room for it, and go on with resume=True",
        ) from error


class RunFile:
    """Records of a run (:class:`~gpflow_bae.core.records.RecordFile`), with words for who runs it.

    How many of them are the run's is in its checkpoints; later ones, of a process that died, are
    ignored, and overwritten by the process that goes on.
    """

    def __init__(self, path: Path, what: str):
        """
        :param what: a record is, in words, in the plural.
        """
        self._file, self._what = RecordFile(path), what
        self.path = path
        self.is_own = True
        """Whether this process writes it; what others write is left alone."""

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Store rows [K, ...], the first of which has the number ``start``.

        :raises ValueError: for arrays of other names, types or shapes than those of row 0, or of
            different numbers of rows.
        :raises OSError: where they cannot be written, for instance because the disk is full; those
            before ``start`` stay.
        """
        if self.is_own:
            with explained(self.path):
                self._file.write(start, rows)

    def flush(self) -> None:
        """Return when everything written is on the disk.

        :raises OSError: as :meth:`write`.
        """
        if self.is_own:
            with explained(self.path):
                self._file.flush()

    def close(self) -> None:
        """Let go of the file; writing opens it again."""
        self._file.close()

    def records(self, count: int) -> Records:
        """The first ``count`` records, as they are: for the process that wrote or read them."""
        return Records(self.path, count)

    def read(self, count: int) -> Records:
        """The first ``count`` records, compared to their checksums.

        :raises ValueError: where one of them is damaged or missing.
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
