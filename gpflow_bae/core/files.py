"""Files written whole or not at all, folders held by one process, JSON, and digests of arrays."""

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

__all__ = ["as_path", "digest", "locked", "save_arrays", "to_json", "write_atomically"]

_LOCK = ".lock"


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path that a user names, with ``~`` for their home."""
    return Path(path).expanduser()


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Keep other processes, and other calls of this one, out of a folder inside this block.

    The lock is the kernel's, on a file ``.lock`` that stays there: it ends with the process,
    however that ends. Where there are no such locks, as on some network file systems, nothing is
    kept out.

    :param name: of the argument that the folder came from.
    :raises ValueError: if the folder is held, saying by which process.
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
            # Where it says nothing, somebody is about to write who they are.
            who = f"process {process} on {host}" if process else "another process"
            if (process, host) == (str(os.getpid()), socket.gethostname()):
                who = "another call in this process"
            raise ValueError(
                f"{name} {folder} is in use by {who}, whose run has not ended: wait for it, or "
                f"choose another {name}."
            ) from None
        except OSError:  # no such locks there; who cannot write will be told when they do
            pass
        yield


def to_json(value: Any, **options: Any) -> str:
    """Write a value as JSON text, with NumPy's numbers and arrays and tensors as Python's.

    :param options: of ``json.dumps``, such as ``indent`` and ``sort_keys``.
    :raises TypeError: for what is neither plain nor an array, naming it.
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
    """Compute a SHA-256 digest of the content of arrays: their shapes, types and every entry.

    Equal arrays have equal digests, whatever their layout in memory, the sign of a zero or the bits
    of a NaN; arrays with two rows exchanged have different ones.

    :param arrays: arrays, tensors or None, in an order that counts. Text is compared as text.
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
    """Call ``write(file)`` on a temporary neighbour of ``path``, then rename it into place.

    :param previous: what the file that is there is renamed to; None replaces it. Who dies between
        the two leaves this one alone.
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
    """What ``numpy.savez`` writes; where the disk is full it leaves no half-closed archive behind,
    of which Python would complain once more when it is collected.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
