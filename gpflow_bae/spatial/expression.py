"""Differences of gene expression between groups, and its variance over space, with tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..core.tracing import compiled
from ..likelihoods import CountLikelihood
from ..posteriors import Posterior
from .covariates import reference_inputs
from .tissue import named

__all__ = [
    "between_groups",
    "check_not_apart",
    "false_discoveries",
    "groups_of",
    "over_space",
    "some_rows",
    "table_of_groups",
    "table_of_space",
]

_INTERVAL = [0.05, 0.95]
_BYTES = 64 * 2**20  # bytes of expected counts in memory at a time
_MOST_CELLS = 2000  # cells of a group; more would hardly change the result
_MOST_COUNTS = 20_000_000  # and counts of their genes, by which time and memory grow


def groups_of(
    adata: Any, groupby: str, group1: str | int, group2: str | int | None
) -> list[np.ndarray]:
    """Return the indices of the cells of two groups; None is the group of all others.

    Cells without a name (NaN) are in neither.

    :raises ValueError: for a missing column or group, and the same group twice.
    """
    if groupby not in adata.obs:
        raise ValueError(
            f"adata.obs has no column {groupby!r}, only {sorted(adata.obs)}: set groupby to one."
        )
    has_name = adata.obs[groupby].notna().to_numpy()
    names = adata.obs[groupby].astype(str).to_numpy()
    known = sorted(set(names[has_name]))
    for argument, name in (("group1", group1), ("group2", group2)):
        all_others = name is None and argument == "group2"
        if str(name) not in known and not all_others:
            raise ValueError(
                f"{argument} is {name!r}, and adata.obs[{groupby!r}] has {named(known)}."
            )
    first = has_name & (names == str(group1))
    second = has_name & (~first if group2 is None else names == str(group2))
    if not second.any() or (first & second).any():
        raise ValueError(
            f"group1={group1!r} and group2={group2!r} must be two groups of adata.obs"
            f"[{groupby!r}], which has {named(known)}."
        )
    return [np.flatnonzero(first), np.flatnonzero(second)]


def check_not_apart(
    adata: Any, groups: list[np.ndarray], groupby: str, name: str, key: str | None
) -> None:
    """Check that two groups have a slice, or a batch, in common.

    A slice has a level of its own for each gene and a batch its own effect, and both are left out
    of a comparison: of groups that share none it would say that they hardly differ.

    :param groups: indices of the cells of each.
    :param name, key: the setting of the fit, and its column of ``adata.obs``, if any.
    :raises ValueError: if they have none in common.
    """
    if key is None:
        return
    first, second = (sorted(set(adata.obs[key].astype(str).to_numpy()[v])) for v in groups)
    if not set(first) & set(second):
        raise ValueError(
            f"The two groups of {groupby!r} have no value of {key!r} ({name} of the fit) in common:"
            f" {named(first)} and {named(second)}. What differs between these is fitted as their "
            "own level of each gene, and left out here. Compare sums of counts of several samples "
            "for each group instead (a pseudobulk test)."
        )


def some_rows(rows: np.ndarray, num_genes: int, seed: int) -> np.ndarray:
    """Draw at most 2000 of the rows at random, fewer for above 10,000 genes, in their order."""
    most = min(_MOST_CELLS, max(1, _MOST_COUNTS // num_genes))
    if len(rows) <= most:
        return rows
    rng = np.random.default_rng([seed, 0xDE])
    return np.sort(rng.choice(rows, most, replace=False))


def _map_draws(
    posterior: Posterior, function: Any, codes: np.ndarray, size: int, *more: np.ndarray
) -> Iterator[Any]:
    """Yield ``function(model at a sample, codes [d, n, L], *more)`` for chunks of draws.

    :param codes: code draws of each posterior sample [S, D, n, L].
    :param size: bytes of the rates of one draw.
    :param more: further values of each draw [S, D, ...].
    """
    call = compiled(lambda values, *rest: function(posterior.model.bind(values), *rest))
    at_once = max(1, _BYTES // size)
    for s in range(len(codes)):
        values = [tf.constant(v[s]) for v in posterior.parameters]
        for start in range(0, codes.shape[1], at_once):
            chunk = slice(start, start + at_once)
            found = call(values, *(tf.constant(v[s][chunk]) for v in (codes, *more)))
            yield tf.nest.map_structure(lambda v: v.numpy(), found)


def _broadcast(values: np.ndarray, codes: tf.Tensor) -> tf.Tensor:
    """Broadcast values [n, ...] to [d, n, ...]."""
    values = tf.constant(values)
    return tf.broadcast_to(values, tf.concat([tf.shape(codes)[:1], tf.shape(values)], 0))


def between_groups(
    posterior: Posterior,
    groups: Sequence[np.ndarray],
    num_draws: int,
    seed: int,
    num_covariates: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw mean rates [S D, P] of two groups, for cells of median size in the first slice.

    Covariates are average.

    A cell's rate given its codes has the posterior that its count leaves, so it includes variation
    that the codes do not explain. Cells are averaged with random weights (the Bayesian bootstrap of
    Rubin 1981), because the groups are samples of larger populations; so draws include the
    uncertainty due to the finite number of cells. An average over a group is drawn from the gamma
    distribution with its mean and variance: a draw for each cell would take most of the time.

    :param groups: rows of the cells of each group.
    :param num_draws: total over all posterior samples, at least one of each.
    :param num_covariates: number of columns of covariates in the inputs.
    """
    model, rows = posterior.model, np.concatenate(groups)
    assert isinstance(model.likelihood, CountLikelihood)
    codes = posterior.code_samples(rows, -(-num_draws // posterior.num_samples), seed=seed)
    batch = posterior.data.gather(tf.constant(rows))
    X, Y = (v[0].numpy() for v in batch[:2])
    seen = np.ones(Y.shape, bool) if batch.mask is None else batch.mask[0].numpy()
    reference = reference_inputs(X, num_covariates)

    rng = np.random.default_rng([seed, 0xB0])
    sizes = [len(group) for group in groups]

    def averages(bound: Any, codes: tf.Tensor, weights: tf.Tensor) -> Any:
        F = bound.decode(_broadcast(X, codes), codes)
        at_reference = bound.decode(_broadcast(reference, codes), codes)
        mean, variance = bound.likelihood.rate_moments(
            F, _broadcast(Y, codes), _broadcast(seen, codes)
        )
        scale = tf.exp(at_reference - F)
        found = []
        for w, m, v in zip(
            tf.split(tf.cast(weights, mean.dtype), sizes, -1),
            tf.split(scale * mean, sizes, 1),
            tf.split(tf.square(scale) * variance, sizes, 1),
            strict=True,
        ):
            found.append((tf.einsum("dn,dnp->dp", w, m), tf.einsum("dn,dnp->dp", tf.square(w), v)))
        return found

    means: list[list[np.ndarray]] = [[], []]
    weights = [rng.dirichlet(np.ones(size), codes.shape[:2]) for size in sizes]
    for found in _map_draws(posterior, averages, codes, 4 * Y.size, np.concatenate(weights, -1)):
        for drawn, (mean, variance) in zip(means, found, strict=True):
            drawn.extend(_gamma(rng, mean.astype(float), variance.astype(float)))
    return np.array(means[0]), np.array(means[1])


def _gamma(rng: np.random.Generator, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Draw from gamma distributions by mean and variance, which is zero of Poisson counts."""
    varies = variance > 0.0
    scale = np.where(varies, variance, 1.0) / mean
    return np.where(varies, rng.gamma(mean / scale, scale), mean)


def false_discoveries(probability: np.ndarray) -> np.ndarray:
    """Return the expected false discovery rate [P] among each gene and all more probable ones.

    It is the mean of one minus their probabilities (Newton et al. 2004).
    """
    order = np.argsort(-probability, kind="stable")
    share = np.cumsum(1.0 - probability[order]) / np.arange(1, len(order) + 1)
    found = np.empty(len(order))
    found[order] = share
    return found


def over_space(
    posterior: Posterior,
    rows: np.ndarray,
    num_spatial: int,
    num_draws: int,
    seed: int,
    num_covariates: int = 0,
) -> dict[str, np.ndarray]:
    """Return the variance over cells that spatial channels explain, for each draw [S D, P].

    The spatial part varies with the spatial channels while cell channels are at their mean, and
    reversely for the cell part; for a decoder without a hidden layer both parts of the log rate
    add up.

    - ``count_share``: spatial fraction of the variance of counts of cells of median size.
    - ``rate_share``: spatial fraction of the variance of the log rate.
    - ``spatial_sd``: standard deviation of the spatial part of the log rate.
    - ``mean``: mean count.

    :param rows: rows of the cells.
    :param num_spatial: number of spatial channels, which come first.
    :param num_draws, num_covariates: as in :func:`between_groups`.
    """
    codes = posterior.code_samples(rows, -(-num_draws // posterior.num_samples), seed=seed)
    reference = reference_inputs(posterior.data.X[0].numpy()[rows], num_covariates)

    def parts(bound: Any, codes: tf.Tensor) -> Any:
        X = _broadcast(reference, codes)
        centre = tf.broadcast_to(tf.reduce_mean(codes, 1, keepdims=True), tf.shape(codes))
        space = tf.concat([codes[..., :num_spatial], centre[..., num_spatial:]], -1)
        cells = tf.concat([centre[..., :num_spatial], codes[..., num_spatial:]], -1)
        of_space, of_cells = (bound.decode(X, part) for part in (space, cells))
        mean, variance = bound.likelihood.moments(bound.decode(X, codes))
        log_space, log_cells = (tf.math.reduce_variance(f, 1) for f in (of_space, of_cells))
        # For independent a and b, the part of exp(a + b) that varies with a is exp(a) E[exp(b)].
        smooth = tf.exp(of_space - tf.reduce_logsumexp(of_space, 1, keepdims=True))
        number = tf.cast(tf.shape(codes)[1], smooth.dtype)
        in_all = tf.reduce_mean(mean, 1)
        explained = tf.square(in_all * number) * tf.math.reduce_variance(smooth, 1)
        total = tf.math.reduce_variance(mean, 1) + tf.reduce_mean(variance, 1)
        return {
            "count_share": tf.minimum(explained / total, 1.0),
            "rate_share": log_space / tf.maximum(log_space + log_cells, 1e-12),
            "spatial_sd": tf.sqrt(log_space),
            "mean": in_all,
        }

    size = 4 * len(rows) * posterior.model.decoder.output_dim
    found = list(_map_draws(posterior, parts, codes, size))
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def table_of_groups(
    genes: list[str], first: np.ndarray, second: np.ndarray, delta: float, fdr: float
) -> Any:
    """Return the table of :meth:`~gpflow_bae.spatial.SpatialBAE.differential_expression`.

    :param first, second: draws of expected counts [S, P].
    """
    import pandas

    change = np.log2(first) - np.log2(second)
    probability = np.mean(np.abs(change) > delta, 0)
    lower, upper = np.quantile(change, _INTERVAL, 0)
    table = pandas.DataFrame(
        {
            "proba_de": probability,
            "lfc_mean": change.mean(0),
            "lfc_sd": change.std(0),
            "lfc_lower": lower,
            "lfc_upper": upper,
            "mean1": first.mean(0),
            "mean2": second.mean(0),
            "is_de": false_discoveries(probability) <= fdr,
        },
        index=pandas.Index(genes, name="gene"),
    )
    order = np.lexsort((-np.abs(change.mean(0)), -probability))
    return table.iloc[order]


def table_of_space(genes: list[str], draws: dict[str, np.ndarray]) -> Any:
    """Return the table of :meth:`~gpflow_bae.spatial.SpatialBAE.spatial_genes`.

    :param draws: results of :func:`over_space`, each [S, P].
    """
    import pandas

    lower, upper = np.quantile(draws["count_share"], _INTERVAL, 0)
    table = pandas.DataFrame(
        {
            "share": draws["count_share"].mean(0),
            "share_lower": lower,
            "share_upper": upper,
            "rate_share": draws["rate_share"].mean(0),
            "spatial_sd": draws["spatial_sd"].mean(0),
            "mean": draws["mean"].mean(0),
        },
        index=pandas.Index(genes, name="gene"),
    )
    return table.sort_values("share", ascending=False, kind="stable")
