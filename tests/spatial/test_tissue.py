"""AnnData objects as they are read, and what is refused of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.spatial.tissue import Coordinates, read_tissue
from tests.spatial.tissues import made


def test_counts_places_and_slices() -> None:
    adata = made(60, num_slices=2).adata
    adata.layers["raw"] = adata.X.copy()
    adata.X = adata.X.astype(float) / 3.0  # as normalised counts are
    tissue, names = read_tissue(adata, layer="raw", slice_key="slice")
    assert names == ["slice 0", "slice 1"] and tissue.num_cells == 60
    np.testing.assert_array_equal(tissue.rows(slice(None)), adata.layers["raw"].toarray())
    np.testing.assert_array_equal(tissue.slices, np.arange(60) % 2)
    np.testing.assert_array_equal(
        tissue.totals(tissue.shares()), adata.layers["raw"].toarray().sum(1)
    )


def test_hidden_counts_are_not_seen() -> None:
    """They are missing, and totals are what they were expected to be with them."""
    adata = made(200).adata
    rng = np.random.default_rng(3)
    hidden = rng.uniform(size=adata.shape) < 0.2
    adata.layers["held_out"] = scipy.sparse.csr_matrix(hidden)
    tissue, _ = read_tissue(adata, hidden_layer="held_out")
    rows = tissue.rows(slice(None))
    np.testing.assert_array_equal(np.isnan(rows), hidden)
    np.testing.assert_array_equal(rows[~hidden], adata.X.toarray()[~hidden])
    shares = np.where(hidden, 0.0, rows).sum(0)
    shares = shares / shares.sum()
    expected = np.where(hidden, 0.0, rows).sum(1) / (1.0 - hidden @ shares)
    np.testing.assert_allclose(tissue.totals(shares), expected, rtol=1e-6)
    # A count that nobody may look at changes nothing.
    other = adata.copy()
    counts = other.X.toarray()
    counts[hidden] += 1000
    other.X = scipy.sparse.csr_matrix(counts)
    changed, _ = read_tissue(other, hidden_layer="held_out")
    np.testing.assert_array_equal(changed.shares(), tissue.shares())
    np.testing.assert_array_equal(changed.totals(shares), tissue.totals(shares))


def test_places_are_from_the_centre_of_their_slice() -> None:
    """Distances within one are the places', in one unit; slices of other sizes are in the way of
    none.
    """
    adata = made(80, num_slices=2).adata
    adata.obsm["spatial"][::2] *= 500.0
    tissue, _ = read_tissue(adata, slice_key="slice")
    found = Coordinates.of(tissue)
    X = found.inputs(tissue.places, tissue.slices)
    own = tissue.slices == 1
    for a, b in ((0, 1), (2, 9)):
        inside = np.linalg.norm(X[own][a] - X[own][b])
        truth = np.linalg.norm(tissue.places[own][a] - tissue.places[own][b])
        assert inside * found.unit == pytest.approx(truth)
    for s in (0, 1):
        np.testing.assert_allclose(X[tissue.slices == s].mean(0), 0.0, atol=1e-10)
    assert np.mean(np.sum(np.square(X), 1)) == pytest.approx(1.0)


def test_what_is_refused() -> None:
    adata = made(30).adata
    with pytest.raises(TypeError, match="must be an anndata.AnnData, got ndarray"):
        read_tissue(np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"adata.layers has no 'raw'"):
        read_tissue(adata, layer="raw")
    with pytest.raises(ValueError, match=r"adata.obsm has no 'places'"):
        read_tissue(adata, spatial_key="places")
    with pytest.raises(ValueError, match=r"adata.obs has no column 'donor'"):
        read_tissue(adata, slice_key="donor")
    for value, words in ((-1.0, "such as -1"), (0.5, "such as 0.5"), (np.nan, "such as nan")):
        wrong = adata.copy()
        counts = wrong.X.toarray().astype(float)
        counts[3, 2] = value
        wrong.X = counts
        with pytest.raises(ValueError, match=f"1 values that are no counts, {words}"):
            read_tissue(wrong)
    empty = adata.copy()
    counts = empty.X.toarray()
    counts[[4, 9]] = 0
    empty.X = counts
    with pytest.raises(ValueError, match="2 cells of adata.X have no counts at all.* number 4"):
        read_tissue(empty)
    lost = adata.copy()
    lost.obsm["spatial"][7, 1] = np.nan
    with pytest.raises(ValueError, match=r"no place of 1 cells \(cell 7\)"):
        read_tissue(lost)
    flat = adata.copy()
    flat.obsm["spatial"] = flat.obsm["spatial"][:, :1]
    with pytest.raises(ValueError, match="two or three coordinates"):
        read_tissue(flat)
    with pytest.raises(ValueError, match=r"not fitted to \(slice 0\); it knows A"):
        read_tissue(adata, slice_key="slice", slices=["A"])
    same = adata.copy()
    same.obsm["spatial"][:] = 5.0
    tissue, _ = read_tissue(same)
    with pytest.raises(ValueError, match="30 cells are at the same place"):
        Coordinates.of(tissue)
