"""Weights of chains, or of models, by what each predicts of data that none has seen."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from scipy.special import logsumexp

from ..core.arguments import as_numbers, check_arguments

__all__ = ["stacking_weights"]


@check_arguments()
@check_shapes("log_density: [K, N]", "return: [K]")
def stacking_weights(
    log_density: np.ndarray, tolerance: float = 1e-8, max_iterations: int = 100_000
) -> np.ndarray:
    r"""Weights w of K predictive densities, of sum 1, for which their mixture is best.

    .. math:: \max_w \sum_n \log \sum_k w_k p_k(y_n)

    (Yao et al. 2018, section 3.1). Chains that stand in different basins of a network's posterior
    are not to be pooled as they are: how many chains found a basin says nothing of its mass, and
    one bad basin among four would have a quarter of the say. Stacking asks data instead. It is no
    posterior: say so where results are from it.

    The maximum is of a concave function. It is found by expectation maximisation, each step of
    which increases it, and left where no weight could still gain more than ``tolerance`` nats a
    point. Where members predict alike there is no single maximum; the one that is found from equal
    weights is returned.

    >>> stacking_weights(np.log([[0.9, 0.8], [0.1, 0.2]])).round(3)
    array([1., 0.])

    :param log_density: in nats, of N held-out points (not of those of training) under each of K
        members: of chains, what ``predict_cell_log_density`` of each one's samples says.
    :param tolerance: in nats, of the mean over points.
    :param max_iterations: after which the weights are returned as they are.
    :raises ValueError: if a density is NaN or infinite, or a point has none under all members.
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
        # By how much the objective, a mean over points, grows with each weight: 1 at the maximum
        # where a weight is positive, and no more than that elsewhere.
        slope = np.exp(log_density - logsumexp(joint, axis=0)).mean(1)
        if slope.max() - 1.0 <= tolerance:
            break
        weights = weights * slope
        weights /= weights.sum()
    return weights
