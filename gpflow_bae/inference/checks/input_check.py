"""Check whether chains agree about missing inputs."""

from __future__ import annotations

import numpy as np

from ...core.arguments import warn_caller
from ...inputs import MissingInputs, UniformOnCircle
from ...posteriors import Posterior, TemperedPosterior

__all__ = ["split_rhat", "warn_of_inputs"]

_LEAST_SAMPLES = 40  # of a chain; fewer give too little information
# Of independent samples an entry exceeds it with a probability below 1e-6.
_LARGE = 1.5


def split_rhat(values: np.ndarray) -> np.ndarray:
    """Return R-hat of half chains (Gelman et al. 2013, section 11.4).

    It is near 1 if chains agree, and their halves, and large if they stay in different modes.

    :param values: samples [C, S, ...] of scalars.
    :return: [...]; 1 for what is constant.
    """
    half = values.shape[1] // 2
    chains = np.concatenate([values[:, :half], values[:, -half:]]).astype(np.float64)
    within = chains.var(axis=1, ddof=1).mean(0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(between > 0.0, between / within, 0.0)
    return np.sqrt((half - 1.0) / half + ratio)


def warn_of_inputs(posterior: Posterior | TemperedPosterior) -> None:
    """Warn if chains, or the halves of one, disagree about missing inputs.

    Their conditional distributions may have narrow modes, between which the move ``unknown_inputs``
    seldom goes. Angles are compared by sine and cosine.

    :warns UserWarning: with the columns and the largest R-hat.
    """
    inputs = getattr(posterior.model, "inputs", None)
    if not isinstance(inputs, MissingInputs):
        return
    paths = dict(
        zip(map(id, posterior.model.sampled.parameters), posterior.bank.parameters, strict=True)
    )
    stuck, worst, total = [], 0.0, 0
    for column, table in zip(inputs.columns, inputs.tables, strict=True):
        path = paths.get(id(table.values))
        if path is None or posterior.bank.parameters[path].shape[1] < _LEAST_SAMPLES:
            continue
        values = posterior.bank.parameters[path][..., 0]
        found = split_rhat(values)
        if isinstance(table.prior, UniformOnCircle):
            angles = 2.0 * np.pi * values / table.prior.period
            found = np.maximum(split_rhat(np.sin(angles)), split_rhat(np.cos(angles)))
        if number := int(np.count_nonzero(found > _LARGE)):
            stuck.append(f"{number} of column {column.column}")
            worst, total = max(worst, float(found.max())), total + number
    if not stuck:
        return
    warn_caller(
        f"Chains, or their halves, disagree about {total} missing input(s): {', '.join(stuck)} "
        f"(R-hat up to {worst:.3g}, and 1 would be agreement). These entries may have several "
        "narrow modes, between which the move unknown_inputs seldom goes, so their samples show "
        "where chains began as much as what the data say. Run several chains (num_chains) for "
        "longer, and compare them; or give such a column a prior that tells the modes apart "
        "(MissingInputs(priors=...)).",
    )
