"""AnnData objects as they are read, and what is refused of them."""

from __future__ import annotations

import itertools
import types
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.spatial.expression import groups_of
from gpflow_bae.spatial.tissue import Coordinates, categories_of, read_tissue
from tests.spatial.tissues import anndata, made


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
    tables = types.SimpleNamespace(tables={"table": adata})  # as SpatialData has them
    with pytest.raises(TypeError, match="one of its tables, which hold the counts: table"):
        read_tissue(tables)
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


def alike() -> Any:
    """Three cells of equal place and total, two of them with equal counts, and another."""
    adata = anndata.AnnData(np.array([[9, 0, 1], [0, 9, 1], [2, 2, 2], [0, 9, 1]], np.float32))
    adata.obs_names = list("abcd")
    adata.obsm["spatial"] = np.array([[0.0, -0.0], [0.0, 0.0], [1.0, 1.0], [-0.0, 0.0]])
    return adata


def test_cells_that_are_alike_keep_their_order() -> None:
    """Those of equal place and total are told apart by their counts, equal ones by their names."""
    adata = alike()
    found = set()
    for rows in itertools.permutations(range(4)):
        tissue, _ = read_tissue(adata[list(rows)].copy())
        order = tissue.order()
        names = tissue.names[order]
        np.testing.assert_array_equal(tissue.taken(order).rows(slice(None)), adata[names].X)
        found.add("".join(names))
    (first,) = found
    assert first.index("b") == first.index("d") - 1 and first.endswith("c")
    # Other names order equal cells alone.
    adata.obs_names = list("dcba")
    order = read_tissue(adata)[0].order()
    assert "".join("abcd"[n] for n in order).translate({100: "b"}) == first.translate({100: "b"})


def test_what_is_hidden_orders_no_cells() -> None:
    """Cells that differ in a hidden count alone are equal, and names tell them apart."""
    adata = alike()
    adata.layers["hidden"] = np.tile([True, False, False], (4, 1))
    for first in (9, 50, 1):
        adata.X[:, 0] = [1, first, 7, 2]
        adata.X[0, 1] = 9
        tissue, _ = read_tissue(adata, hidden_layer="hidden")
        assert "".join(tissue.names[tissue.order()]) == "abdc"


def test_containers_and_types_of_counts() -> None:
    """Sparse or not, in any type, in parts and with stored zeros: the same counts, and alone."""
    adata = made(20, 6).adata
    counts = adata.X.toarray()
    twice = (np.hstack([counts - 1, np.ones_like(counts)]).ravel(), np.tile(np.arange(6), 40))
    parts = scipy.sparse.csr_matrix((*twice, 12 * np.arange(21)), shape=counts.shape)
    kept, expected = parts.copy(), read_tissue(adata)[0]
    for values in (
        *(counts.astype(kind) for kind in (np.uint8, np.uint16, np.int64, np.float16, float)),
        scipy.sparse.csr_matrix(counts, dtype=np.uint16),
        scipy.sparse.csc_matrix(counts, dtype=np.int64),
        scipy.sparse.csr_array(counts, dtype=np.float32),
        parts,
    ):
        adata.layers["raw"] = values
        tissue, _ = read_tissue(adata, layer="raw")
        assert tissue.digest_of_counts() == expected.digest_of_counts()
        np.testing.assert_array_equal(tissue.order(), expected.order())
        np.testing.assert_array_equal(tissue.shares(), expected.shares())
    np.testing.assert_array_equal(parts.data, kept.data)
    adata.layers["raw"] = counts > 0
    np.testing.assert_array_equal(
        read_tissue(adata, layer="raw")[0].totals(np.ones(6)), (counts > 0).sum(1)
    )


def test_sums_of_many_counts_are_exact() -> None:
    """Of float32, in which 2^24 + 1 is 2^24."""
    counts = np.array([[2**24, 1], [1, 1], [1, 2]], np.float32)
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts))
    adata.obsm["spatial"] = np.eye(3)[:, :2]
    tissue, _ = read_tissue(adata)
    np.testing.assert_array_equal(tissue.totals(tissue.shares()), [2**24 + 1, 2, 3])
    np.testing.assert_array_equal(tissue.shares(), np.array([2**24 + 2, 4]) / (2**24 + 6))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_places_that_differ_by_rounding_alone(kind: Any) -> None:
    """As equal ones are; far from zero that is more than near to it."""
    adata = made(30).adata
    for place, step in ((14.62, 0.0), (14.62, 3.0), (1e7, 0.0), (1e7, 2.0)):
        places = np.full((30, 2), place, kind)
        places[::3] += kind(step) * np.spacing(kind(place))
        adata.obsm["spatial"] = places
        with pytest.raises(ValueError, match="30 cells are at the same place, up to rounding"):
            Coordinates.of(read_tissue(adata)[0])
    adata.obsm["spatial"] = np.array([[1e7, 48.85]], float) + 1e-3 * np.eye(30)[:, :2]
    assert Coordinates.of(read_tissue(adata)[0]).unit == pytest.approx(
        1e-3 * np.sqrt(2 / 30 * 29 / 30), rel=1e-5
    )


def test_a_far_origin_changes_nothing() -> None:
    adata = made(30, num_slices=2).adata
    tissue, _ = read_tissue(adata, slice_key="slice")
    adata.obsm["spatial"] = adata.obsm["spatial"] + 1e7
    other, _ = read_tissue(adata, slice_key="slice")
    np.testing.assert_array_equal(other.order(), tissue.order())
    one, two = (Coordinates.of(t).inputs(t.places, t.slices) for t in (tissue, other))
    np.testing.assert_allclose(one, two, atol=1e-10)


def test_cells_whose_counts_are_hidden_are_named() -> None:
    adata = made(30).adata
    hidden = np.zeros(adata.shape, bool)
    hidden[[4, 9]] = True
    hidden[9, 3] = False
    adata.X[9, 3] = 0
    adata.layers["hidden"] = hidden
    with pytest.raises(ValueError, match=r"All counts of 2 cells \(cell 4, cell 9\) are hidden by"):
        read_tissue(adata, hidden_layer="hidden")
    assert read_tissue(adata)[0].num_cells == 30
    adata.layers["hidden"] = 0.5 * hidden
    with pytest.raises(ValueError, match=r"'hidden'\] holds 47 values that are neither True nor"):
        read_tissue(adata, hidden_layer="hidden")


def test_names_that_are_missing_or_repeated() -> None:
    adata = made(30).adata
    adata.obs["sample"] = ["A", None, np.nan] + 27 * ["B"]
    for values in (adata.obs["sample"], adata.obs["sample"].astype("category")):
        adata.obs["sample"] = values
        for known in (None, ["A", "B"]):
            with pytest.raises(ValueError, match=r"no slice of 2 cells \(cell 1, cell 2\)"):
                read_tissue(adata, slice_key="sample", slices=known)
        # Nor are they a group, or of all others.
        first, second = groups_of(adata, "sample", "A", None)
        assert list(first) == [0] and list(second) == list(range(3, 30))
        with pytest.raises(ValueError, match="group1 is 'nan'.* has A, B"):
            groups_of(adata, "sample", "nan", None)
    adata.var_names = ["gene 5", "gene 5", "gene 5", *adata.var_names[3:]]
    with pytest.raises(ValueError, match=r"1 names of several genes \(gene 5\): call adata.var_na"):
        read_tissue(adata)


def test_places_that_are_no_numbers() -> None:
    adata = made(30).adata
    for places in (np.full((30, 2), "12.5"), np.full((30, 2), 1j), np.full((30, 2), "a", object)):
        adata.obsm["spatial"] = places
        with pytest.raises(ValueError, match=r"adata.obsm\['spatial'\] is no array of numbers"):
            read_tissue(adata)


def test_a_column_that_the_fit_had_is_asked_for() -> None:
    adata = made(10).adata
    with pytest.raises(ValueError, match="no column 'donor'.* the fit has it as batch_key, so"):
        categories_of(adata, "donor", ["a"], argument="batch_key", noun="batch", plural="batches")
