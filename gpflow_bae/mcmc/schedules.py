r"""Temperature ladders of parallel tempering.

References:

- Earl, Deem (2005). Parallel tempering: theory, applications, and new perspectives. Physical
  Chemistry Chemical Physics 7.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import numpy as np

from gpflow_bae.core.arguments import as_numbers
from gpflow_bae.mcmc.types import is_number

__all__ = ["check_ladder", "geometric_ladder"]


def geometric_ladder(num_replicas: int, max_temperature: float) -> np.ndarray:
    """Return temperatures of parallel tempering in a constant ratio, from 1: [num_replicas].

    A constant ratio gives neighbours equal swap rates if the heat capacity is constant, as it is
    for a Gaussian (Earl and Deem 2005, section 2.2).

    :param num_replicas: at least 2.
    :param max_temperature: above 1.
    :raises ValueError: if either is out of its range.
    """
    if not isinstance(num_replicas, numbers.Integral) or num_replicas < 2:
        raise ValueError(
            f"num_replicas must be a whole number, at least 2, got {num_replicas!r}: one replica "
            "has nobody to swap with."
        )
    if not is_number(max_temperature) or not 1.0 < max_temperature < np.inf:
        raise ValueError(f"max_temperature must be finite and above 1, got {max_temperature}.")
    return float(max_temperature) ** (np.arange(num_replicas) / (num_replicas - 1))


def check_ladder(temperatures: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return a valid ladder as float64 [R]: at least two temperatures, from 1 and increasing.

    :raises ValueError: if the ladder is invalid.
    """
    ladder = as_numbers(temperatures, "temperatures")
    if ladder.ndim != 1 or ladder.size < 2:
        raise ValueError(
            "temperatures must be a list of at least two, one per replica, got "
            f"{ladder.tolist()!r}. With one temperature there is nothing to exchange."
        )
    if not np.all(np.isfinite(ladder)):
        raise ValueError(f"temperatures must be finite, got {ladder.tolist()}.")
    if ladder[0] != 1.0:
        raise ValueError(
            f"The first temperature must be 1, the target itself, got {ladder.tolist()}."
        )
    if np.any(np.diff(ladder) <= 0):
        raise ValueError(
            f"temperatures must be strictly increasing, coldest first, got {ladder.tolist()}."
        )
    return ladder
