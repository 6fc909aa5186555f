"""Initial inducing inputs."""

from __future__ import annotations

import numpy as np
from gpflow.base import TensorType
from scipy.cluster.vq import kmeans2

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..core.scales import spread

__all__ = ["k_means"]


@check_arguments(seed=0)
def k_means(X: TensorType, num_inducing: int, seed: int = 0) -> np.ndarray:
    """Return initial inducing inputs [M, D], the k-means centres of all rows of ``X [..., N, D]``.

    Tran et al. (2023, appendix E) start inducing inputs at such centres. Columns are standardised
    for the clustering, and the centres mapped back to their units, on which they do not depend.

    :raises ValueError: if there are fewer distinct rows than inducing points.
    """
    rows = as_numbers(X, "X", rank=2)
    if not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"X must be finite inputs [..., N, D], got shape {rows.shape}.")
    rows = rows.reshape(-1, rows.shape[-1])
    distinct = np.unique(rows, axis=0)
    if not 1 <= num_inducing <= len(distinct):
        raise ValueError(
            f"num_inducing must lie between 1 and the {len(distinct)} distinct inputs, got "
            f"{num_inducing}."
        )
    if num_inducing == len(distinct):
        return distinct
    centre, scale = distinct.mean(0), spread(distinct)
    # Repeated inputs (tasks that share a grid) have the weight of one.
    centres, _ = kmeans2((distinct - centre) / scale, num_inducing, minit="++", seed=seed)
    order = np.lexsort(centres.T[::-1])
    return centres[order] * scale + centre
