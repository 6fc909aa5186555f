"""Readers of files of measuring platforms: 10x Visium, Visium HD and Slide-seq."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import scipy.sparse

from ..core.arguments import warn_caller
from ..core.files import as_path

__all__ = ["read_slide_seq", "read_visium"]

_MATRIX = "filtered_feature_bc_matrix.h5"
# Space Ranger's files for Visium HD, from version 2, and before; lists have no header.
_POSITIONS = (
    "tissue_positions.parquet",
    "tissue_positions.csv",
    "tissue_positions_list.csv",
    "tissue_positions_list.txt",  # as the dorsolateral prefrontal cortex was published
)
_COLUMNS = (
    "barcode", "in_tissue", "array_row", "array_col", "pxl_row_in_fullres", "pxl_col_in_fullres",
)  # fmt: skip
_GENES = "Gene Expression"  # feature type of genes
_GENES_AT_ONCE = 500


def read_visium(folder: str | os.PathLike[str]) -> Any:
    """Read spots or bins of a Space Ranger folder as an AnnData object of raw counts.

    For Visium HD give the folder of one bin size, such as ``binned_outputs/square_008um``, whose
    positions need pyarrow (``pip install '.[tables]'``). The folder holds
    ``filtered_feature_bc_matrix.h5``, and the positions, also in ``spatial``. File names may have
    the sample's name as a prefix, as in the published dorsolateral prefrontal cortex data. Features
    other than genes, such as antibodies, are dropped, with a warning that counts them.

    :return: counts [N, P] as a sparse matrix; ``obsm["spatial"]``, columns and rows of pixels of
        the full image [N, 2]; ``obs`` with ``array_row`` and ``array_col``; ``var`` with
        ``gene_ids``. Genes with equal names are numbered.
    :raises FileNotFoundError: naming the missing file.
    :raises ValueError: for a matrix of another kind, one without genes, and spots without a
        position or with several.
    :raises ImportError: without anndata, or without pyarrow if it is needed.
    """
    anndata, pandas = _anndata(), _pandas()
    import h5py

    folder = as_path(folder)
    file_name = _file(folder, (_MATRIX,))
    with h5py.File(file_name, "r") as file:
        if "matrix" not in file or "features" not in file["matrix"]:
            raise ValueError(
                f"{file_name} has no group matrix/features: expected the HDF5 file of counts "
                "that Space Ranger 1 or later writes."
            )
        matrix = file["matrix"]
        parts = tuple(matrix[name][:] for name in ("data", "indices", "indptr"))
        number = tuple(matrix["shape"][:])[::-1]  # written as genes by spots, in columns
        barcodes, names, ids = (
            np.char.decode(matrix[name][:].astype(bytes))
            for name in ("barcodes", "features/name", "features/id")
        )
        kinds = np.full(len(names), _GENES)
        if "feature_type" in matrix["features"]:  # Space Ranger writes it, others may not
            kinds = np.char.decode(matrix["features/feature_type"][:].astype(bytes))
    are_genes = kinds == _GENES
    others = _describe_kinds(kinds[~are_genes])
    if not are_genes.any():
        raise ValueError(f"{file_name} has no features of type {_GENES!r}, only {others}.")
    if others:
        warn_caller(f"Left out of {file_name}, which are no genes: {others}.")
    _check_once(barcodes, file_name)
    counts = scipy.sparse.csr_matrix(parts, shape=number)[:, are_genes]
    names, ids = names[are_genes], ids[are_genes]
    path = _file(folder, _POSITIONS)
    if path.suffix == ".parquet":
        table = pandas.read_parquet(path)
    else:
        has_names = "_list." not in path.name
        table = pandas.read_csv(
            path, header=0 if has_names else None, names=None if has_names else list(_COLUMNS)
        )
    absent = sorted(set(_COLUMNS) - set(table.columns))
    if absent:
        raise ValueError(f"{path} has no columns {absent}, only {sorted(table.columns)}.")
    _check_once(table["barcode"], path)
    table = table.set_index("barcode").reindex(barcodes)
    lost = table["in_tissue"].isna().to_numpy()
    if lost.any():
        raise ValueError(
            f"{path} has no position of {int(lost.sum())} of the {len(barcodes)} spots, such as "
            f"{barcodes[lost][0]}: the two files are of different samples."
        )
    adata = anndata.AnnData(counts, obs=table[["array_row", "array_col"]].astype(int))
    adata.obs_names = barcodes
    adata.var_names = anndata.utils.make_index_unique(pandas.Index(names))
    adata.var["gene_ids"] = ids
    adata.obsm["spatial"] = table[["pxl_col_in_fullres", "pxl_row_in_fullres"]].to_numpy(float)
    return _drop_empty(adata[table["in_tissue"].to_numpy() > 0].copy())


def read_slide_seq(counts: str | os.PathLike[str], places: str | os.PathLike[str]) -> Any:
    """Read beads of Slide-seq as an AnnData object of raw counts.

    :param counts: the table of genes (rows) and beads (columns), whose first column names genes,
        such as ``Puck_200115_08.digital_expression.txt.gz``; comma-separated if ``.csv``, else
        tab-separated. It is read in chunks of genes.
    :param places: the table of beads, with barcodes in the first column and columns ``xcoord`` and
        ``ycoord``, such as ``Puck_200115_08_bead_locations.csv``.
    :return: counts [N, P] as a sparse matrix, of the beads in both files, and
        ``obsm["spatial"]`` [N, 2].
    :raises FileNotFoundError: for a missing file.
    :raises ValueError: for tables without those columns, without a common bead, with a duplicate
        bead, or with a missing count.
    :raises ImportError: without anndata.
    """
    anndata, pandas = _anndata(), _pandas()
    counts, places = (as_path(path) for path in (counts, places))
    table = pandas.read_csv(places, index_col=0)
    _check_once(table.index, places)
    absent = [name for name in ("xcoord", "ycoord") if name not in table.columns]
    if absent:
        raise ValueError(
            f"{places} has no columns {absent}, only {list(table.columns)}: expected "
            "barcodes, xcoord and ycoord."
        )
    separator = "," if counts.name.removesuffix(".gz").endswith(".csv") else "\t"
    header = pandas.read_csv(counts, sep=separator, header=None, nrows=1, dtype=str)
    _check_once(header.iloc[0, 1:], counts)  # pandas would number them
    chunks = pandas.read_csv(counts, sep=separator, index_col=0, chunksize=_GENES_AT_ONCE)
    genes: list[str] = []
    parts = []
    barcodes = pandas.Index([], dtype=str)
    for chunk in chunks:
        barcodes = chunk.columns.astype(str)
        genes.extend(map(str, chunk.index))
        if chunk.isna().to_numpy().any():
            gene = chunk.index[chunk.isna().any(axis=1)][0]
            raise ValueError(f"{counts} has no count of gene {gene} for some beads; expected 0.")
        parts.append(scipy.sparse.csr_matrix(chunk.to_numpy()))
    table.index = table.index.astype(str)
    known = np.flatnonzero(barcodes.isin(table.index))
    if not len(known):
        raise ValueError(
            f"{counts} and {places} have no bead in common: the columns of "
            "the first must be barcodes of the second."
        )
    found = scipy.sparse.vstack(parts).T.tocsr()[known]
    adata = anndata.AnnData(found)
    adata.obs_names = barcodes[known]
    adata.var_names = anndata.utils.make_index_unique(pandas.Index(genes))
    adata.obsm["spatial"] = table.loc[adata.obs_names, ["xcoord", "ycoord"]].to_numpy(float)
    return _drop_empty(adata)


def _drop_empty(adata: Any) -> Any:
    """Drop observations without counts."""
    return adata[np.asarray(adata.X.sum(1))[:, 0] > 0].copy()


def _describe_kinds(kinds: np.ndarray) -> str:
    """Describe the number of each kind; an empty string if there are none."""
    found = zip(*np.unique(kinds, return_counts=True), strict=True)
    return ", ".join(f"{number} of {str(kind)!r}" for kind, number in found)


def _check_once(barcodes: Any, path: pathlib.Path) -> None:
    """Raise an error for duplicate barcodes."""
    found, numbers = np.unique(np.asarray(barcodes, str), return_counts=True)
    twice = found[numbers > 1]
    if len(twice):
        raise ValueError(
            f"{path} has {len(twice)} barcodes several times, such as {twice[0]}: expected one row "
            "or column of each. Leave out those that are of another sample."
        )


def _file(folder: pathlib.Path, names: tuple[str, ...]) -> pathlib.Path:
    """Return the first of ``names`` in the folder or its ``spatial``, with or without a prefix."""
    for name in names:
        for place in (folder, folder / "spatial"):
            found = sorted(place.glob(name)) or sorted(place.glob(f"*_{name}"))
            if len(found) > 1:
                raise ValueError(
                    f"{place} has {len(found)} files {name}: move those of each sample into a "
                    "folder of its own."
                )
            if found:
                return found[0]
    raise FileNotFoundError(
        f"{folder} has no {' or '.join(names)}, and neither has {folder / 'spatial'}."
    )


def _anndata() -> Any:
    try:
        import anndata
    except ImportError as error:
        raise ImportError("This needs anndata: pip install 'gpflow-bae[spatial]'.") from error
    return anndata


def _pandas() -> Any:
    import pandas  # a dependency of anndata

    return pandas
