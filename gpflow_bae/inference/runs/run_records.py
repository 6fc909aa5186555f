"""Records of a run, samples or rows of statistics, in a file of its folder or in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...core.records import DamagedRecordsError, RecordFile, Records
from .run_files import explained

__all__ = ["RunRecords"]

Rows = Mapping[str, np.ndarray]


class RunRecords:
    """Records in the order of the steps; those in a file are written at once, and none is held.

    A checkpoint stores :attr:`count`. Later records, written by a process that died, are ignored,
    and overwritten when the run resumes.
    """

    def __init__(self, path: Path | None = None, what: str = "records"):
        """
        :param path: the file (:class:`~gpflow_bae.core.records.RecordFile`); None for memory.
        :param what: name of the records in the plural, for error messages.
        """
        self.count = 0
        self.is_own = True
        """Whether this process writes the file; otherwise writing has no effect."""
        self._what = what
        self._file = None if path is None else RecordFile(path)
        self._held: list[Rows] = []

    def resume(self, count: int) -> None:
        """Continue after the first ``count`` records of the file, whose checksums are verified.

        :raises ValueError: if one of them is damaged or missing.
        """
        assert self._file is not None
        try:
            self._file.read(count)
        except (DamagedRecordsError, FileNotFoundError) as error:
            reason = str(error)
            if isinstance(error, FileNotFoundError):
                reason = f"{error.filename} is missing"
            raise ValueError(
                f"{reason}. Of the run's {count} {self._what} these cannot be had again from its "
                "last checkpoint: put the file back, or choose another out_dir to start anew."
            ) from error
        self.count = count

    def add(self, rows: Rows) -> None:
        """Append rows [K, ...] as K records.

        :raises ValueError: if names, types or shapes differ from those of the first record, or the
            arrays have different numbers of rows.
        :raises OSError: if they cannot be written, for instance because the disk is full; earlier
            records stay.
        """
        rows = {name: np.asarray(values) for name, values in rows.items()}
        number = _number_of(rows)
        if self._file is None:
            self._held.append(rows)
        elif number and self.is_own:
            with explained(self._file.path):
                self._file.write(self.count, rows)
        self.count += number

    def flush(self) -> None:
        """Write all buffered data to disk.

        :raises OSError: as :meth:`add`.
        """
        if self._file is not None and self.is_own:
            with explained(self._file.path):
                self._file.flush()

    def close(self) -> None:
        """Close the file; writing opens it again."""
        if self._file is not None:
            self._file.close()

    def records(self) -> Sequence[Rows]:
        """Return all records; those of a file are read on access."""
        if self._file is not None:
            return Records(self._file.path, self.count)
        held = [(rows, k) for rows in self._held for k in range(_number_of(rows))]
        return [{name: values[k] for name, values in rows.items()} for rows, k in held]

    def stacked(self) -> dict[str, np.ndarray]:
        """Return all records as arrays [S, ...] by name."""
        if self._file is not None:
            return Records(self._file.path, self.count).stacked()
        names = self._held[0] if self._held else ()
        return {name: np.concatenate([rows[name] for rows in self._held]) for name in names}


def _number_of(rows: Rows) -> int:
    return len(next(iter(rows.values()), ()))
