"""A made tissue whose genes differ between domains by amounts that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

DOMAINS = ("layer 1", "layer 2", "layer 3")
_CELLS, _GENES, _TYPES = 1300, 120, 4
_BATCH_EFFECT = 0.5  # standard deviation of logarithms of a batch's factors
_POPULATION = 40_000  # cells that true differences are means over


def made(seed: int, num_batches: int = 1) -> Any:
    """Three layers, four types of cells in proportions that differ between them, and genes of which
    some differ between layers, some between types, and some follow a gradient.

    Counts are negative binomial. ``var["true_lfc"]`` is the base 2 logarithm of the ratio of mean
    rates of layer 1 and all others, over many more cells than there are.

    :param num_batches: batches, ``obs["batch"]``, among which cells are dealt at random. A batch
        multiplies each gene's rate by a factor of its own, and has its own depth.
    """
    import anndata

    rng = np.random.default_rng([seed, 0x3ADE])
    base = rng.normal(0.0, 1.0, _GENES)
    of_layer = np.zeros((3, _GENES))
    of_layer[0, :40] = rng.normal(0.0, 0.6, 40)
    of_layer[1, 20:50] = rng.normal(0.0, 0.6, 30)
    of_type = np.where(rng.uniform(size=(_TYPES, _GENES)) < 0.2, rng.normal(0, 1, (4, _GENES)), 0.0)
    gradient = np.where(rng.uniform(size=_GENES) < 0.2, rng.normal(0.0, 0.5, _GENES), 0.0)
    shares = rng.dirichlet(np.full(_TYPES, 3.0), 3)
    dispersion = rng.uniform(0.1, 0.8, _GENES)

    def cells(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        places = rng.uniform(0.0, 1000.0, (number, 2))
        edge = 60.0 * np.sin(places[:, 1] / 120.0)
        layer = np.digitize(places[:, 0] + edge, [330.0, 670.0])
        types = np.array([rng.choice(_TYPES, p=shares[v]) for v in layer])
        smooth = np.sin(places[:, 1:] / 250.0) * gradient
        return places, layer, np.exp(base + of_layer[layer] + of_type[types] + smooth)

    _, layer, rates = cells(_POPULATION)
    first = layer == 0
    # As models and tests see them: of cells with as many counts in all.
    rates = rates / rates.sum(1, keepdims=True)
    truth = np.log2(rates[first].mean(0) / rates[~first].mean(0))
    places, layer, rates = cells(_CELLS)
    rates = rates * np.exp(rng.normal(0.0, 0.3, (_CELLS, 1)))
    of_batches = np.random.default_rng([seed, 0xBA7C])
    batch = of_batches.permutation(np.arange(_CELLS) % num_batches)
    if num_batches > 1:
        effects = of_batches.normal(0.0, _BATCH_EFFECT, (num_batches, _GENES))
        rates = rates * np.exp(effects + _BATCH_EFFECT * np.arange(num_batches)[:, None])[batch]
    number = 1.0 / dispersion
    counts = rng.poisson(rates * rng.gamma(number, dispersion, rates.shape))
    adata = anndata.AnnData(scipy.sparse.csr_matrix(counts.astype(np.int32)))
    adata.obs_names = [f"cell {n}" for n in range(_CELLS)]
    adata.var_names = [f"gene {p}" for p in range(_GENES)]
    adata.obsm["spatial"] = places
    adata.obs["slice"] = "one"
    if num_batches > 1:
        adata.obs["batch"] = [f"batch {b}" for b in batch]
    adata.obs["domain"] = np.array(DOMAINS)[layer]
    adata.obs["held_out_location"] = rng.uniform(size=_CELLS) < 0.1
    adata.var["true_lfc"] = truth
    return adata
