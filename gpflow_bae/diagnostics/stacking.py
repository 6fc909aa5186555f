"""Stacking weights of chains or models from predictions of held-out data."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from scipy.special import logsumexp

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers

__all__ = ["stacking_weights"]


@check_arguments()
@check_shapes("log_density: [K, N]", "return: [K]")
def stacking_weights(
    log_density: np.ndarray, tolerance: float = 1e-8, max_iterations: int = 100_000
) -> np.ndarray:
    r"""Return weights w [K], with sum 1, that maximise the density of a mixture of predictions.

    .. math:: \max_w \sum_n \log \sum_k w_k p_k(y_n)

    (Yao et al. 2018, section 3.1). Chains in different modes of a network's posterior should not
    be pooled with equal weights: the number of chains in a mode does not estimate its mass, and
    one bad mode of four would get a quarter of the weight. Stacking weights them by held-out data
    instead. The result is not a posterior; say so when you report it.

    The objective is concave. It is maximised by expectation maximisation, which increases it in
    each step and stops when no weight could gain more than ``tolerance`` nats per point. If
    members predict alike the maximum is not unique, and the one reached from equal weights is
    returned.

    >>> stacking_weights(np.log([[0.9, 0.8], [0.1, 0.2]])).round(3)
    array([1., 0.])

    :param log_density: log density in nats of N held-out points (not training points) under each
        of K members: for chains, ``predict_cell_log_density`` with the samples of each.
    :param tolerance: in nats, of the mean over points.
    :param max_iterations: number of iterations after which the present weights are returned.
    :raises ValueError: if a log density is NaN or +infinity, or a point has -infinity under all
        members.
    """
    log_density = as_numbers(log_density, "log_density")
    if log_density.ndim != 2 or not log_density.size:
        raise ValueError(f"log_density has shape {log_density.shape}; expected [K, N].")
    if np.isnan(log_density).any() or (log_density == np.inf).any():
        raise ValueError("log_density holds NaN or infinity: find out which member predicts that.")
    best = log_density.max(0)
    if not np.isfinite(best).all():
        impossible = np.flatnonzero(~np.isfinite(best)).tolist()
        raise ValueError(
            f"log_density is -infinity under all members at points {impossible[:5]}: leave these "
            "points out, or the members are none to mix."
        )
    weights = np.full(len(log_density), 1.0 / len(log_density))
    for _ in range(max_iterations):
        with np.errstate(divide="ignore"):
            joint = log_density + np.log(weights)[:, None]
        # Gradient of the objective, a mean over points. At the maximum it is 1 for positive
        # weights, and at most 1 for others.
        slope = np.exp(log_density - logsumexp(joint, axis=0)).mean(1)
        if slope.max() - 1.0 <= tolerance:
            break
        weights = weights * slope
        weights /= weights.sum()
    return weights
