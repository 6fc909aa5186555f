"""The estimator, on made tissues whose rates are known."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from gpflow_bae import serving
from gpflow_bae.posteriors import Posterior
from gpflow_bae.spatial import SpatialBAE, SpatialPlan
from gpflow_bae.spatial.written import warn_of_empty_channels
from tests.spatial.tissues import Made, made

QUICK: dict[str, Any] = {"num_spatial": 2, "num_cell": 2, "progress": False}
PLAN = SpatialPlan(
    likelihood="nb", num_inducing=40, parameters="point", space_first=0.0, num_restarts=1
)


@pytest.fixture(scope="module")
def tissue() -> Made:
    return made()


@pytest.fixture(scope="module")
def fitted(tissue: Made) -> SpatialBAE:
    return SpatialBAE(**QUICK, plan=PLAN, num_steps=400).fit(tissue.adata)


def test_what_is_written(tissue: Made, fitted: SpatialBAE) -> None:
    adata = tissue.adata
    assert adata.obsm["X_gpbae"].shape == adata.obsm["X_gpbae_sd"].shape == (400, 4)
    assert (adata.obsm["X_gpbae_sd"] > 0).all()
    mean, lower, upper = (adata.layers[f"gpbae_{n}"] for n in ("mean", "lower", "upper"))
    assert mean.shape == (400, 24) and ((lower <= mean) & (mean <= upper)).mean() > 0.99
    record = adata.uns["gpbae"]
    assert len(record["lengthscales"]) == 2 and record["losses"][-1] < record["losses"][0]


def test_rates_are_denoised(tissue: Made, fitted: SpatialBAE) -> None:
    """Nearer to the truth than counts are, and than means of genes; intervals hold it mostly."""
    adata, rates = tissue.adata, tissue.rates
    found = np.log(adata.layers["gpbae_mean"])
    truth = np.log(rates)
    error = np.mean(np.square(found - truth))
    counts = adata.X.toarray() / tissue.sizes[:, None]
    assert error < 0.3 * np.mean(np.square(np.log(counts + 0.5) - truth))
    assert error < 0.3 * np.mean(np.square(truth - truth.mean(0)))


def test_intervals_of_rates(tissue: Made, fitted: SpatialBAE) -> None:
    """By moments of a hundred draws: the quantiles of two thousand, of a decoder that bends."""
    posterior = fitted.posterior_
    assert posterior is not None
    X = np.array(posterior.data.X[0])[:20]
    X[:, -2] = 1.0
    codes = posterior.code_samples(np.arange(20), 2000)[0]
    model: Any = posterior.model
    rates = np.exp(model.decode(np.broadcast_to(X, (2000, *X.shape)), codes))
    lower, upper = np.quantile(rates, [0.05, 0.95], 0)
    back = np.argsort(fitted._read(tissue.adata)[0].order())
    found = [tissue.adata.layers[f"gpbae_{name}"] for name in ("mean", "lower", "upper")]
    mean, low, high = (values[np.argsort(back)][:20] for values in found)
    # A spread by a hundred draws is good to 7 %: that of ends to 0.12 spreads, five of which here.
    spread = np.log(rates).std(0)
    for ours, theirs in ((low, lower), (high, upper)):
        assert np.mean(np.abs(np.log(ours / theirs)) / spread) < 0.25
        assert np.max(np.abs(np.log(ours / theirs)) / spread) < 0.8
    # Of lognormal draws, some as spread as 0.5: a hundred's mean to 5 %, the worst of 480 to 25 %.
    np.testing.assert_allclose(mean, rates.mean(0), rtol=0.25)


def test_channels_are_of_space_and_of_cells(tissue: Made, fitted: SpatialBAE) -> None:
    """A channel of space follows the wave, one of the cells tells their kinds."""
    codes = tissue.adata.obsm["X_gpbae"]
    wave = np.sin(tissue.adata.obsm["spatial"][:, 0] / 150.0)
    kind = tissue.adata.obs["kind"].to_numpy()

    def correlations(values: np.ndarray) -> list[float]:
        return [abs(np.corrcoef(channel, values)[0, 1]) for channel in codes.T]

    assert max(correlations(wave)[:2]) > 0.9
    assert max(correlations(kind)[2:]) > 0.8
    assert max(correlations(kind)[:2]) < 0.3


def test_denoised_counts_are_the_layers_of_some_genes(tissue: Made, fitted: SpatialBAE) -> None:
    """In the order of the genes that are asked for, and of the rows that are given."""
    adata = tissue.adata[::-1]
    found = fitted.denoised(adata, ["gene 5", "gene 2"])
    for name, values in found._asdict().items():
        expected = adata.layers[f"gpbae_{name}"][:, [5, 2]]
        np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert fitted.denoised(adata).mean.shape == (400, 24)
    with pytest.raises(ValueError, match="genes .'no gene'. are not of the fit's 24"):
        fitted.denoised(adata, ["no gene"])


def test_cells_that_were_not_seen(fitted: SpatialBAE) -> None:
    """Their counts are likelier given the place than under each gene's own best negative binomial,
    and 90 % intervals hold about as many.
    """
    other = made(seed=5)
    density = fitted.log_density(other.adata).mean()
    counts = other.adata.X.toarray()
    mean = other.rates.mean(0) * other.sizes[:, None]
    excess = np.square(counts - mean).mean(0) - mean.mean(0)
    number = np.square(mean).mean(0) / excess
    of_genes = stats.nbinom(number, number / (number + mean)).logpmf(counts).mean()
    assert density > of_genes + 0.02
    found = fitted.predict(other.adata.obsm["spatial"], fitted.sizes(other.adata))
    inside = (found.lower <= counts) & (counts <= found.upper)
    # Counts are whole, so intervals hold somewhat more than they should.
    assert 0.87 < inside.mean() < 0.97
    draws = fitted.sample(other.adata.obsm["spatial"], fitted.sizes(other.adata), num_samples=400)
    assert draws.shape == (400, *counts.shape)
    # Means of 400 draws, of cells and genes together.
    np.testing.assert_allclose(draws.mean(0).mean(0), found.mean.mean(0), rtol=0.05)
    truth = np.log(other.rates_of_places * other.sizes[:, None])
    assert np.corrcoef(np.log(found.mean).ravel(), truth.ravel())[0, 1] > 0.9


def test_a_saved_fit_says_the_same(fitted: SpatialBAE, tissue: Made, tmp_path: Any) -> None:
    fitted.save(tmp_path)
    again = SpatialBAE.load(tmp_path)
    places = tissue.adata.obsm["spatial"][:7] + 3.0
    for one, other in zip(fitted.predict(places, 2.0), again.predict(places, 2.0), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    density = fitted.log_density(tissue.adata[:5])
    np.testing.assert_allclose(again.log_density(tissue.adata[:5]), density, rtol=1e-5)
    # As if another save had been stopped after its first file.
    posterior = fitted.posterior_
    assert posterior is not None
    bank = dataclasses.replace(posterior.bank, seconds={"another": 1.0})
    Posterior(posterior.model, bank, posterior.data).save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match="is not what was saved with"):
        SpatialBAE.load(tmp_path)
    (tmp_path / "spatial.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        SpatialBAE.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no spatial.json"):
        SpatialBAE.load(tmp_path / "nowhere")


def test_slices_hidden_counts_and_zeros() -> None:
    """Several slices under one model, some counts hidden, a gene that nobody counted."""
    tissue = made(150, num_slices=2)
    adata = tissue.adata
    counts = adata.X.toarray()
    counts[:, 3] = 0
    adata.X = scipy.sparse.csr_matrix(counts)
    hidden = np.random.default_rng(0).uniform(size=counts.shape) < 0.1
    adata.layers["hidden"] = scipy.sparse.csr_matrix(hidden)
    model = SpatialBAE(**QUICK, slice_key="slice", hidden_layer="hidden", num_steps=60)
    model.fit(adata)
    assert model.slices_ == ["slice 0", "slice 1"]
    assert np.isfinite(adata.layers["gpbae_mean"]).all()
    assert len(adata.uns["gpbae"]["lengthscales"]) == 2
    assert model.posterior_ is not None
    X = model.posterior_.data.X[0]
    same = X[:, None, -1] == X[None, :, -1]
    for kernel in model.posterior_.model.latent_prior.kernels:
        np.testing.assert_array_equal(kernel(X) > 0.0, same)  # functions of their own
    assert adata.layers["gpbae_mean"][:, 3].max() < 0.5
    density = model.log_density(adata)
    np.testing.assert_array_equal(np.isnan(density), hidden)
    places = adata.obsm["spatial"][:4]
    with pytest.raises(ValueError, match="several slices"):
        model.predict(places)
    one, other = (model.predict(places, slices=name).mean for name in model.slices_)
    assert not np.allclose(one, other)
    with pytest.raises(ValueError, match=r"slices \['C'\] are not of the fit"):
        model.predict(places, slices="C")


def test_what_is_refused(fitted: SpatialBAE, tissue: Made) -> None:
    with pytest.raises(RuntimeError, match="not fitted yet"):
        SpatialBAE().predict(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="codes need a channel"):
        SpatialBAE(0, 0)
    with pytest.raises(ValueError, match="has the genes of the fit in another order: take adata"):
        fitted.log_density(tissue.adata[:, ::-1])
    with pytest.raises(ValueError, match=r"other genes than the fit \(2 differ, such as \['gene 0"):
        fitted.log_density(tissue.adata[:, 2:])
    for places in (np.zeros((2, 3)), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match="places must be finite"):
            fitted.predict(places)
    with pytest.raises(ValueError, match="sizes must be above 0"):
        fitted.predict(np.zeros((2, 2)), [1.0, 0.0])
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        fitted.predict(np.zeros((2, 2)), level=90)
    with pytest.raises(ValueError, match="num_steps"):
        SpatialBAE(num_steps=0)
    with pytest.raises(ValueError, match="at least two"):
        SpatialBAE().fit(tissue.adata[:1])
    assert fitted.posterior_ is not None
    with pytest.raises(ValueError, match=r"of a fitted SpatialBAE.*SpatialBAE.load\(folder\)"):
        serving.export(fitted.posterior_, "export")
    adata = tissue.adata.copy()
    adata.layers["hidden"] = np.arange(adata.n_vars) == np.full((adata.n_obs, 1), 3)
    with pytest.raises(
        ValueError, match=r"All counts of 1 genes, such as \['gene 3'\], are hidden"
    ):
        SpatialBAE(hidden_layer="hidden").fit(adata)


def test_an_error_leaves_the_data_as_they_were() -> None:
    adata = made(30).adata
    adata.obsm["spatial"][3] = np.nan
    before = (set(adata.obsm), set(adata.layers), set(adata.uns))
    with pytest.raises(ValueError, match="no place of 1 cells"):
        SpatialBAE(**QUICK).fit(adata)
    assert (set(adata.obsm), set(adata.layers), set(adata.uns)) == before


def test_empty_channels_are_said() -> None:
    with pytest.warns(
        UserWarning, match=r"1 of 2 channels of space and 1 of 3 of cells .*\[1, 4\]"
    ):
        warn_of_empty_channels(np.array([0.8, 0.04, 0.5, 0.3, 0.0]), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_empty_channels(np.array([0.8, 0.11]), 1)
