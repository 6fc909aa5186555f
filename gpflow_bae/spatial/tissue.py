"""Counts at places from AnnData objects: read, checked and converted to inputs of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

from ..core.arguments import as_array, as_numbers
from ..core.files import digest

__all__ = [
    "Coordinates",
    "Tissue",
    "categories_of",
    "check_enough_counts",
    "named",
    "read_tissue",
]

_MOST_NAMED = 5
_MOST = 2**31  # upper bound of a count, within the range of float32
_MOST_DENSE = 2**27  # larger tables of counts stay sparse: 512 MB


@dataclasses.dataclass(frozen=True)
class Tissue:
    """Cells of one or more slices.

    - counts: [N, P], raw counts, with sorted column indices.
    - hidden: [N, P], True for counts to ignore; None for none.
    - places: [N, 2 or 3], in the slice's units, float64 or float32 as given.
    - slices: [N], index of the slice.
    - names: [N], names of the cells.
    - covariates: [N, K], :meth:`~gpflow_bae.spatial.covariates.Covariates.columns_of`.
    """

    counts: scipy.sparse.csr_matrix
    hidden: scipy.sparse.csr_matrix | None
    places: np.ndarray
    slices: np.ndarray
    names: np.ndarray
    covariates: np.ndarray

    @property
    def num_cells(self) -> int:
        """Number of cells N."""
        return int(self.counts.shape[0])

    def rows(self, chosen: np.ndarray | slice) -> np.ndarray:
        """Return counts [n, P] of some cells, float32, NaN where hidden."""
        found = np.asarray(self.counts[chosen].todense(), np.float32)
        if self.hidden is not None:
            found[np.asarray(self.hidden[chosen].todense())] = np.nan
        return found

    def observations(self) -> np.ndarray | scipy.sparse.csr_matrix:
        """Return all counts [N, P], NaN where hidden; as a sparse matrix if they are many."""
        if self.counts.shape[0] * self.counts.shape[1] <= _MOST_DENSE:
            return self.rows(slice(None))
        found = scipy.sparse.csr_matrix(self._observed, dtype=np.float32)
        if self.hidden is None:
            return found
        holes = scipy.sparse.csr_matrix(self.hidden, dtype=np.float32, copy=True)
        holes.eliminate_zeros()
        holes.data[:] = np.nan
        return found + holes

    def order(self) -> np.ndarray:
        """Return an order of the cells [N] that does not depend on their rows.

        Cells are sorted by slice, place, covariates, and the sum of counts that are not hidden;
        ties by a digest of their counts, and then by name. A fit uses this order.
        """
        seen = self._observed
        keys = (_row_sums(seen), *self.covariates.T, *self.places.T[::-1], self.slices)
        order = np.lexsort(keys)
        alike = np.all([key[order[1:]] == key[order[:-1]] for key in keys], 0)
        tied = order[np.append(False, alike) | np.append(alike, False)]
        contents = np.zeros(self.num_cells, "U64")
        contents[tied] = [
            _digest(seen[row], None if self.hidden is None else self.hidden[row]) for row in tied
        ]
        return np.lexsort((self.names, contents, *keys))

    def digest_of_counts(self) -> str:
        """Return a digest of observed counts and of which are hidden, in the order of the cells."""
        return _digest(self._observed, self.hidden)

    def taken(self, rows: np.ndarray) -> Tissue:
        """Return some cells [n], in the order of ``rows``."""
        hidden = None if self.hidden is None else self.hidden[rows]
        rest = (self.places, self.slices, self.names, self.covariates)
        return Tissue(self.counts[rows], hidden, *(values[rows] for values in rest))

    @property
    def _observed(self) -> scipy.sparse.csr_matrix:
        if self.hidden is None:
            return self.counts
        return scipy.sparse.csr_matrix(self.counts - self.counts.multiply(self.hidden))

    def shares(self) -> np.ndarray:
        """Return each gene's fraction of all counts that are not hidden [P]; they sum to 1."""
        seen = self._observed
        found = np.ones(seen.shape[0]) @ seen  # in float64: scipy sums float32 in float32
        return np.asarray(found / max(found.sum(), 1.0))

    def totals(self, shares: np.ndarray) -> np.ndarray:
        """Return total counts of cells [N], corrected for hidden genes by their shares.

        :param shares: shares of the genes [P], from :meth:`shares`.
        """
        found = _row_sums(self._observed)
        if self.hidden is None:
            return found
        return found / np.maximum(1.0 - np.asarray(self.hidden @ shares), 1e-6)


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Map from places to the first columns of X: centred per slice, in units of their extent.

    - centres: [S, D], centres of the slices.
    - unit: root mean square distance from the centre, for all slices.
    """

    centres: np.ndarray
    unit: float

    @classmethod
    def of(cls, tissue: Tissue) -> Coordinates:
        """Compute centres and unit from the cells of a fit."""
        number = int(tissue.slices.max()) + 1
        centres = np.stack(
            [tissue.places[tissue.slices == s].mean(0, float) for s in range(number)]
        )
        away = tissue.places - centres[tissue.slices]
        unit = float(np.sqrt(np.mean(np.sum(np.square(away), 1))))
        # For equal places the unit is a rounding error, as in arguments.spread.
        if not unit > 8 * np.finfo(tissue.places.dtype).eps * np.abs(tissue.places).max():
            raise ValueError(
                f"All {tissue.num_cells} cells are at the same place, up to rounding, so nothing "
                "can vary over space."
            )
        return cls(centres, unit)

    def inputs(self, places: np.ndarray, slices: np.ndarray) -> np.ndarray:
        """Return scaled places [N, D]."""
        return np.asarray((places - self.centres[slices]) / self.unit)


def _row_sums(counts: scipy.sparse.csr_matrix) -> np.ndarray:
    """Return row sums [N] in float64."""
    return np.asarray(counts @ np.ones(counts.shape[1]))


def _digest(seen: scipy.sparse.csr_matrix, hidden: scipy.sparse.csr_matrix | None) -> str:
    """Return a digest of counts, whatever their type, and of which are hidden."""
    places = [m for m in (seen, hidden) if m is not None]
    indices = [v.astype(np.int64) for m in places for v in (m.indptr, m.indices)]
    return digest(*indices, seen.data.astype(np.float32))


def named(names: Any) -> str:
    """Return the first few names, with commas between them."""
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
    """Read and check the data of an AnnData object, which is not changed.

    :param layer: layer with counts; None for ``adata.X``.
    :param spatial_key: key of ``adata.obsm`` with places [N, 2 or 3].
    :param slice_key: column of ``adata.obs`` with the slice of each cell; None for one slice.
    :param hidden_layer: layer that is True for counts to ignore; None for none.
    :param slices: allowed names of slices; None for those in ``adata``.
    :return: the tissue, and the names of slices in the order of their indices.
    :raises TypeError: for anything but AnnData.
    :raises ValueError: naming missing or invalid counts, places, layers and columns.
    """
    if not all(hasattr(adata, name) for name in ("obs", "var", "obsm", "layers", "X")):
        advice = ""
        if hasattr(adata, "tables"):  # SpatialData
            advice = f" Give one of its tables, which hold the counts: {named(adata.tables)}."
        raise TypeError(f"adata must be an anndata.AnnData, got {type(adata).__name__}.{advice}")
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    counts = _counts(_layer(adata, layer, "layer"), where)
    _check_names(adata)
    hidden = None
    if hidden_layer is not None:
        hidden = _hidden(_layer(adata, hidden_layer, "hidden_layer"), hidden_layer)
    if spatial_key not in adata.obsm:
        raise ValueError(
            f"adata.obsm has no {spatial_key!r}, only {sorted(adata.obsm)}: set spatial_key to "
            "where the places of the cells are."
        )
    found = adata.obsm[spatial_key]
    single = getattr(found, "dtype", None) == np.float32
    places = as_numbers(found, f"adata.obsm[{spatial_key!r}]", np.float32 if single else np.float64)
    if places.ndim != 2 or places.shape[1] not in (2, 3):
        raise ValueError(
            f"adata.obsm[{spatial_key!r}] has shape {places.shape}; expected two or three "
            "coordinates of each cell."
        )
    lost = ~np.isfinite(places).all(1)
    if lost.any():
        raise ValueError(
            f"adata.obsm[{spatial_key!r}] has no place of {int(lost.sum())} cells "
            f"({named(adata.obs_names[lost])}): leave them out, adata[~adata.obs_names.isin(...)]."
        )
    numbers, names = np.zeros(adata.n_obs, int), [""]
    if slice_key is not None:
        numbers, names = categories_of(
            adata, slice_key, slices, argument="slice_key", noun="slice", plural="slices"
        )
    cells = np.asarray(adata.obs_names, str)
    tissue = Tissue(counts, hidden, places, numbers, cells, np.zeros((len(cells), 0)))
    _check_counted(tissue, where, hidden_layer)
    return tissue, names


def _check_names(adata: Any) -> None:
    """Raise an error for duplicate gene names."""
    twice = adata.var_names[adata.var_names.duplicated()].unique()
    if len(twice):
        raise ValueError(
            f"adata.var_names has {len(twice)} names of several genes ({named(twice)}): call "
            "adata.var_names_make_unique() before, which numbers them, or add their counts up."
        )


def _check_counted(tissue: Tissue, where: str, hidden_layer: str | None) -> None:
    """Raise an error for cells without observed counts, whose size is unknown."""
    empty = _row_sums(tissue.counts) == 0
    if empty.any():
        raise ValueError(
            f"{int(empty.sum())} cells of {where} have no counts at all "
            f"({named(tissue.names[empty])}; the first is number {np.argmax(empty)}): how much of "
            "them was counted is unknown, so leave them out (scanpy.pp.filter_cells(adata, "
            "min_counts=1))."
        )
    unseen = _row_sums(tissue._observed) == 0
    if unseen.any():
        raise ValueError(
            f"All counts of {int(unseen.sum())} cells ({named(tissue.names[unseen])}) are hidden "
            f"by adata.layers[{hidden_layer!r}], or 0: how much of them was counted is unknown. "
            "Leave these cells out, or hide fewer of their counts."
        )


def check_enough_counts(tissue: Tissue, genes: list[str], hidden_layer: str | None) -> None:
    """Check that a model can be fitted to cells.

    :raises ValueError: for fewer than two cells, and for genes whose counts are all hidden.
    """
    if tissue.num_cells < 2:
        raise ValueError(
            f"adata has {tissue.num_cells} cells; a model needs at least two, at two places."
        )
    if tissue.hidden is not None:
        seen_of_genes = tissue.num_cells - np.asarray(tissue.hidden.sum(0)).ravel()
        lost = [genes[p] for p in np.flatnonzero(seen_of_genes == 0)]
        if lost:
            raise ValueError(
                f"All counts of {len(lost)} genes, such as {lost[:3]}, are hidden by "
                f"adata.layers[{hidden_layer!r}]: leave these genes out."
            )


def _layer(adata: Any, name: str | None, argument: str) -> Any:
    if name is None:
        return adata.X
    if name not in adata.layers:
        raise ValueError(
            f"adata.layers has no {name!r}, only {sorted(adata.layers)}: set {argument} to one of "
            "these" + (", or None for adata.X." if argument == "layer" else ".")
        )
    return adata.layers[name]


def _matrix(values: Any, where: str) -> scipy.sparse.csr_matrix:
    """Convert a matrix of AnnData, dense, sparse or backed, to canonical CSR without stored zeros.

    The input is not changed.
    """
    if values is None:
        raise ValueError(f"{where} is empty; set layer to where the counts are.")
    if hasattr(values, "to_memory"):  # a sparse matrix of a backed object
        values = values.to_memory()
    if not scipy.sparse.issparse(values):
        values = as_array(values, where)
        if values.dtype.kind not in "iu":
            values = as_numbers(values, where, np.float32 if values.itemsize <= 4 else np.float64)
    elif values.dtype.kind not in "biuf":
        raise ValueError(f"{where} holds {values.dtype}; expected numbers.")
    found = scipy.sparse.csr_matrix(values)
    if found.dtype == bool:
        found = found.astype(np.float32)
    if not found.has_canonical_format or not found.data.all():
        found = found.copy()
        found.sum_duplicates()
        found.eliminate_zeros()
    return found


def _counts(values: Any, where: str) -> scipy.sparse.csr_matrix:
    counts = _matrix(values, where)
    stored = counts.data
    wrong = ~((stored >= 0) & (stored <= _MOST) & (stored == np.floor(stored)))
    if wrong.any():
        raise ValueError(
            f"{where} holds {int(wrong.sum())} values that are no counts, such as "
            f"{stored[wrong][0]:g}: expected 0, 1, 2, ..., before any normalisation. Set layer to "
            "where the counts are."
        )
    return counts


def _hidden(values: Any, name: str) -> scipy.sparse.csr_matrix:
    hidden = _matrix(values, f"adata.layers[{name!r}]")
    wrong = hidden.data != 1
    if wrong.any():
        raise ValueError(
            f"adata.layers[{name!r}] holds {int(wrong.sum())} values that are neither True nor "
            f"False, such as {hidden.data[wrong][0]:g}: hidden_layer is True where a count is not "
            "to be looked at."
        )
    return hidden.astype(bool)


def categories_of(
    adata: Any, key: str, known: list[str] | None, *, argument: str, noun: str, plural: str
) -> tuple[np.ndarray, list[str]]:
    """Return the index of each cell's category in a column [N], and the categories' names.

    :param known: allowed names; None for those in the column.
    :param argument, noun, plural: name of the argument that names the column, and of what it holds.
    :raises ValueError: for a missing column, cells without a name, and unknown names.
    """
    if key not in adata.obs:
        advice = f"set {argument} to that which names {plural}, or None for one {noun}."
        if known is not None:
            advice = f"the fit has it as {argument}, so these cells need it, too."
        raise ValueError(f"adata.obs has no column {key!r}, only {sorted(adata.obs)}: {advice}")
    nameless = adata.obs[key].isna().to_numpy()
    if nameless.any():
        raise ValueError(
            f"adata.obs[{key!r}] names no {noun} of {int(nameless.sum())} cells "
            f"({named(adata.obs_names[nameless])}): name it, or leave them out, "
            f"adata[adata.obs[{key!r}].notna()]."
        )
    found = adata.obs[key].astype(str).to_numpy()
    names = sorted(set(found)) if known is None else known
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise ValueError(
            f"adata.obs[{key!r}] names {plural} that the model was not fitted to "
            f"({named(unknown)}); it knows {named(names)}."
        )
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in found]), names
