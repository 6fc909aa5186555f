"""What of a fit new cells are read by, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import zlib
from typing import Any

import numpy as np

from ..files import write_atomically
from ..versions import __version__
from .plans import Outline, SpatialPlan
from .tissue import Coordinates

__all__ = ["POSTERIOR", "Fitted", "read_fit", "write_fit"]

POSTERIOR = "posterior.npz"
_NAME = "spatial.json"
_BLOCK = 2**24  # bytes that are read at once


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What is read of new cells by."""

    plan: SpatialPlan
    outline: Outline
    coordinates: Coordinates
    shares: np.ndarray  # of each gene in all counts [P]
    median: float  # of the cells' totals
    genes: list[str]
    slices: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "plan": dataclasses.asdict(self.plan),
            "outline": self.outline.to_dict(),
            "centres": self.coordinates.centres.tolist(),
            "unit": self.coordinates.unit,
            "shares": self.shares.tolist(),
            "median": self.median,
            "genes": self.genes,
            "slices": self.slices,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Fitted:
        """The inverse of :meth:`to_dict`."""
        return cls(
            SpatialPlan(**values["plan"]),
            Outline.from_dict(values["outline"]),
            Coordinates(np.array(values["centres"]), values["unit"]),
            np.array(values["shares"]),
            values["median"],
            values["genes"],
            values["slices"],
        )


def write_fit(folder: pathlib.Path, arguments: dict[str, Any], fitted: Fitted) -> None:
    """Arguments of the estimator and what it read, in one step, when the posterior is there."""
    record = {
        "gpflow_bae": __version__,
        "arguments": arguments,
        "fitted": fitted.to_dict(),
        "posterior_crc32": _checksum(folder / POSTERIOR),
    }
    text = json.dumps(record, default=lambda value: value.item()).encode()  # NumPy's numbers
    write_atomically(folder / _NAME, lambda file: file.write(text))


def read_fit(folder: pathlib.Path) -> tuple[dict[str, Any], Fitted]:
    """What :func:`write_fit` wrote.

    :raises FileNotFoundError: if the folder holds no fit.
    :raises ValueError: for a damaged fit, and a posterior of another one.
    """
    path = folder / _NAME
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no {_NAME}: name what save() wrote.")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        arguments = record["arguments"]
        if arguments["plan"] is not None:
            arguments["plan"] = SpatialPlan(**arguments["plan"])
        fitted, checksum = Fitted.from_dict(record["fitted"]), record.get("posterior_crc32")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): fit the cells again.") from None
    posterior = folder / POSTERIOR
    if checksum is not None and posterior.exists() and _checksum(posterior) != checksum:
        raise ValueError(
            f"{posterior} is not what was saved with {path}: it is damaged, or of a save that was "
            "interrupted before it wrote the other file. Save the fit again."
        )
    return arguments, fitted


def _checksum(path: pathlib.Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
