"""Readers of platforms' files, on small made ones."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.spatial import read_slide_seq, read_visium

pytest.importorskip("anndata", reason="anndata is not installed (extra spatial)")
h5py = pytest.importorskip("h5py", reason="anndata brings h5py")
pandas = pytest.importorskip("pandas", reason="anndata brings pandas")

SPOTS, GENES = 12, 5
BARCODES = [f"AC{n:02d}-1" for n in range(SPOTS)]
NAMES = ["Pcp4", "Mbp", "Mbp", "Reln", "Cux2"]


def _counts() -> np.ndarray:
    found = np.random.default_rng(0).poisson(1.0, (SPOTS, GENES))
    found[4] = 0  # a spot without any count
    found[found.sum(1) == 0, 0] = 1
    found[4] = 0
    return found


def _positions() -> Any:
    """Of all spots of the slide, in another order and with some that were not filtered in."""
    barcodes = [*BARCODES[::-1], "ZZ-1"]
    number = len(barcodes)
    return pandas.DataFrame(
        {
            "barcode": barcodes,
            "in_tissue": [1] * (number - 1) + [0],
            "array_row": np.arange(number),
            "array_col": 2 * np.arange(number),
            "pxl_row_in_fullres": 100.0 + np.arange(number),
            "pxl_col_in_fullres": 500.0 - np.arange(number),
        }
    )


def _write_matrix(path: pathlib.Path) -> None:
    """As Space Ranger does: genes by spots, column after column."""
    columns = scipy.sparse.csc_matrix(_counts().T)
    with h5py.File(path, "w") as file:
        matrix = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            matrix[name] = getattr(columns, name)
        matrix["shape"] = np.array([GENES, SPOTS])
        matrix["barcodes"] = np.array(BARCODES, "S")
        matrix["features/name"] = np.array(NAMES, "S")
        matrix["features/id"] = np.array([f"ENSG{p}" for p in range(GENES)], "S")


@pytest.mark.parametrize(
    "name",
    [
        "tissue_positions_list.csv",
        "151673_tissue_positions_list.txt",
        "tissue_positions.csv",
        "tissue_positions.parquet",
    ],
)
def test_visium(tmp_path: pathlib.Path, name: str) -> None:
    """Of every version of Space Ranger; HD as of one size of bins."""
    _write_matrix(tmp_path / "151673_filtered_feature_bc_matrix.h5")
    (tmp_path / "spatial").mkdir()
    path, table = tmp_path / "spatial" / name, _positions()
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra tables)")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, header="_list." not in name)
    adata = read_visium(tmp_path)
    kept = [n for n in range(SPOTS) if n != 4]
    np.testing.assert_array_equal(adata.X.toarray(), _counts()[kept])
    assert list(adata.obs_names) == [BARCODES[n] for n in kept]
    assert list(adata.var_names) == ["Pcp4", "Mbp", "Mbp-1", "Reln", "Cux2"]
    assert list(adata.var["gene_ids"][:2]) == ["ENSG0", "ENSG1"]
    # The first barcode is the last of the table but one.
    np.testing.assert_array_equal(adata.obsm["spatial"][0], [500.0 - 11, 111.0])
    assert adata.obs["array_row"].iloc[0] == 11


def test_slide_seq(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some genes at a time; beads that either file lacks are left out."""
    monkeypatch.setattr("gpflow_bae.spatial.platforms._GENES_AT_ONCE", 2)
    table = pandas.DataFrame(_counts().T, index=pandas.Index(NAMES, name="GENE"), columns=BARCODES)
    table.to_csv(tmp_path / "dge.txt.gz", sep="\t")
    table.to_csv(tmp_path / "dge.csv")
    places = pandas.DataFrame(
        {"barcode": ["XX", *BARCODES[:0:-1]], "xcoord": np.arange(SPOTS), "ycoord": 1.5}
    )
    places.to_csv(tmp_path / "places.csv", index=False)
    for name in ("dge.txt.gz", "dge.csv"):
        adata = read_slide_seq(tmp_path / name, tmp_path / "places.csv")
        kept = [n for n in range(1, SPOTS) if n != 4]
        np.testing.assert_array_equal(adata.X.toarray(), _counts()[kept])
        assert list(adata.var_names) == ["Pcp4", "Mbp", "Mbp-1", "Reln", "Cux2"]
        np.testing.assert_array_equal(adata.obsm["spatial"][0], [11.0, 1.5])


def test_what_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no filtered_feature_bc_matrix.h5"):
        read_visium(tmp_path)
    _write_matrix(tmp_path / "filtered_feature_bc_matrix.h5")
    with pytest.raises(FileNotFoundError, match=r"tissue_positions.csv or tissue_positions_list"):
        read_visium(tmp_path)
    _positions()[3:].to_csv(tmp_path / "tissue_positions.csv", index=False)
    with pytest.raises(ValueError, match=r"no position of 3 of the 12 spots, such as AC09-1"):
        read_visium(tmp_path)
    _positions().drop(columns="in_tissue").to_csv(tmp_path / "tissue_positions.csv", index=False)
    with pytest.raises(ValueError, match=r"no columns \['in_tissue'\]"):
        read_visium(tmp_path)
    _write_matrix(tmp_path / "other_filtered_feature_bc_matrix.h5")
    (tmp_path / "filtered_feature_bc_matrix.h5").rename(
        tmp_path / "one_filtered_feature_bc_matrix.h5"
    )
    with pytest.raises(ValueError, match="2 files filtered_feature_bc_matrix.h5"):
        read_visium(tmp_path)
    with h5py.File(tmp_path / "one_filtered_feature_bc_matrix.h5", "w") as file:
        file["other"] = np.zeros(2)
    (tmp_path / "other_filtered_feature_bc_matrix.h5").unlink()
    with pytest.raises(ValueError, match="no group matrix/features"):
        read_visium(tmp_path)


def test_beads_of_other_files_are_refused(tmp_path: pathlib.Path) -> None:
    table = pandas.DataFrame(_counts().T, index=NAMES, columns=BARCODES)
    table.to_csv(tmp_path / "dge.csv")
    pandas.DataFrame({"b": ["XX"], "x": [0.0]}).to_csv(tmp_path / "places.csv", index=False)
    with pytest.raises(ValueError, match=r"no columns \['xcoord', 'ycoord'\]"):
        read_slide_seq(tmp_path / "dge.csv", tmp_path / "places.csv")
    pandas.DataFrame({"b": ["XX"], "xcoord": [0.0], "ycoord": [0.0]}).to_csv(
        tmp_path / "places.csv", index=False
    )
    with pytest.raises(ValueError, match="no bead in common"):
        read_slide_seq(tmp_path / "dge.csv", tmp_path / "places.csv")


def _visium(folder: pathlib.Path, kinds: list[str] | None) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / "filtered_feature_bc_matrix.h5"
    _write_matrix(path)
    _positions().to_csv(folder / "tissue_positions.csv", index=False)
    if kinds is not None:
        with h5py.File(path, "a") as file:
            file["matrix/features/feature_type"] = np.array(kinds, "S")


def test_features_that_are_no_genes_are_left_out(tmp_path: pathlib.Path) -> None:
    """And a gene keeps its name beside an antibody of the same."""
    _visium(tmp_path, ["Antibody Capture", "Gene Expression"] + 2 * ["Antibody Capture"] + [""])
    with pytest.raises(ValueError, match="no features of type 'Gene Expression'"):
        _visium(tmp_path / "other", 5 * ["Antibody Capture"])
        read_visium(tmp_path / "other")
    with pytest.warns(UserWarning, match="no genes: 1 of '', 3 of 'Antibody Capture'"):
        adata = read_visium(tmp_path)
    assert list(adata.var_names) == ["Mbp"] and list(adata.var["gene_ids"]) == ["ENSG1"]
    kept = np.flatnonzero(_counts()[:, 1])  # spots that have counts of it
    np.testing.assert_array_equal(adata.X.toarray()[:, 0], _counts()[kept, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "Variable names are not unique")
        _visium(tmp_path / "genes", 5 * ["Gene Expression"])
        assert read_visium(tmp_path / "genes").n_vars == 5


def test_barcodes_that_are_there_twice(tmp_path: pathlib.Path) -> None:
    _visium(tmp_path, None)
    table = _positions()
    table.loc[0, "barcode"] = BARCODES[3]
    table.to_csv(tmp_path / "tissue_positions.csv", index=False)
    with pytest.raises(
        ValueError, match=r"positions.csv has 1 barcodes several times, such as AC0"
    ):
        read_visium(tmp_path)
    names = [*BARCODES[:-1], BARCODES[0]]
    pandas.DataFrame(_counts().T, index=NAMES, columns=names).to_csv(tmp_path / "dge.csv")
    places = pandas.DataFrame({"b": BARCODES, "xcoord": 0.0, "ycoord": np.arange(SPOTS)})
    places.to_csv(tmp_path / "places.csv", index=False)
    with pytest.raises(ValueError, match=r"dge.csv has 1 barcodes several times, such as AC00-1"):
        read_slide_seq(tmp_path / "dge.csv", tmp_path / "places.csv")
    places.assign(b=names).to_csv(tmp_path / "places.csv", index=False)
    with pytest.raises(ValueError, match=r"places.csv has 1 barcodes several times"):
        read_slide_seq(tmp_path / "dge.csv", tmp_path / "places.csv")


def test_a_bead_without_a_count(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused, not left out; and a folder may begin with ``~``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    table = pandas.DataFrame(_counts().T.astype(float), index=NAMES, columns=BARCODES)
    table.to_csv(tmp_path / "dge.csv")
    places = pandas.DataFrame({"b": BARCODES, "xcoord": 0.0, "ycoord": np.arange(SPOTS)})
    places.to_csv(tmp_path / "places.csv", index=False)
    assert read_slide_seq("~/dge.csv", "~/places.csv").n_obs == SPOTS - 1
    table.iloc[3, 2] = np.nan
    table.to_csv(tmp_path / "dge.csv")
    with pytest.raises(ValueError, match="no count of gene Reln for some beads"):
        read_slide_seq("~/dge.csv", "~/places.csv")
