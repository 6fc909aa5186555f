"""Write and read the folder of a fit. Needs no TensorFlow; the posterior is a file of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.files import as_path, to_json, write_atomically
from ..versions import __version__
from .reading.columns import FittedColumns
from .reading.indicators import Indicator
from .reading.kinds.column_kind import ColumnKind
from .reading.table_format import TableFormat

__all__ = ["POSTERIOR", "ROLES", "add", "arguments", "fitted_columns", "read_record", "write"]

POSTERIOR = "posterior.npz"
_RECORD = "fit.json"
#: Arguments that name columns.
ROLES = ("outputs", "inputs", "time", "task")


def write(
    folder: str | pathlib.Path,
    write_posterior: Callable[[pathlib.Path], None],
    arguments: Mapping[str, Any],
    columns: FittedColumns,
    more: Mapping[str, Any],
) -> None:
    """Write the folder of a fit. An earlier fit in it stays whole until both files are complete.

    :param write_posterior: a function that writes the posterior to a path.
    :param arguments: constructor arguments of the Imputer.
    :param more: further entries of ``fit.json``, plain values or arrays.
    """
    folder = as_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    given = dict(arguments)
    if given["table_format"] is not None:
        given["table_format"] = dataclasses.asdict(given["table_format"])
    given |= {key: _plain(given[key]) for key in ROLES}
    if isinstance(given["kinds"], Mapping):
        given["kinds"] = [[_plain(name), kind] for name, kind in given["kinds"].items()]
    record = {
        "gpflow_bae": __version__,
        "arguments": given,
        "input_centre": columns.centre,
        "input_scale": columns.scale,
        "input_still": columns.still,
        "origin": None if columns.origin is None else str(columns.origin),
        "kinds": [kind.to_dict() | {"name": _plain(kind.name)} for kind in columns.kinds],
        "constants": [[_plain(name), value] for name, value in columns.constants.items()],
        "doubtful": [_plain(name) for name in columns.doubtful],
        **more,
    }
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as name:
        new = pathlib.Path(name)
        write_posterior(new / POSTERIOR)
        record["digest"] = _digest(new / POSTERIOR)
        (new / _RECORD).write_text(to_json(record, indent=1), encoding="utf-8")
        for file in (POSTERIOR, _RECORD):
            os.replace(new / file, folder / file)


def add(folder: pathlib.Path, **entries: Any) -> None:
    """Add entries to ``fit.json`` in the folder of a fit, plain values."""
    text = to_json(read_record(folder) | entries, indent=1)
    write_atomically(folder / _RECORD, lambda file: file.write(text.encode()))


def read_record(folder: str | pathlib.Path) -> dict[str, Any]:
    """Read ``fit.json`` from the folder of a fit, and check that its posterior belongs to it.

    :raises FileNotFoundError: if the folder holds no fit.
    :raises ValueError: for a damaged fit, or one of an earlier version.
    """
    folder = as_path(folder)
    path = folder / _RECORD
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} holds no fit.json: name the folder that Imputer.save wrote, which is "
            "<out>.posterior for the command."
        )
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): fit the table again.") from None
    if "variance_scales" not in record:
        raise ValueError(
            f"{folder} was written by an earlier version of gpflow_bae: fit the table again."
        )
    posterior = folder / POSTERIOR
    if not posterior.exists() or _digest(posterior) != record["digest"]:
        raise ValueError(
            f"{posterior} is not what {path} was written with: it is missing, damaged or of "
            "another fit. Save the fit again, or fit the table again."
        )
    return record


def arguments(record: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments of the fit's Imputer."""
    found = dict(record["arguments"])
    if found.get("table_format") is not None:
        found["table_format"] = TableFormat(**found["table_format"])
    found |= {key: _named(found[key]) for key in ROLES}
    found |= {key: list(found[key]) for key in ("outputs", "inputs")}
    if isinstance(found["kinds"], list):
        found["kinds"] = {_named(name): kind for name, kind in found["kinds"]}
    return found


def fitted_columns(record: Mapping[str, Any]) -> FittedColumns:
    """The kinds of the outputs and the scaling of the inputs, by which other tables are read."""
    return FittedColumns(
        np.array(record["input_centre"]),
        np.array(record["input_scale"]),
        tuple(
            ColumnKind.from_dict(kind | {"name": _named(kind["name"])}) for kind in record["kinds"]
        ),
        {_named(name): value for name, value in record["constants"]},
        frozenset(_named(name) for name in record["doubtful"]),
        np.array(record["input_still"], dtype=bool),
        np.datetime64(record["origin"]) if record["origin"] else None,
    )


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _plain(name: Any) -> Any:
    """The name of a column, or a sequence of names, in types of JSON."""
    if isinstance(name, Indicator):
        return {"column": _plain(name.column), "level": name.level, "filled": name.filled}
    if isinstance(name, tuple | list):
        return [_plain(part) for part in name]
    if hasattr(name, "isoformat"):
        return {"time": name.isoformat()}
    return name


def _named(plain: Any) -> Any:
    """The inverse of :func:`_plain`."""
    if isinstance(plain, list):
        return tuple(_named(part) for part in plain)
    if isinstance(plain, dict) and "level" in plain:
        return Indicator(_named(plain["column"]), plain["level"], plain["filled"])
    if isinstance(plain, dict):
        import pandas as pd  # whose names these are

        return pd.Timestamp(plain["time"])
    return plain
