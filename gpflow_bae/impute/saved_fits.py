"""The folder of a fit as far as it is text: its columns, and how tables are read by them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from .columns import ColumnKind, FittedColumns
from .table_format import TableFormat

__all__ = ["arguments", "fitted_columns", "read_record"]


def read_record(folder: str | pathlib.Path) -> dict[str, Any]:
    """What :meth:`gpflow_bae.impute.Imputer.save` wrote to ``fit.json``.

    :raises FileNotFoundError: if the folder holds no fit.
    :raises ValueError: for a damaged fit, or one of an earlier version.
    """
    folder = pathlib.Path(folder)
    path = folder / "fit.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} holds no fit.json: name the folder that Imputer.save wrote, which is "
            "<out>.posterior for the command."
        )
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): fit the table again.") from None
    if "kinds" not in record:
        raise ValueError(
            f"{folder} was written by an earlier version of gpflow_bae: fit the table again."
        )
    return record


def arguments(record: dict[str, Any]) -> dict[str, Any]:
    """Of the constructor of the fit's Imputer."""
    found = dict(record["arguments"])
    if found.get("table_format") is not None:
        found["table_format"] = TableFormat(**found["table_format"])
    return found


def fitted_columns(record: dict[str, Any]) -> FittedColumns:
    """How other tables are read."""
    return FittedColumns(
        np.array(record["input_centre"]),
        np.array(record["input_scale"]),
        tuple(ColumnKind.from_dict(kind) for kind in record["kinds"]),
        record["constants"],
        np.datetime64(record["origin"]) if record.get("origin") else None,
    )
