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

from ..core.arguments import as_numbers
from ..core.files import to_json, write_atomically
from ..posteriors import Posterior
from ..versions import __version__
from .covariates import Covariates, inputs_of
from .plans import Outline, SpatialPlan
from .tissue import Coordinates, Tissue

__all__ = ["Fitted", "check_same_data", "read_fit", "write_fit"]

_POSTERIOR = "posterior.npz"
_NEXT = "posterior.next.npz"  # name until the record with its checksum is written
_NAME = "spatial.json"
_DATA = "data.json"
_BLOCK = 2**24  # bytes read at once
_FURTHEST = 1e9  # in units of a slice's extent; a place beyond this is an error


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

    @classmethod
    def of(
        cls,
        plan: SpatialPlan,
        tissue: Tissue,
        genes: list[str],
        slices: list[str],
        covariates: Covariates,
        seed: int,
    ) -> Fitted:
        """Summarise the cells of a fit, in its order."""
        coordinates, shares = Coordinates.of(tissue), tissue.shares()
        totals = tissue.totals(shares)
        median = float(np.median(totals))
        places = coordinates.inputs(tissue.places, tissue.slices)
        outline = Outline.of(plan, tissue, places, totals / median, seed)
        counts = tissue.digest_of_counts()
        return cls(plan, outline, coordinates, shares, median, genes, slices, covariates, counts)

    def sizes_of(self, tissue: Tissue) -> np.ndarray:
        """Return the total counts of cells over the median of the fit's cells [N]."""
        return tissue.totals(self.shares) / self.median

    def inputs_of(self, tissue: Tissue) -> np.ndarray:
        """Return inputs [N, D + K + 2] of cells with the fit's slices."""
        places = self.coordinates.inputs(tissue.places, tissue.slices)
        return inputs_of(places, tissue.covariates, self.sizes_of(tissue), tissue.slices)

    def columns_of(self, genes: Any) -> np.ndarray:
        """Return the column indices of genes by name.

        :raises ValueError: for names that are not of the fit, or none.
        """
        names = [genes] if isinstance(genes, str) else list(np.ravel(np.asarray(genes, object)))
        unknown = [name for name in names if name not in self.genes]
        if unknown or not names:
            what = f"{unknown[:3]} are not of" if unknown else "is empty; give some of"
            raise ValueError(f"genes {what} the fit's {len(self.genes)} (model.genes_).")
        return np.array([self.genes.index(name) for name in names])

    def new_inputs(self, places: Any, sizes: Any, slices: Any, covariates: Any) -> np.ndarray:
        """Return inputs [N, D + K + 2] of cells at new places.

        Arguments and errors as in :meth:`~gpflow_bae.spatial.SpatialBAE.predict`.
        """
        places = as_numbers(places, "places", np.float64, rank=2)
        D = self.coordinates.centres.shape[1]
        if places.shape[1] != D or not np.isfinite(places).all():
            raise ValueError(
                f"places must be finite, of shape [N, {D}] as those of the fit, got shape "
                f"{places.shape}."
            )
        sizes = as_numbers(sizes, "sizes", np.float64)
        if sizes.shape not in ((), (1,), (len(places),)):
            raise ValueError(
                f"sizes has shape {sizes.shape}; expected a number, or one for each of the "
                f"{len(places)} places."
            )
        sizes = np.broadcast_to(sizes, len(places))
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            raise ValueError("sizes must be above 0, and 1 is the median of the fit's cells.")
        names = [self.slices[0]] if slices is None else np.atleast_1d(slices)
        if slices is None and len(self.slices) > 1:
            raise ValueError(f"The fit has several slices: set slices to some of {self.slices}.")
        unknown = sorted({str(name) for name in names} - set(self.slices))
        if unknown:
            raise ValueError(f"slices {unknown} are not of the fit, which has {self.slices}.")
        numbers = np.array([self.slices.index(str(name)) for name in names])
        if len(numbers) not in (1, len(places)):
            raise ValueError(
                f"slices names {len(numbers)} slices; expected one, or one of each of the "
                f"{len(places)} places."
            )
        numbers = np.broadcast_to(numbers, len(places))
        inputs = self.coordinates.inputs(places, numbers)
        if np.abs(inputs).max(initial=0.0) > _FURTHEST:
            unit = self.coordinates.unit
            raise ValueError(
                f"places are up to {np.abs(inputs).max() * unit:.3g} from the centre of their "
                f"slice, and the fit's cells within some {unit:.3g}: give places in the same units."
            )
        columns = self.covariates.columns_at(covariates, len(places))
        return inputs_of(inputs, columns, sizes, numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that :func:`~gpflow_bae.core.files.to_json` writes."""
        values = dataclasses.asdict(self)
        coordinates = values.pop("coordinates")
        return values | coordinates

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Fitted:
        """Invert :meth:`to_dict`; lists become arrays."""
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
