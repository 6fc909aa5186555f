"""Genes between groups and over space, on made tissues whose rates are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpflow_bae.spatial import NetworkPlan, SpatialBAE, SpatialPlan
from gpflow_bae.spatial.expression import (
    between_groups,
    false_discoveries,
    over_space,
    some_rows,
)
from tests.spatial.tissues import Made, made

QUICK: dict[str, Any] = {"num_spatial": 2, "num_cell": 2, "num_steps": 400, "progress": False}
PLAN = SpatialPlan(
    likelihood="nb",
    dispersion_power=False,
    num_inducing=30,
    parameters="point",
    networks=NetworkPlan(decoder_units=None),
    space_first=0.0,
    num_restarts=1,
)


@pytest.fixture(scope="module")
def tissue() -> Made:
    return made()


@pytest.fixture(scope="module")
def fitted(tissue: Made) -> SpatialBAE:
    return SpatialBAE(**QUICK, plan=PLAN).fit(tissue.adata)


def test_differences_between_groups(tissue: Made, fitted: SpatialBAE) -> None:
    """Near to the true ones, in what is counted of cells with as many counts in all, and genes with
    none are not called.
    """
    adata = tissue.adata
    table = fitted.differential_expression(adata, "kind", "1.0").loc[adata.var_names]
    first = (adata.obs["kind"] == 1.0).to_numpy()
    rates = tissue.rates * (tissue.sizes / fitted.sizes(adata))[:, None]
    truth = np.log2(rates[first].mean(0) / rates[~first].mean(0))
    away = table["lfc_mean"].to_numpy() - truth
    moderate = np.abs(truth) < 3.0  # priors shrink what is a matter of a hundred times
    # Bootstrapped over cells, so wider than the error; 2.5 deviations of about twenty genes.
    assert (np.abs(away) < 2.5 * table["lfc_sd"] + 0.1)[moderate].all()
    assert table["is_de"].to_numpy()[np.abs(truth) > 0.7].all()
    assert not table["is_de"].to_numpy()[np.abs(truth) < 0.1].any()
    np.testing.assert_allclose(
        np.log2(table["mean1"] / table["mean2"]), table["lfc_mean"], atol=0.05
    )
    against = fitted.differential_expression(adata, "kind", "-1.0", "1.0")
    found = against.loc[adata.var_names, "lfc_mean"]
    np.testing.assert_allclose(found, -table["lfc_mean"], atol=0.06)  # of 200 draws, others


def test_means_of_a_group_are_of_drawn_cells(fitted: SpatialBAE) -> None:
    """Moments of the logarithms against a gamma variate of each cell, in NumPy, for groups of two
    cells and of forty, whose averages have more and less of the cells' own variation.
    """
    posterior, draws = fitted.posterior_, 4000
    assert posterior is not None
    groups = [np.array([3, 70]), np.arange(100, 140)]
    found = between_groups(posterior, groups, draws, 5)
    rng, rows = np.random.default_rng(1), np.concatenate(groups)
    codes = posterior.code_samples(rows, draws, seed=5)[0]
    X, Y = posterior.data.X[0].numpy()[rows], posterior.data.Y[0].numpy()[rows]
    model: Any = posterior.model
    alpha = model.likelihood.dispersion.numpy()

    def rates(sizes: np.ndarray) -> np.ndarray:
        inputs = np.broadcast_to(np.insert(X[:, [0, 1, 3]], 2, sizes, 1), (draws, *X.shape))
        return np.exp(model.decode(inputs, codes).numpy())

    mean, of_median = rates(X[:, 2]), rates(np.ones(len(X)))
    own = rng.gamma(1.0 / alpha + Y, 1.0 / (1.0 / (alpha * mean) + 1.0)) * of_median / mean
    for drawn, part in zip(found, np.split(own, [2], 1), strict=True):
        weights = rng.dirichlet(np.ones(part.shape[1]), draws)
        expected = np.log(np.einsum("dn,dnp->dp", weights, part))
        # Five standard errors of a difference. One gamma variate for two cells that differ has
        # other tails, which an average of forty has not.
        error = expected.std(0) / np.sqrt(draws)
        assert (np.abs(np.log(drawn).mean(0) - expected.mean(0)) < 7.0 * error + 0.01).all()
        few = part.shape[1] == 2
        np.testing.assert_allclose(
            np.log(drawn).std(0), expected.std(0), rtol=0.12 if few else 0.06
        )


def test_genes_that_vary_over_space(tissue: Made, fitted: SpatialBAE) -> None:
    """Shares follow those that the tissue was made with."""
    table = fitted.spatial_genes().loc[tissue.adata.var_names]
    in_all = np.log(tissue.rates)
    wave = np.sin(tissue.adata.obsm["spatial"][:, 0] / 150.0)
    of_cells = in_all - np.stack([np.polyval(np.polyfit(wave, v, 1), wave) for v in in_all.T], 1)
    share = 1.0 - of_cells.var(0) / in_all.var(0)
    clear = in_all.std(0) > 0.3  # of the others a share is of next to nothing
    assert np.corrcoef(table["rate_share"][clear], share[clear])[0, 1] > 0.9
    assert np.corrcoef(table["spatial_sd"], np.sqrt(share) * in_all.std(0))[0, 1] > 0.8
    assert ((table["share_lower"] <= table["share"]) & (table["share"] <= 1.0)).all()


def test_shares_of_a_linear_decoder(fitted: SpatialBAE) -> None:
    """The variance of the spatial channels' sum over those of both sums, by NumPy."""
    posterior = fitted.posterior_
    assert posterior is not None
    codes = posterior.code_samples(None, 50)[0]  # [50, N, 4]
    # Of channels of space and the size, and of channels of cells.
    of_space, of_cells = sorted((v[0] for v in posterior.parameters if v.ndim == 3), key=len)[::-1]
    loadings = np.concatenate([of_space[:2], of_cells])
    space, cells = (codes[..., c] @ loadings[c] for c in (slice(0, 2), slice(2, 4)))
    share = (space.var(1) / (space.var(1) + cells.var(1))).mean(0)
    found = over_space(posterior, np.arange(400), 2, 50, 0)
    np.testing.assert_allclose(found["rate_share"].mean(0), share, atol=1e-4)  # float32
    np.testing.assert_allclose(found["spatial_sd"].mean(0), space.std(1).mean(0), rtol=1e-4)
    # Of counts: rates and their variances around them, cell by cell.
    bias = next(
        v[0] for v in posterior.parameters if v.shape[1:] == (24,) and v.dtype == np.float32
    )
    in_all = np.exp(space + cells + bias)
    np.testing.assert_allclose(found["mean"], in_all.mean(1), rtol=1e-3)
    smooth = np.exp(space) * (in_all.mean(1) / np.exp(space).mean(1))[:, None]
    dispersion = posterior.hyperparameters()[".likelihood.dispersion"][0]
    total = in_all.var(1) + (in_all + dispersion * in_all**2).mean(1)
    np.testing.assert_allclose(found["count_share"], smooth.var(1) / total, rtol=2e-3, atol=1e-5)


def test_expected_false_discoveries() -> None:
    """The mean of what probabilities leave, over a gene and the likelier ones."""
    probability = np.array([0.5, 0.99, 0.9, 0.2])
    expected = [(0.01 + 0.1 + 0.5) / 3, 0.01, 0.11 / 2, (0.01 + 0.1 + 0.5 + 0.8) / 4]
    np.testing.assert_allclose(false_discoveries(probability), expected)


def test_what_is_refused(tissue: Made, fitted: SpatialBAE) -> None:
    adata = tissue.adata
    for arguments, words in (
        (("sort", "1.0"), "no column 'sort'"),
        (("kind", "2.0"), "group1 is '2.0'"),
        (("kind", "1.0", "1.0"), "must be two groups"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted.differential_expression(adata, *arguments)
    with pytest.raises(ValueError, match="fdr between 0 and 1"):
        fitted.differential_expression(adata, "kind", "1.0", fdr=5.0)
    with pytest.raises(ValueError, match="delta must be above 0"):
        fitted.differential_expression(adata, "kind", "1.0", delta=0.0)
    with pytest.raises(ValueError, match="other cells than the 400 of the fit"):
        fitted.differential_expression(made(seed=3).adata, "kind", "1.0")
    with pytest.raises(ValueError, match="no channels that vary over space"):
        other = SpatialBAE(0, 2, num_steps=10, progress=False, plan=PLAN).fit(made(40).adata)
        other.spatial_genes()


def test_cells_that_are_compared_are_fewer_for_many_genes() -> None:
    """2000 of a group, or as many as have twenty million counts, and all of a small one."""
    rows = np.arange(100, 6100)
    sizes = [len(some_rows(rows, genes, 0)) for genes in (10, 10_000, 40_000)]
    assert sizes == [2000, 2000, 500]
    chosen = some_rows(rows, 40_000, 0)
    assert len(set(chosen)) == 500 and (np.diff(chosen) > 0).all() and set(chosen) <= set(rows)
    np.testing.assert_array_equal(some_rows(rows[:400], 40_000, 0), rows[:400])
