"""Cells of new slices, under the parameters of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpflow_bae.spatial import SpatialBAE, SpatialPlan
from tests.spatial.tissues import made_batches

PLAN = SpatialPlan(likelihood="nb", num_inducing=20, num_restarts=1, num_draws=2, space_first=0.0)


@pytest.fixture(scope="module")
def fitted() -> tuple[SpatialBAE, Any]:
    """Slices of two donors, and a fit of few steps."""
    adata = made_batches(80, effect=0.0)
    options: dict[str, Any] = {"batch_key": "donor", "num_steps": 60, "progress": False}
    return SpatialBAE(1, 1, plan=PLAN, denoise=False, **options).fit(adata), adata


def test_cells_of_the_fit_have_the_codes_of_the_fit(fitted: tuple[SpatialBAE, Any]) -> None:
    """As a new slice, in another order, with genes in another order, and beside another slice."""
    model, adata = fitted
    rng = np.random.default_rng(0)
    rows, genes = rng.permutation(80), rng.permutation(30)
    new = adata[rows, genes].copy()
    del new.obsm["X_gpbae"]
    model.map_slices(new)
    for name in ("X_gpbae", "X_gpbae_sd"):
        np.testing.assert_allclose(new.obsm[name], adata.obsm[name][rows], atol=1e-4)
    # Donors are equal here but for chance, which few steps do not learn.
    model.map_slices(new, covariates="average")
    found = np.corrcoef(new.obsm["X_gpbae"].T, adata.obsm["X_gpbae"][rows].T)
    assert min(found[0, 2], found[1, 3]) > 0.9


def test_new_cells_with_fewer_genes(fitted: tuple[SpatialBAE, Any]) -> None:
    """Codes of a part of the genes are less sure, and about those of all; others are left out."""
    model, adata = fitted
    some = adata[:, [f"gene {p}" for p in range(20)]].copy()
    some.var_names = [*some.var_names[:18], "another", "one more"]
    model.map_slices(some)
    found = np.corrcoef(some.obsm["X_gpbae"].T, adata.obsm["X_gpbae"].T)
    assert min(found[0, 2], found[1, 3]) > 0.6
    with pytest.raises(ValueError, match=r"adata has 10 of the fit's 30 genes .* least half"):
        model.map_slices(adata[:, :10].copy())


def test_new_cells_that_are_refused_or_warned_of(fitted: tuple[SpatialBAE, Any]) -> None:
    model, adata = fitted
    new = adata.copy()
    new.obs["donor"] = "another"
    with pytest.raises(ValueError, match=r"batches that the model was not fitted to \(another\)"):
        model.map_slices(new)
    with pytest.raises(ValueError, match="covariates"):
        model.map_slices(new, covariates="none")  # type: ignore[arg-type]
    new = adata.copy()
    new.obsm["spatial"] = 0.01 * new.obsm["spatial"]
    new.X = scipy.sparse.csr_matrix(new.X * 20)
    with pytest.warns(UserWarning) as said:
        model.map_slices(new)
    words = " ".join(str(warning.message) for warning in said)
    assert "A new slice is 0.01 times as wide as those of the fit" in words
    assert "These cells have a median size of 20, and the fit's cells have sizes from" in words
    with pytest.warns(UserWarning, match="a median size of 20, .* Are counts of the same tech"):
        model.log_density(new, num_draws=2)
    with pytest.raises(ValueError, match="has the genes of the fit in another order"):
        model.log_density(adata[:, ::-1])
    with pytest.raises(RuntimeError, match="not fitted yet"):
        SpatialBAE().map_slices(adata)
