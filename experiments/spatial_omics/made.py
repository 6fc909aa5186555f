"""A made tissue whose genes differ between domains by amounts that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

DOMAINS = ("layer 1", "layer 2", "layer 3")
CELLS, GENES = 1300, 120
_TYPES = 4
_BATCH_EFFECT = 0.5  # standard deviation of logarithms of a batch's factors
_POPULATION = 40_000  # cells that true differences are means over


def made(seed: int, num_batches: int = 1, num_cells: int = CELLS, num_genes: int = GENES) -> Any:
    """Three layers, four types of cells in proportions that differ between them, and genes of which
    some differ between layers, some between types, and some follow a gradient.

    Counts are negative binomial. ``var["true_lfc"]`` is the base 2 logarithm of the ratio of mean
    rates of layer 1 and all others, over many more cells than there are. ``var["true_sd"]`` is the
    standard deviation over places of the logarithm of the mean rate there, over types of cells.
    Both are of cells with as many counts in all.

    :param num_batches: batches, ``obs["batch"]``, among which cells are dealt at random. A batch
        multiplies each gene's rate by a factor of its own, and has its own depth.
    """
    import anndata

    rng = np.random.default_rng([seed, 0x3ADE])
    base = rng.normal(0.0, 1.0, num_genes)
    of_layer = np.zeros((3, num_genes))
    of_layer[0, : num_genes // 3] = rng.normal(0.0, 0.6, num_genes // 3)
    second = slice(num_genes // 6, 5 * num_genes // 12)
    of_layer[1, second] = rng.normal(0.0, 0.6, second.stop - second.start)
    shape = (_TYPES, num_genes)
    of_type = np.where(rng.uniform(size=shape) < 0.2, rng.normal(0, 1, shape), 0.0)
    gradient = np.where(rng.uniform(size=num_genes) < 0.2, rng.normal(0.0, 0.5, num_genes), 0.0)
    shares = rng.dirichlet(np.full(_TYPES, 3.0), 3)
    dispersion = rng.uniform(0.1, 0.8, num_genes)

    def cells(number: int) -> tuple[np.ndarray, ...]:
        places = rng.uniform(0.0, 1000.0, (number, 2))
        edge = 60.0 * np.sin(places[:, 1] / 120.0)
        layer = np.digitize(places[:, 0] + edge, [330.0, 670.0])
        types = np.array([rng.choice(_TYPES, p=shares[v]) for v in layer])
        smooth = np.sin(places[:, 1:] / 250.0) * gradient
        of_place = np.exp(base + of_layer[layer] + smooth)
        return places, layer, of_place, of_place * np.exp(of_type[types])

    _, layer, of_place, rates = cells(_POPULATION)
    first = layer == 0
    # As models and tests see them: of cells with as many counts in all.
    rates = rates / rates.sum(1, keepdims=True)
    truth = np.log2(rates[first].mean(0) / rates[~first].mean(0))
    mean = np.zeros_like(rates)
    for share, change in zip(shares[layer].T, np.exp(of_type), strict=True):
        mean += share[:, None] * of_place * change / (of_place @ change)[:, None]
    places, layer, _, rates = cells(num_cells)
    rates = rates * np.exp(rng.normal(0.0, 0.3, (num_cells, 1)))
    of_batches = np.random.default_rng([seed, 0xBA7C])
    batch = of_batches.permutation(np.arange(num_cells) % num_batches)
    if num_batches > 1:
        effects = of_batches.normal(0.0, _BATCH_EFFECT, (num_batches, num_genes))
        rates = rates * np.exp(effects + _BATCH_EFFECT * np.arange(num_batches)[:, None])[batch]
    number = 1.0 / dispersion
    counts = rng.poisson(rates * rng.gamma(number, dispersion, rates.shape))
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts.astype(np.int32)))
    adata.obs_names = [f"cell {n}" for n in range(num_cells)]
    adata.var_names = [f"gene {p}" for p in range(num_genes)]
    adata.obsm["spatial"] = places
    adata.obs["slice"] = "one"
    if num_batches > 1:
        adata.obs["batch"] = [f"batch {b}" for b in batch]
    adata.obs["domain"] = np.array(DOMAINS)[layer]
    adata.obs["held_out_location"] = rng.uniform(size=num_cells) < 0.1
    adata.var["true_lfc"] = truth
    adata.var["true_sd"] = np.log(mean).std(0)
    return adata
