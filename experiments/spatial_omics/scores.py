"""Scores of counts at places that were held back, and of domains."""

from __future__ import annotations

import numpy as np
from scipy import stats


def of_means(counts: np.ndarray, mean: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    """Scores of expected counts [N, P].

    Spearman's correlation over cells of rates and counts per size, of each gene, averaged over the
    genes that vary there (0 for a constant prediction); and the error of log(1 + rate).
    """
    rates, seen = mean / sizes[:, None], counts / sizes[:, None]
    varies = np.ptp(seen, axis=0) > 0
    found = []
    for p in np.flatnonzero(varies):
        constant = np.ptp(rates[:, p]) <= 1e-12 * np.max(rates[:, p])
        found.append(0.0 if constant else stats.spearmanr(rates[:, p], seen[:, p]).statistic)
    error = np.log1p(rates) - np.log1p(seen)
    return {
        "spearman": float(np.mean(found)),
        "rmse_log1p": float(np.sqrt(np.mean(np.square(error)))),
    }


def randomised_coverage(counts: np.ndarray, draws: np.ndarray, level: float, seed: int) -> float:
    """Share of counts in central intervals that hold exactly ``level`` where a model is right.

    Whole counts cannot be cut at a quantile: an interval that ends in one holds all of it. So that
    of a gene that is mostly 0 holds more than ``level``, whatever the model. Here a count lies at
    P(y' < y) + V P(y' = y) with V uniform on [0, 1] (Czado et al. 2009).

    :param counts: [N, P].
    :param draws: of the predictive distribution [S, N, P].
    """
    uniform = np.random.default_rng([seed, 0xC0]).uniform(size=counts.shape)
    # Counted among the draws, of which it would be one.
    below, equal = (draws < counts).sum(0), (draws == counts).sum(0) + 1
    place = (below + uniform * equal) / (len(draws) + 1)
    return float(np.mean(np.abs(place - 0.5) <= 0.5 * level))


def clusters(codes: np.ndarray, number: int, seed: int) -> np.ndarray:
    """k-means of codes [N, L] as they are, the best of ten starts."""
    from sklearn.cluster import KMeans

    found: np.ndarray = KMeans(number, n_init=10, random_state=seed).fit_predict(codes)
    return found


def adjusted_rand(labels: np.ndarray, found: np.ndarray) -> float:
    """Agreement of two partitions, 0 of chance and 1 of equal ones."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(labels, found))


def predictability(codes: np.ndarray, labels: np.ndarray) -> float:
    """Balanced accuracy of a linear classifier of labels from codes [N, L], in five folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    model = LogisticRegression(max_iter=1000)
    return float(cross_val_score(model, codes, labels, cv=5, scoring="balanced_accuracy").mean())


def discoveries(called: np.ndarray, truth: np.ndarray, delta: float) -> dict[str, float]:
    """False discoveries among genes called different [P], and the share of different ones found.

    :param truth: differences, base 2 logarithms.
    :param delta: those of at most it are none.
    """
    different = np.abs(truth) > delta
    return {
        "discoveries": float(called.sum()),
        "false_discoveries": float((called & ~different).sum() / max(called.sum(), 1)),
        "power": float((called & different).sum() / max(different.sum(), 1)),
    }


def power_of_ranking(score: np.ndarray, truth: np.ndarray, delta: float, fdr: float) -> float:
    """Share of different genes in the longest list of the first genes whose share of false ones is
    at most ``fdr``.

    :param score: genes with the highest come first [P].
    :param truth, delta: as in :func:`discoveries`.
    """
    different = (np.abs(truth) > delta)[np.argsort(-score, kind="stable")]
    found = np.cumsum(different)
    allowed = 1.0 - found / np.arange(1, len(found) + 1) <= fdr
    return float(np.max(found * allowed) / max(found[-1], 1))


def aligned_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of two embeddings [N, L], the second turned onto the first (Procrustes)."""
    from scipy.linalg import orthogonal_procrustes

    one, other = one - one.mean(0), other - other.mean(0)
    turn, _ = orthogonal_procrustes(other, one)
    return float(np.corrcoef(one.ravel(), (other @ turn).ravel())[0, 1])
