"""Files of named arrays and a header: npz without pickle, checked when read."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ...core.files import as_path, to_json, write_atomically

__all__ = ["part_of", "read_archive", "write_archive"]

FORMAT, VERSION = "gpflow_bae posterior samples", 1

# Exceptions of NumPy and zipfile for a file that is truncated, damaged, or of another kind.
_BROKEN = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write ``arrays`` by name and a ``header`` of plain values to ``path``, atomically.

    Types that NumPy's format does not support (bfloat16) are stored as their bits.
    """
    types = {name: array.dtype.name for name, array in arrays.items()}
    known = {"format": FORMAT, "version": VERSION, "arrays": types, **header}
    stored = {"header": np.frombuffer(to_json(known).encode(), np.uint8)}
    stored |= {
        name: array.view(np.uint16) if types[name] == "bfloat16" else array
        for name, array in arrays.items()
    }
    write_atomically(as_path(path), lambda file: np.savez(file, **stored))


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read header and arrays, bit-identical, of a file that :func:`write_archive` wrote.

    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: for a file that is truncated, damaged, of another kind, or of another
        version of the format.
    """
    path = as_path(path)
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
        file.seek(0)
        try:
            header, arrays = _read(file)
        except _BROKEN as error:
            size = path.stat().st_size
            what = "is cut short or damaged" if is_zip else "is a file of another kind"
            raise ValueError(
                f"path {path} ({size} bytes) {what if size else 'is empty'}; expected a whole file "
                "of posterior samples, as Bank.save and Posterior.save write it. Copy it again "
                "from where it was saved, or save it again."
            ) from error
    if header.get("format") != FORMAT:
        raise ValueError(
            f"path {path} is an npz file that something else wrote (its header says "
            f"{header.get('format', 'nothing')!r}); expected {FORMAT!r}, as Bank.save and "
            "Posterior.save write it. Pass the path of such a file."
        )
    if header["version"] != VERSION:
        raise ValueError(
            f"path {path} has version {header['version']} of the format of posterior samples, and "
            f"this gpflow_bae reads version {VERSION}; read it with the gpflow_bae that wrote it "
            f"({header.get('versions', {}).get('gpflow_bae', 'unknown')}), or sample again."
        )
    return header, arrays


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names have a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _read(file: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise ValueError("a single array")
    with loaded:
        if "header" not in loaded.files:
            return {}, {}
        header = json.loads(loaded["header"].tobytes())
        if not isinstance(header, dict):
            raise ValueError("a header that is no mapping")
        if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
            return header, {}
        arrays = {name: loaded[name] for name in header["arrays"]}
    for name, kind in header["arrays"].items():
        if kind == "bfloat16":
            arrays[name] = arrays[name].view(tf.bfloat16.as_numpy_dtype)
    return header, arrays
