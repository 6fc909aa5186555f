"""Supports of likelihoods: the values that observations can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np

__all__ = ["COUNTS", "FRACTIONS", "Support", "support_of"]


class Support(NamedTuple):
    """A set of values that observations can have."""

    words: str  # description for error messages
    holds: Callable[[np.ndarray], np.ndarray]  # whether finite values are in the set


def _integers_to(most: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda y: (y >= 0) & (y <= most) & (y == np.round(y))


COUNTS = Support("counts, whole numbers from 0", _integers_to(np.inf))
FRACTIONS = Support("numbers from 0 to 1, such as 0 and 1", lambda y: (y >= 0) & (y <= 1))
_BINARY = Support("0 or 1", _integers_to(1))
_GPFLOW_SUPPORTS = {
    gpflow.likelihoods.Poisson: COUNTS,
    gpflow.likelihoods.Bernoulli: _BINARY,
    gpflow.likelihoods.Beta: Support("numbers between 0 and 1", lambda y: (y > 0) & (y < 1)),
    gpflow.likelihoods.Gamma: Support("numbers above 0", lambda y: y > 0),
    gpflow.likelihoods.Exponential: Support("numbers from 0", lambda y: y >= 0),
}


def support_of(likelihood: Any) -> Support | None:
    """Return the support of a GPflow likelihood; None for all numbers, or if it is unknown."""
    if isinstance(likelihood, gpflow.likelihoods.Ordinal):
        most = len(np.asarray(likelihood.bin_edges))
        return Support(f"levels, whole numbers from 0 to {most}", _integers_to(most))
    return next((v for kind, v in _GPFLOW_SUPPORTS.items() if isinstance(likelihood, kind)), None)
