"""An append-only file of records of named arrays, read by memory mapping."""

from __future__ import annotations

import functools
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np

from .files import write_atomically

__all__ = ["DamagedRecordsError", "RecordFile", "Records"]

FORMAT = 1
"""Version of the file format; increased when versions cannot read each other's files."""
IN_MEMORY = 2**28
"""Size in bytes up to which :meth:`Records.stacked` reads records instead of mapping the file."""
_AT_ONCE = 2**22  # bytes that a check reads at once
_CHECKSUM = "checksum"
_KINDS = "biufc"  # dtype kinds that are stored unchanged


class DamagedRecordsError(Exception):
    """Raised for a file of records with damaged content."""


class Records(Sequence[Mapping[str, np.ndarray]]):
    """A sequence of the first records of a file; each item is a mapping of arrays by name.

    Items are read from the file on access, so the file must not be moved.
    """

    def __init__(self, path: Path, count: int):
        """
        :raises DamagedRecordsError: if the file's header is damaged.
        :raises FileNotFoundError: if there is no file, and ``count`` is not 0.
        """
        self._arrays: dict[str, np.ndarray] = {}
        self._count = count
        self.nbytes = 0
        """Size of all records on disk in bytes."""
        if count:
            layout, offset = _read_header(path)
            table: Any = np.memmap(path, layout.record, "r", offset, (count,))
            self.nbytes = table.nbytes
            self._arrays = layout.arrays(table)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, np.ndarray]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        row = range(self._count)[index]
        return {name: np.array(values[row]) for name, values in self._arrays.items()}

    def stacked(self, in_memory: int | None = None) -> dict[str, np.ndarray]:
        """Return all records as arrays [S, ...] by name.

        :param in_memory: size in bytes up to which records are read into memory; None for
            :data:`IN_MEMORY`. Larger arrays are views of the file (``numpy.memmap``), whose pages
            are read on access and dropped when memory is needed.
        """
        if self.nbytes > (IN_MEMORY if in_memory is None else in_memory):
            return dict(self._arrays)
        return {name: np.array(values) for name, values in self._arrays.items()}


class RecordFile:
    """A writer and checked reader of a file of numbered records.

    A write appends records, or replaces those of the same numbers, and rewrites no others. The
    number of valid records is not in the file: the caller stores it elsewhere (in a checkpoint)
    after a flush, and a run that resumes overwrites later records of an interrupted one. Every
    record has a checksum of its content and number.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: BinaryIO | None = None
        self._layout: _Layout | None = None
        self._offset = 0
        self._dirty = False

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Write rows [K, ...] as the records ``start``, ``start + 1``, ...; 0 begins a new file.

        :raises ValueError: for arrays of other names, types or shapes than earlier records.
        :raises DamagedRecordsError: if the file's header is damaged.
        :raises OSError: if the file cannot be written; the records before ``start`` stay.
        """
        layout = _Layout.of(rows)
        if start == 0:
            self._begin(layout)
        elif self._layout is None:
            self._layout, self._offset = _read_header(self.path)
        assert self._layout is not None
        if layout != self._layout:
            raise ValueError(
                f"record {start} of {self.path} has {layout.difference(self._layout)}; every "
                "record of a file has arrays of equal names, types and shapes."
            )
        layout = self._layout
        if self._file is None:
            self._file = self.path.open("r+b", buffering=0)
        self._dirty = True
        self._file.seek(self._offset + start * layout.record.itemsize)
        left = memoryview(layout.bytes_of(start, rows).view(np.uint8).data)
        while left:  # on an almost full disk a write may be partial
            left = left[self._file.write(left) :]

    def _begin(self, layout: _Layout) -> None:
        """Create a new file; readers may still map the file that it replaces."""
        self.close()
        header = layout.header()
        write_atomically(self.path, lambda file: file.write(header))
        self._layout, self._offset = layout, len(header)

    def flush(self) -> None:
        """Write buffered data to disk (fsync).

        :raises OSError: if this fails.
        """
        if self._file is not None and self._dirty:
            os.fsync(self._file.fileno())
            self._dirty = False

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def read(self, count: int) -> Records:
        """Return the first ``count`` records after a check of their checksums.

        :raises DamagedRecordsError: if one is damaged, with its number.
        :raises FileNotFoundError: if there is no file, and ``count`` is not 0.
        """
        for number, whole in enumerate(self._checked(count)):
            if not whole:
                raise DamagedRecordsError(f"record {number} of {self.path} is damaged")
        return Records(self.path, count)

    def _checked(self, count: int) -> Iterator[bool]:
        if not count:
            return
        layout, offset = _read_header(self.path)
        at_once = max(1, _AT_ONCE // layout.record.itemsize)
        with self.path.open("rb") as file:
            file.seek(offset)
            for start in range(0, count, at_once):
                size = min(at_once, count - start) * layout.record.itemsize
                content = file.read(size)
                if len(content) < size:
                    whole = len(content) // layout.record.itemsize
                    raise DamagedRecordsError(
                        f"{self.path} is cut short, in record {start + whole} of {count}"
                    )
                table = np.frombuffer(bytearray(content), layout.record)
                written = table[_CHECKSUM].copy()
                yield from layout.checksums(start, table) == written


class _Layout:
    """Names, types and shapes of the arrays of a record, and their layout in the file."""

    def __init__(self, arrays: Mapping[str, tuple[str, Sequence[int]]]):
        self.described = {name: (kind, tuple(shape)) for name, (kind, shape) in arrays.items()}

    @functools.cached_property
    def record(self) -> np.dtype:
        """The record's NumPy type; fields are numbered, because NumPy restricts field names."""
        fields: list[Any] = [
            (str(i), np.uint16 if kind == "bfloat16" else np.dtype(kind), shape)
            for i, (kind, shape) in enumerate(self.described.values())
        ]
        return np.dtype([*fields, (_CHECKSUM, np.uint32)], align=True)

    @classmethod
    def of(cls, rows: Mapping[str, np.ndarray]) -> _Layout:
        """Return the layout of arrays [K, ...].

        :raises ValueError: for arrays that are not numeric, or have different numbers of rows.
        """
        described, counts = {}, set()
        for name, values in rows.items():
            kind = values.dtype.name if values.dtype.name == "bfloat16" else values.dtype.str
            if values.dtype.kind not in _KINDS and kind != "bfloat16":
                raise ValueError(
                    f"{name} holds {values.dtype}, not numbers; expected floats, integers or "
                    "booleans."
                )
            counts.add(values.shape[:1])
            described[name] = (kind, values.shape[1:])
        if len(counts) != 1 or () in counts:
            shapes = {name: np.shape(values) for name, values in rows.items()}
            raise ValueError(
                f"arrays of records have shapes {shapes}; expected [K, ...] with one K, a row for "
                "each record."
            )
        return cls(described)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Layout) and self.described == other.described

    def difference(self, other: _Layout) -> str:
        """Describe the first array that differs from another layout's, for an error message."""
        for name in [*self.described, *other.described]:
            mine, its = self.described.get(name), other.described.get(name)
            if mine != its:
                return f"{name!r} as {mine or 'no array'} where those before have {its or 'none'}"
        return "its arrays in another order than those before"

    def header(self) -> bytes:
        """Return the first line of the file, padded to a multiple of 64 bytes for alignment."""
        text = json.dumps({"format": FORMAT, "arrays": self.described})
        line = json.dumps({"checksum": zlib.crc32(text.encode()), "records": text})
        return line.encode() + b" " * (-(len(line) + 1) % 64) + b"\n"

    def bytes_of(self, start: int, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return rows [K, ...] as records, the first of which has the number ``start``."""
        table = np.zeros(len(next(iter(rows.values()))), self.record)
        for i, (name, (kind, _)) in enumerate(self.described.items()):
            values = rows[name]
            table[str(i)] = values.view(np.uint16) if kind == "bfloat16" else values
        table[_CHECKSUM] = self.checksums(start, table)
        return table

    def checksums(self, start: int, table: np.ndarray) -> np.ndarray:
        """Return the checksum of each record of ``table``, whose first has the number ``start``.

        The checksum fields of ``table`` are set to 0.
        """
        table[_CHECKSUM] = 0
        content = table.view(np.uint8).reshape(len(table), -1)
        found = [zlib.crc32(row, (start + i) % 2**32) for i, row in enumerate(content)]
        return np.array(found, np.uint32)

    def arrays(self, table: np.ndarray) -> dict[str, np.ndarray]:
        """Return views [S, ...] of a table of records by name."""
        return {
            name: table[str(i)].view(kind) if kind == "bfloat16" else table[str(i)]
            for i, (name, (kind, _)) in enumerate(self.described.items())
        }


def _read_header(path: Path) -> tuple[_Layout, int]:
    """Return the layout of a file's records, and the offset of the first one."""
    with path.open("rb") as file:
        line = file.readline(_AT_ONCE)
    try:
        held = json.loads(line)
        text = held["records"]
        if zlib.crc32(text.encode()) != held["checksum"] or len(line) % 64:
            raise ValueError("its checksum is another")
        about = json.loads(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRecordsError(f"the first line of {path} is damaged ({error})") from error
    if about["format"] != FORMAT:
        raise DamagedRecordsError(
            f"{path} has format {about['format']} of records, and this version reads {FORMAT}"
        )
    return _Layout(about["arrays"]), len(line)
