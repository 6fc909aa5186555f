"""The record of a fit that is needed to process new cells, and its file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import zlib
from typing import Any

import numpy as np

from ..core.files import to_json, write_atomically
from ..posteriors import Posterior
from ..versions import __version__
from .covariates import Covariates
from .plans import Outline, SpatialPlan
from .tissue import Coordinates

__all__ = ["Fitted", "check_same_data", "read_fit", "write_fit"]

_POSTERIOR = "posterior.npz"
_NEXT = "posterior.next.npz"  # name until the record with its checksum is written
_NAME = "spatial.json"
_DATA = "data.json"
_BLOCK = 2**24  # bytes read at once


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Record of a fit that is needed to process new cells."""

    plan: SpatialPlan
    outline: Outline
    coordinates: Coordinates
    shares: np.ndarray  # share of each gene in all counts [P]
    median: float  # median of the cells' total counts
    genes: list[str]
    slices: list[str]
    covariates: Covariates
    counts: str  # digest of the cells' counts, in the fit's order

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return {
            "plan": dataclasses.asdict(self.plan),
            "outline": self.outline.to_dict(),
            "centres": self.coordinates.centres.tolist(),
            "unit": self.coordinates.unit,
            "shares": self.shares.tolist(),
            "median": self.median,
            "genes": self.genes,
            "slices": self.slices,
            "covariates": self.covariates.to_dict(),
            "counts": self.counts,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Fitted:
        """Invert :meth:`to_dict`."""
        return cls(
            SpatialPlan.from_dict(values["plan"]),
            Outline.from_dict(values["outline"]),
            Coordinates(np.array(values["centres"]), values["unit"]),
            np.array(values["shares"]),
            values["median"],
            values["genes"],
            values["slices"],
            Covariates.from_dict(values["covariates"]),
            values["counts"],
        )


def check_same_data(folder: pathlib.Path, digests: dict[str, str], resume: bool) -> None:
    """Write digests of a run's data into its folder, or compare them with those of the folder.

    :param digests: digests by the name of the data.
    :raises ValueError: if a run would be resumed with other data; names the data that differ.
    """
    path = folder / _DATA
    has_runs = folder.is_dir() and any(entry != path for entry in folder.iterdir())
    if not (has_runs and path.exists()):
        write_atomically(path, lambda file: file.write(to_json(digests, indent=1).encode()))
    elif resume:
        noted = json.loads(path.read_text(encoding="utf-8"))
        differ = [name for name, found in digests.items() if noted.get(name) != found]
        if differ:
            raise ValueError(
                f"out_dir {folder} holds a fit of other data: its {' and '.join(differ)} are not "
                "those of adata (counts, places, slices and covariates of cells, and which are "
                "hidden, count; their order does not). Give what that fit was given, or choose "
                "another out_dir."
            )


def write_fit(
    folder: pathlib.Path, arguments: dict[str, Any], fitted: Fitted, posterior: Posterior
) -> None:
    """Write the estimator's arguments, the record of its fit and its posterior.

    They replace an earlier fit's; an interruption leaves either the earlier fit or the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, following = folder / _POSTERIOR, folder / _NEXT
    if _posterior_of(folder) == following:  # a save was interrupted before its last step
        os.replace(following, path)
    posterior.save(following)
    record = {
        "gpflow_bae": __version__,
        "arguments": arguments,
        "fitted": fitted.to_dict(),
        "posterior_crc32": _checksum(following),
    }
    write_atomically(folder / _NAME, lambda file: file.write(to_json(record).encode()))
    os.replace(following, path)


def _posterior_of(folder: pathlib.Path) -> pathlib.Path:
    """Return the file of the posterior that belongs to the record in a folder."""
    following = folder / _NEXT
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        expected = json.loads((folder / _NAME).read_text(encoding="utf-8"))["posterior_crc32"]
        if _checksum(following) == expected:
            return following
    return folder / _POSTERIOR


def read_fit(folder: pathlib.Path) -> tuple[dict[str, Any], Fitted, pathlib.Path]:
    """Read the arguments and the record that :func:`write_fit` wrote, and find its posterior file.

    :raises FileNotFoundError: if the folder holds no fit.
    :raises ValueError: for a damaged fit, or a posterior of another fit.
    """
    path = folder / _NAME
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no {_NAME}: name what save() wrote.")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        arguments = record["arguments"]
        if arguments["plan"] is not None:
            arguments["plan"] = SpatialPlan.from_dict(arguments["plan"])
        fitted, checksum = Fitted.from_dict(record["fitted"]), record["posterior_crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or of another version ({error!r}): fit the cells again."
        ) from None
    posterior = _posterior_of(folder)
    if posterior.exists() and _checksum(posterior) != checksum:
        raise ValueError(
            f"{posterior} is not what was saved with {path}: it is damaged, or of another save. "
            "Save the fit again."
        )
    return arguments, fitted, posterior


def _checksum(path: pathlib.Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
