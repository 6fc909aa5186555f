"""The two tissues, and which cells and counts are held back."""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np

from experiments.spatial_omics.made import CELLS, GENES, made

_FILES = {"starmap": "starmap_mpfc.h5ad", "osmfish": "osmfish_cortex.h5ad"}
MIDDLE = "BZ9"  # the slice of STARmap that others report
_VALIDATION = 8  # one of so many training cells


class Split(NamedTuple):
    """Cells that are fitted to, and those whose counts are asked for at their places."""

    train: Any
    test: Any


def load(
    data_dir: str | None,
    dataset: str,
    slices: str = MIDDLE,
    validation: int | None = None,
    seed: int = 0,
    batches: int = 1,
    cells: int = CELLS,
    genes: int = GENES,
) -> Split:
    """The published split of a tissue, or a made one.

    :param data_dir: that holds ``spatial/``.
    :param dataset: "starmap", "osmfish", or "made".
    :param slices: of STARmap, one, or "all".
    :param validation: seed of which training cells are asked for in the place of those held back,
        an eighth: for choosing settings. None for those held back.
    :param seed: of which tissue is made.
    :param batches, cells, genes: numbers of a made tissue.
    :raises ValueError: for a slice that is not there.
    :raises FileNotFoundError: without the file.
    :raises ImportError: without anndata.
    """
    try:
        import anndata
    except ImportError as error:
        raise ImportError("spatial_omics reads AnnData files: pip install '.[spatial]'.") from error
    if dataset == "made":
        adata = made(seed, batches, cells, genes)
        held = adata.obs["held_out_location"].to_numpy()
        return Split(adata[~held].copy(), adata[held].copy())
    path = pathlib.Path(data_dir or ".") / "spatial" / _FILES[dataset]
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: set --data_dir to the folder that holds spatial/."
        )
    adata = anndata.read_h5ad(path)
    known = sorted(adata.obs["slice"].unique())
    if dataset == "starmap" and slices not in (*known, "all"):
        raise ValueError(f"--slices is {slices}; the tissue has {known}, or all.")
    if dataset == "starmap" and slices != "all":
        adata = adata[adata.obs["slice"] == slices].copy()
    held = adata.obs["held_out_location"].to_numpy().astype(bool)
    if validation is not None:
        adata = adata[~held].copy()
        held = np.zeros(adata.n_obs, bool)
        rng = np.random.default_rng(validation)
        held[rng.choice(adata.n_obs, adata.n_obs // _VALIDATION, replace=False)] = True
    return Split(adata[~held].copy(), adata[held].copy())
