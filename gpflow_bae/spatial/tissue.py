"""Counts at places, as AnnData objects have them: read, checked, and made inputs of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

__all__ = ["Coordinates", "Tissue", "groups_of", "read_tissue"]

_MOST_NAMED = 5
_MOST_DENSE = 2**27  # counts, above which they stay sparse: 512 MB


@dataclasses.dataclass(frozen=True)
class Tissue:
    """Cells of one or more slices.

    - counts: [N, P], as they were counted.
    - hidden: [N, P], True where a count is not to be looked at; None where all are.
    - places: [N, 2 or 3], in the slice's own units.
    - slices: [N], number of the slice.
    """

    counts: scipy.sparse.csr_matrix
    hidden: scipy.sparse.csr_matrix | None
    places: np.ndarray
    slices: np.ndarray

    @property
    def num_cells(self) -> int:
        """N."""
        return int(self.counts.shape[0])

    def rows(self, chosen: np.ndarray | slice) -> np.ndarray:
        """Counts [n, P] of some cells, float32, NaN where hidden."""
        found = np.asarray(self.counts[chosen].todense(), np.float32)
        if self.hidden is not None:
            found[np.asarray(self.hidden[chosen].todense())] = np.nan
        return found

    def observations(self) -> np.ndarray | scipy.sparse.csr_matrix:
        """All counts [N, P], NaN where hidden; as a sparse matrix where they are many."""
        if self.counts.shape[0] * self.counts.shape[1] <= _MOST_DENSE:
            return self.rows(slice(None))
        found = scipy.sparse.csr_matrix(self._seen, dtype=np.float32)
        if self.hidden is None:
            return found
        holes = scipy.sparse.csr_matrix(self.hidden, dtype=np.float32, copy=True)
        holes.eliminate_zeros()
        holes.data[:] = np.nan
        return found + holes

    def order(self) -> np.ndarray:
        """Of the cells by slice, place and number of counts [N], whatever rows they came as.

        A fit takes them in this order, so that it does not depend on that of the rows.
        """
        totals = np.asarray(self.counts.sum(1))[:, 0]
        return np.lexsort((totals, *self.places.T[::-1], self.slices))

    def taken(self, rows: np.ndarray) -> Tissue:
        """Some cells [n], in that order."""
        hidden = None if self.hidden is None else self.hidden[rows]
        return Tissue(self.counts[rows], hidden, self.places[rows], self.slices[rows])

    @property
    def _seen(self) -> scipy.sparse.csr_matrix:
        if self.hidden is None:
            return self.counts
        return scipy.sparse.csr_matrix(self.counts - self.counts.multiply(self.hidden))

    def shares(self) -> np.ndarray:
        """Of each gene in all counts that are not hidden [P]; they sum to 1."""
        found = np.asarray(self._seen.sum(0), float)[0]
        return found / max(found.sum(), 1.0)

    def totals(self, shares: np.ndarray) -> np.ndarray:
        """Counts of each cell [N] that are not hidden, over the share of all that those have.

        :param shares: of each gene [P], as :meth:`shares` has them.
        """
        found = np.asarray(self._seen.sum(1), float)[:, 0]
        if self.hidden is None:
            return found
        return found / np.maximum(1.0 - np.asarray(self.hidden @ shares), 1e-6)


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """From places to the first columns of X: from each slice's centre, in units of their extent.

    - centres: [S, D] of the slices.
    - unit: one for all, the root mean square distance from the centre.
    """

    centres: np.ndarray
    unit: float

    @classmethod
    def of(cls, tissue: Tissue) -> Coordinates:
        """Those of the cells that a model is fitted to."""
        number = int(tissue.slices.max()) + 1
        centres = np.stack([tissue.places[tissue.slices == s].mean(0) for s in range(number)])
        away = tissue.places - centres[tissue.slices]
        unit = float(np.sqrt(np.mean(np.sum(np.square(away), 1))))
        if not unit > 0.0:
            raise ValueError(
                f"All {tissue.num_cells} cells are at the same place, so nothing can vary over "
                "space."
            )
        return cls(centres, unit)

    def inputs(self, places: np.ndarray, slices: np.ndarray) -> np.ndarray:
        """[N, D]."""
        return np.asarray((places - self.centres[slices]) / self.unit)


def _named(names: Any) -> str:
    names = [str(name) for name in names]
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def read_tissue(
    adata: Any,
    *,
    layer: str | None = None,
    spatial_key: str = "spatial",
    slice_key: str | None = None,
    hidden_layer: str | None = None,
    slices: list[str] | None = None,
) -> tuple[Tissue, list[str]]:
    """What a model needs of an AnnData object, which stays as it is.

    :param layer: that holds counts; None for ``adata.X``.
    :param spatial_key: of ``adata.obsm``, places [N, 2 or 3].
    :param slice_key: column of ``adata.obs`` that names the slice of each cell; None for one.
    :param hidden_layer: a layer that is True where a count is not to be looked at; None for none.
    :param slices: names that are known; None for those that are there.
    :return: the tissue, and the slices' names in the order of their numbers.
    :raises TypeError: for anything but AnnData.
    :raises ValueError: saying what is missing, or is no count or place.
    """
    if not all(hasattr(adata, name) for name in ("obs", "var", "obsm", "layers", "X")):
        raise TypeError(f"adata must be an anndata.AnnData, got {type(adata).__name__}.")
    counts = _counts(_layer(adata, layer, "layer"), layer)
    hidden = None
    if hidden_layer is not None:
        hidden = scipy.sparse.csr_matrix(_layer(adata, hidden_layer, "hidden_layer"), dtype=bool)
    if spatial_key not in adata.obsm:
        raise ValueError(
            f"adata.obsm has no {spatial_key!r}, only {sorted(adata.obsm)}: set spatial_key to "
            "where the places of the cells are."
        )
    places = np.asarray(adata.obsm[spatial_key], float)
    if places.ndim != 2 or places.shape[1] not in (2, 3):
        raise ValueError(
            f"adata.obsm[{spatial_key!r}] has shape {places.shape}; expected two or three "
            "coordinates of each cell."
        )
    lost = ~np.isfinite(places).all(1)
    if lost.any():
        raise ValueError(
            f"adata.obsm[{spatial_key!r}] has no place of {int(lost.sum())} cells "
            f"({_named(adata.obs_names[lost])}): leave them out, adata[~adata.obs_names.isin(...)]."
        )
    numbers, names = _slices(adata, slice_key, slices)
    return Tissue(counts, hidden, places, numbers), names


def _layer(adata: Any, name: str | None, argument: str) -> Any:
    if name is None:
        return adata.X
    if name not in adata.layers:
        raise ValueError(
            f"adata.layers has no {name!r}, only {sorted(adata.layers)}: set {argument} to one of "
            "these" + (", or None for adata.X." if argument == "layer" else ".")
        )
    return adata.layers[name]


def _counts(values: Any, layer: str | None) -> scipy.sparse.csr_matrix:
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    if values is None:
        raise ValueError(f"{where} is empty; set layer to where the counts are.")
    counts = scipy.sparse.csr_matrix(values)
    stored = counts.data
    wrong = ~(np.isfinite(stored) & (stored >= 0) & (stored == np.floor(stored)))
    if wrong.any():
        raise ValueError(
            f"{where} holds {int(wrong.sum())} values that are no counts, such as "
            f"{stored[wrong][0]:g}: expected 0, 1, 2, ..., before any normalisation. Set layer to "
            "where the counts are."
        )
    empty = np.flatnonzero(np.asarray(counts.sum(1))[:, 0] == 0)
    if len(empty):
        raise ValueError(
            f"{len(empty)} cells of {where} have no counts at all (the first is number "
            f"{empty[0]}): how much of them was counted is unknown, so leave them out "
            "(scanpy.pp.filter_cells(adata, min_counts=1))."
        )
    return counts


def _slices(adata: Any, key: str | None, known: list[str] | None) -> tuple[np.ndarray, list[str]]:
    if key is None:
        return np.zeros(adata.n_obs, int), [""]
    if key not in adata.obs:
        raise ValueError(
            f"adata.obs has no column {key!r}, only {sorted(adata.obs)}: set slice_key to that "
            "which names slices, or None for one slice."
        )
    found = adata.obs[key].astype(str).to_numpy()
    names = sorted(set(found)) if known is None else known
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise ValueError(
            f"adata.obs[{key!r}] names slices that the model was not fitted to "
            f"({_named(unknown)}); it knows {_named(names)}."
        )
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in found]), names


def groups_of(
    adata: Any, groupby: str, group1: str | int, group2: str | int | None
) -> list[np.ndarray]:
    """Which cells are of each of two groups [N], the second of all others for None.

    :raises ValueError: for a column or a group that is not there, and the same group twice.
    """
    if groupby not in adata.obs:
        raise ValueError(
            f"adata.obs has no column {groupby!r}, only {sorted(adata.obs)}: set groupby to one."
        )
    names = adata.obs[groupby].astype(str).to_numpy()
    known = sorted(set(names))
    for argument, name in (("group1", group1), ("group2", group2)):
        all_others = name is None and argument == "group2"
        if str(name) not in known and not all_others:
            raise ValueError(
                f"{argument} is {name!r}, and adata.obs[{groupby!r}] has {_named(known)}."
            )
    first = names == str(group1)
    second = ~first if group2 is None else names == str(group2)
    if not second.any() or (first & second).any():
        raise ValueError(
            f"group1={group1!r} and group2={group2!r} must be two groups of adata.obs"
            f"[{groupby!r}], which has {_named(known)}."
        )
    return [np.flatnonzero(first), np.flatnonzero(second)]
