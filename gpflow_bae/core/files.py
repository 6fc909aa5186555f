"""Atomic writes of files, locks on folders, JSON, and digests of arrays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "as_path",
    "check_folder",
    "digest",
    "locked",
    "save_arrays",
    "to_json",
    "write_atomically",
]

_LOCK = ".lock"


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a user's path with ``~`` expanded to their home."""
    return Path(path).expanduser()


def check_folder(folder: Path) -> None:
    """Check that a folder, which need not exist, can be made and written into.

    :raises NotADirectoryError: if it is a file, or lies in one.
    :raises PermissionError: if it, or the folder that it would be made in, is not writable.
    """
    there = folder.absolute()
    while not there.exists() and there.parent != there:
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(f"{folder} cannot be a folder: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written: {there} is not writable.")


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Lock a folder against other processes, and other calls in this one, inside this block.

    The lock is an operating system lock on a file ``.lock``, which is not removed. It is released
    when the process ends, also by a crash. Without support for such locks, as on some network file
    systems, nothing is locked.

    :param name: name of the argument with the folder, for the error message.
    :raises ValueError: if the folder is locked, with the process that holds it.
    """
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / _LOCK).open("a+"))
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.callback(fcntl.flock, file, fcntl.LOCK_UN)
            file.seek(0)
            own = f"{os.getpid()} {socket.gethostname()}"
            if file.read() != own:
                file.truncate(0)
                file.write(own)
                file.flush()
        except BlockingIOError:
            file.seek(0)
            process, _, host = file.read().partition(" ")
            # The file is empty while its holder has not written its process id yet.
            who = f"process {process} on {host}" if process else "another process"
            if (process, host) == (str(os.getpid()), socket.gethostname()):
                who = "another call in this process"
            raise ValueError(
                f"{name} {folder} is in use by {who}, whose run has not ended: wait for it, or "
                f"choose another {name}."
            ) from None
        except OSError:  # locks are not supported; an unwritable folder raises at the first write
            pass
        yield


def to_json(value: Any, **options: Any) -> str:
    """Convert a value to JSON text; NumPy numbers, arrays and tensors become numbers and lists.

    :param options: options of ``json.dumps``, such as ``indent`` and ``sort_keys``.
    :raises TypeError: for other objects, with their representation.
    """

    def plain(item: Any) -> Any:
        if isinstance(item, os.PathLike):
            return os.fspath(item)
        if isinstance(item, set | frozenset):
            return sorted(item)
        if hasattr(item, "__array__") or isinstance(item, np.generic):
            return np.asarray(item).tolist()
        raise TypeError(
            f"{item!r} of type {type(item).__name__} cannot be written as JSON: pass numbers, "
            "strings, lists or arrays."
        )

    return json.dumps(value, default=plain, **options)


def digest(*arrays: Any) -> str:
    """Compute a SHA-256 digest of the shapes, types and entries of arrays.

    The digest does not depend on the layout in memory, the sign of a zero or the bits of a NaN. It
    depends on the order of the arrays and of their rows.

    :param arrays: arrays, tensors or None. Text is compared as text.
    """
    found = hashlib.sha256()
    for value in arrays:
        if value is None:
            found.update(b"none;")
            continue
        array = np.asarray(value)
        found.update(f"{array.dtype.str}{array.shape};".encode())
        if array.dtype.kind == "O":
            found.update(to_json(array.tolist()).encode())
            continue
        if array.dtype.kind in "fc":
            array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array + 0)
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def write_atomically(path: Path, write: Any, previous: Path | None = None) -> None:
    """Call ``write(file)`` on a temporary file beside ``path``, then rename it to ``path``.

    :param previous: new name of an existing file; None replaces the file. A process that dies
        between the two renames leaves only ``previous``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def save_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the format of ``numpy.savez``.

    On a full disk this closes the archive, which ``numpy.savez`` leaves open, so that Python does
    not report the error a second time when the archive is garbage collected.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
