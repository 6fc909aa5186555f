"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["save_arrays", "write_atomically"]


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
