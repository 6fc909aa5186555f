"""Made tissues with known rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

anndata = pytest.importorskip("anndata", reason="anndata is not installed (extra spatial)")


class Made(NamedTuple):
    """Cells, the rates [N, P] that their counts have been drawn with, at size 1, and what those are
    at the place on average over kinds of cells.
    """

    adata: Any
    rates: np.ndarray
    sizes: np.ndarray
    rates_of_places: np.ndarray


def made(number: int = 400, num_genes: int = 24, seed: int = 0, num_slices: int = 1) -> Made:
    """Genes that vary over space, as a wave along x, and half of them with a type of the cell."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0.0, 1000.0, (number, 2))
    slices = np.arange(number) % num_slices
    wave = np.sin(places[:, 0] / 150.0 + slices)
    kind = rng.choice([-1.0, 1.0], number)
    loadings = np.random.default_rng(1).normal(size=(2, num_genes))
    loadings[1, num_genes // 2 :] = 0.0
    rates = np.exp(1.0 + 0.8 * wave[:, None] * loadings[0] + kind[:, None] * loadings[1])
    sizes = np.exp(rng.normal(0.0, 0.3, number))
    counts = rng.poisson(sizes[:, None] * rates * rng.gamma(5.0, 0.2, rates.shape))
    counts[counts.sum(1) == 0, 0] = 1
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts.astype(np.int32)))
    adata.obs_names = [f"cell {n}" for n in range(number)]
    adata.var_names = [f"gene {p}" for p in range(num_genes)]
    adata.obsm["spatial"] = places
    adata.obs["slice"] = [f"slice {s}" for s in slices]
    adata.obs["kind"] = kind
    of_places = np.exp(1.0 + 0.8 * wave[:, None] * loadings[0]) * np.cosh(loadings[1])
    return Made(adata, rates, sizes, of_places)


def made_batches(
    number: int = 240, effect: float = 0.6, seed: int = 0, num_batches: int = 2
) -> Any:
    """Three layers and two kinds of cells, from batches that lie among each other.

    A batch multiplies the rate of each gene by a factor, whose logarithm has the standard deviation
    ``effect`` (``var["effect"]``, of the second batch over the first), and has its own depth. So
    does the age, half as much (``var["slope"]``, per year). Cells and random numbers are the same
    for all effects.
    """
    rng = np.random.default_rng([seed, 0xBA7C])
    genes = 30
    places = rng.uniform(0.0, 1000.0, (number, 2))
    layer = np.digitize(places[:, 0] + 60.0 * np.sin(places[:, 1] / 120.0), [330, 670])
    kind = rng.integers(0, 2, number)
    batch = rng.permutation(np.arange(number) % num_batches)
    log_rates = rng.normal(0.8, 0.6, genes) + rng.normal(0.0, 0.6, (3, genes))[layer]
    log_rates += (rng.normal(0.0, 0.7, (2, genes)) * (np.arange(genes) < 15))[kind]
    effects = effect * rng.normal(0.0, 1.0, (num_batches, genes))
    depth = effect * np.arange(num_batches)
    slopes, age = 0.5 * effect / 17.0 * rng.normal(0.0, 1.0, genes), rng.uniform(20.0, 80.0, number)
    log_rates += np.outer(age - 50.0, slopes)
    log_rates += effects[batch] + depth[batch, None] + rng.normal(0.0, 0.2, (number, 1))
    counts = rng.poisson(np.exp(log_rates) * rng.gamma(3.0, 1.0 / 3.0, log_rates.shape))
    counts[counts.sum(1) == 0, 0] = 1
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts.astype(np.int32)))
    adata.var_names = [f"gene {p}" for p in range(genes)]
    adata.var["effect"] = effects[1] - effects[0]
    adata.var["slope"] = slopes
    adata.obsm["spatial"] = places
    adata.obs["layer"] = layer
    adata.obs["kind"] = kind
    adata.obs["age"] = age
    adata.obs["donor"] = np.array([f"donor {b}" for b in range(num_batches)])[batch]
    return adata
