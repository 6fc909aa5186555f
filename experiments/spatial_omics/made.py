"""A made tissue whose genes differ between domains by amounts that are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

DOMAINS = ("layer 1", "layer 2", "layer 3")
CELLS, GENES = 1300, 120
_TYPES = 4
_BATCH_EFFECT = 0.5  # standard deviation of logarithms of a batch's factors
_POPULATION = 40_000  # cells that true differences are means over
_AT_ONCE = 20_000_000  # rates that are made together
DEPTH = 500.0  # most counts of a median cell, roughly: those of a bin of a few micrometres
_MOST_HELD = 500  # cells that are held back, roughly, of a large tissue


def made(seed: int, num_batches: int = 1, num_cells: int = CELLS, num_genes: int = GENES) -> Any:
    """Three layers, four types of cells in proportions that differ between them, and genes of which
    some differ between layers, some between types, and some follow a gradient.

    Counts are negative binomial. ``var["true_lfc"]`` is the base 2 logarithm of the ratio of mean
    rates of layer 1 and all others, over many more cells than there are. ``var["true_sd"]`` is the
    standard deviation over places of the logarithm of the mean rate there, over types of cells.
    Both are of cells with as many counts in all. ``layers["true_rate"]``, of tissues that are made
    in one block, has the rates at the cells' places, before types, sizes and batches.

    :param num_batches: batches, ``obs["batch"]``, among which cells are dealt at random. A batch
        multiplies each gene's rate by a factor of its own, and has its own depth.
    :param num_cells, num_genes: of more than 250 genes a cell counts no more in all; of more than
        5000 cells some 500 are held back, of others a tenth.
    """
    import anndata

    rng = np.random.default_rng([seed, 0x3ADE])
    base = rng.normal(0.0, 1.0, num_genes) - max(0.0, np.log(2.0 * num_genes / DEPTH))
    of_layer = np.zeros((3, num_genes))
    of_layer[0, : num_genes // 3] = rng.normal(0.0, 0.6, num_genes // 3)
    second = slice(num_genes // 6, 5 * num_genes // 12)
    of_layer[1, second] = rng.normal(0.0, 0.6, second.stop - second.start)
    shape = (_TYPES, num_genes)
    of_type = np.where(rng.uniform(size=shape) < 0.2, rng.normal(0, 1, shape), 0.0)
    gradient = np.where(rng.uniform(size=num_genes) < 0.2, rng.normal(0.0, 0.5, num_genes), 0.0)
    shares = rng.dirichlet(np.full(_TYPES, 3.0), 3)
    dispersion = rng.uniform(0.1, 0.8, num_genes)
    at_once = max(1, _AT_ONCE // num_genes)

    def blocks(number: int) -> Iterator[tuple[np.ndarray, ...]]:
        for start in range(0, number, at_once):
            size = min(at_once, number - start)
            places = rng.uniform(0.0, 1000.0, (size, 2))
            edge = 60.0 * np.sin(places[:, 1] / 120.0)
            layer = np.digitize(places[:, 0] + edge, [330.0, 670.0])
            types = np.array([rng.choice(_TYPES, p=shares[v]) for v in layer])
            smooth = np.sin(places[:, 1:] / 250.0) * gradient
            of_place = np.exp(base + of_layer[layer] + smooth)
            yield places, layer, of_place, of_place * np.exp(of_type[types])

    # Truths are as models and tests see them: of cells with as many counts in all.
    sums, sizes, logs = np.zeros((2, num_genes)), np.zeros(2), []
    for _, layer, of_place, rates in blocks(_POPULATION):
        rates = rates / rates.sum(1, keepdims=True)
        for group, chosen in enumerate((layer == 0, layer != 0)):
            sums[group] += rates[chosen].sum(0)
            sizes[group] += chosen.sum()
        mean = np.zeros_like(rates)
        for share, change in zip(shares[layer].T, np.exp(of_type), strict=True):
            mean += share[:, None] * of_place * change / (of_place @ change)[:, None]
        logs.append([np.log(mean).sum(0), np.square(np.log(mean)).sum(0)])
    truth = np.log2((sums[0] / sizes[0]) / (sums[1] / sizes[1]))
    first, second_moment = np.sum(logs, 0) / _POPULATION
    of_batches = np.random.default_rng([seed, 0xBA7C])
    batch = of_batches.permutation(np.arange(num_cells) % num_batches)
    effects = np.zeros((1, num_genes))
    if num_batches > 1:
        effects = of_batches.normal(0.0, _BATCH_EFFECT, (num_batches, num_genes))
        effects += _BATCH_EFFECT * np.arange(num_batches)[:, None]
    found, number = [], 1.0 / dispersion
    for places, layer, of_place, rates in blocks(num_cells):
        own = batch[len(found) * at_once :][: len(places)]
        rates = rates * np.exp(rng.normal(0.0, 0.3, (len(places), 1))) * np.exp(effects)[own]
        counts = rng.poisson(rates * rng.gamma(number, dispersion, rates.shape))
        kept = of_place if num_cells <= at_once else None
        found.append((places, layer, kept, scipy.sparse.csr_matrix(counts.astype(np.int32))))
    places, layer = (np.concatenate([block[i] for block in found]) for i in (0, 1))
    adata = anndata.AnnData(scipy.sparse.vstack([block[3] for block in found], format="csr"))
    if len(found) == 1:
        adata.layers["true_rate"] = found[0][2]
    adata.obs_names = [f"cell {n}" for n in range(num_cells)]
    adata.var_names = [f"gene {p}" for p in range(num_genes)]
    adata.obsm["spatial"] = places
    adata.obs["slice"] = "one"
    if num_batches > 1:
        adata.obs["batch"] = [f"batch {b}" for b in batch]
    adata.obs["domain"] = np.array(DOMAINS)[layer]
    adata.obs["held_out_location"] = rng.uniform(size=num_cells) < min(0.1, _MOST_HELD / num_cells)
    adata.var["true_lfc"] = truth
    adata.var["true_sd"] = np.sqrt(second_moment - np.square(first))
    return adata
