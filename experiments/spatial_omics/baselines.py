"""Means of genes and of neighbours, as negative binomials, and principal components of the means.

Numbers of neighbours are chosen on the training cells, without labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse, stats
from scipy.spatial import cKDTree

NUMBERS = (10, 30, 100)
PSEUDO_CELLS = (0.1, 3.0, 10.0, 30.0, 100.0)
NICHES = (10, 25, 50, 100)
_COMPONENTS = 30


class Predicted(NamedTuple):
    """Expected counts [N, P] of new cells, and of those that were fitted to given the others; the
    genes' numbers r (variance mu + mu^2 / r) [P], and what was chosen.
    """

    mean: np.ndarray
    of_fitted: np.ndarray
    number: np.ndarray
    chosen: dict[str, float]


def log_density(counts: np.ndarray, mean: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Log density of a negative binomial with mean mu and variance mu + mu^2 / r, elementwise."""
    found: np.ndarray = stats.nbinom.logpmf(counts, number, number / (number + mean))
    return found


def _numbers(counts: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The likeliest r of each gene."""
    found = np.zeros(counts.shape[1])
    for p in range(counts.shape[1]):

        def loss(log_number: float, p: int = p) -> float:
            return -float(np.nansum(log_density(counts[:, p], mean[:, p], np.exp(log_number))))

        best = optimize.minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded")
        found[p] = np.exp(best.x)
    return found


def gene_mean(counts: np.ndarray, sizes: np.ndarray, new_sizes: np.ndarray) -> Predicted:
    """Every cell alike, but for its size.

    :param counts: [N, P], NaN where hidden.
    """
    rates = np.nansum(counts, 0) / _seen(counts, sizes).sum(0)
    mean = sizes[:, None] * rates
    return Predicted(new_sizes[:, None] * rates, mean, _numbers(counts, mean), {})


def _seen(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sizes of cells [N, P], 0 where a count is hidden."""
    found: np.ndarray = ~np.isnan(counts) * sizes[:, None]
    return found


def neighbours(
    places: np.ndarray,
    counts: np.ndarray,
    sizes: np.ndarray,
    new_places: np.ndarray,
    new_sizes: np.ndarray,
) -> Predicted:
    """Means over the nearest cells, and so many pseudo-cells at the genes' means.

    Both numbers are those under which training cells are likeliest given the other ones.

    :param counts: [N, P], NaN where hidden.
    """
    filled, seen = np.nan_to_num(counts), _seen(counts, sizes)
    rates, tree, best = filled.sum(0) / seen.sum(0), cKDTree(places), None

    def around(where: np.ndarray, k: int, own: bool, pseudo: float) -> np.ndarray:
        found = tree.query(where, k + own)[1][:, int(own) :]
        total = filled[found].sum(1) + pseudo * rates
        return np.maximum(total / (seen[found].sum(1) + pseudo), 1e-9)

    for k in (k for k in NUMBERS if k < len(places)):
        for pseudo in PSEUDO_CELLS:
            mean = sizes[:, None] * around(places, k, True, pseudo)
            number = _numbers(counts, mean)
            score = float(np.nanmean(log_density(counts, mean, number)))
            if best is None or score > best[0]:
                best = (score, k, pseudo, mean, number)
    assert best is not None
    _, k, pseudo, own, number = best
    mean = new_sizes[:, None] * around(new_places, k, False, pseudo)
    return Predicted(mean, own, number, {"neighbours": float(k), "pseudo_cells": pseudo})


def niche_pca(
    places: np.ndarray, counts: np.ndarray, sizes: np.ndarray, slices: np.ndarray
) -> tuple[np.ndarray, int]:
    """Principal components [N, at most 30] of log rates averaged over a cell and its neighbours.

    As NichePCA (Schaub et al. 2025), with numbers of neighbours that it names. That is taken from
    which the mean over the neighbours, without the cell itself, has the least squared error of the
    cell's log rates. Neighbours are of the same slice, and slices are centred.

    :param counts: [N, P].
    :param slices: name of each cell's slice [N].
    :return: the components, and the number of neighbours.
    """
    logs = np.log1p(counts / sizes[:, None])
    near = np.zeros((len(logs), NICHES[-1] + 1), int)
    for name in np.unique(slices):
        rows = np.flatnonzero(slices == name)
        if len(rows) <= NICHES[-1]:
            raise ValueError(f"Slice {name} has {len(rows)} cells; niche_pca needs more than 100.")
        near[rows] = rows[cKDTree(places[rows]).query(places[rows], NICHES[-1] + 1)[1]]
        logs[rows] -= logs[rows].mean(0)
    sums = np.stack([logs[near[:, 1 : k + 1]].sum(1) for k in NICHES])
    errors = [np.mean(np.square(logs - total / k)) for total, k in zip(sums, NICHES, strict=True)]
    best = int(np.argmin(errors))
    means = (sums[best] + logs) / (NICHES[best] + 1)
    left, scales, _ = np.linalg.svd(means - means.mean(0), full_matrices=False)
    return (left * scales)[:, :_COMPONENTS], NICHES[best]


def rank_sums(counts: np.ndarray, first: np.ndarray, delta: float, fdr: float) -> np.ndarray:
    """Which genes differ between two groups of cells [P], as it is commonly asked.

    By Wilcoxon's rank sums of log(1 + count / size), with the false discovery rate controlled as
    Benjamini and Hochberg do; and by the base 2 logarithm of the ratio of means, above ``delta``.

    :param first: which cells are of the first group [N].
    """
    rates = counts / (counts.sum(1, keepdims=True) / np.median(counts.sum(1)))
    values = stats.ranksums(np.log1p(rates[first]), np.log1p(rates[~first])).pvalue
    adjusted = stats.false_discovery_control(values)
    change = np.log2(rates[first].mean(0) + 1e-9) - np.log2(rates[~first].mean(0) + 1e-9)
    found: np.ndarray = (adjusted <= fdr) & (np.abs(change) > delta)
    return found


def moran(places: np.ndarray, counts: np.ndarray, number: int) -> np.ndarray:
    """One-sided p-values [P] of Moran's I of log(1 + count / size), by its normal moments.

    Weights are equal, of each cell's nearest neighbours (Cliff and Ord 1981, under normality).

    :param counts: [N, P].
    :param number: number of neighbours.
    """
    N = len(places)
    near = cKDTree(places).query(places, number + 1)[1][:, 1:].ravel()
    rows = np.repeat(np.arange(N), number)
    weights = sparse.csr_matrix((np.full(N * number, 1.0 / number), (rows, near)), (N, N))
    logs = np.log1p(counts / (counts.sum(1, keepdims=True) / np.median(counts.sum(1))))
    centred = logs - logs.mean(0)
    found = (centred * (weights @ centred)).sum(0) / np.square(centred).sum(0)
    # The sum of the weights is N.
    first = 0.5 * (weights + weights.T).power(2).sum()
    second = np.square(1.0 + np.asarray(weights.sum(0)).ravel()).sum()
    mean = -1.0 / (N - 1)
    variance = (N**2 * first - N * second + 3.0 * N**2) / (N**2 * (N**2 - 1.0)) - mean**2
    p_values: np.ndarray = stats.norm.sf((found - mean) / np.sqrt(variance))
    return p_values
