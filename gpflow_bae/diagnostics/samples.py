"""Helpers of the diagnostics: import of ArviZ, and shapes of samples of several chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["arviz_for", "num_chains_and_draws"]


def arviz_for(caller: str) -> Any:
    """Import ArviZ, with an ImportError that names the extra which ``caller`` needs."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            f"{caller} needs ArviZ: pip install 'gpflow-bae[diagnostics]'."
        ) from error
    return arviz


def num_chains_and_draws(argument: str, arrays: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Return the two leading dimensions, which all arrays must share."""
    if not arrays:
        raise ValueError(f"{argument} is empty; pass at least one array.")
    for name, values in arrays.items():
        if values.ndim < 2:
            raise ValueError(
                f"{argument}[{name!r}] needs the axes of chains and draws, [C, S, ...]; got shape "
                f"{values.shape}. Add the first with values[None] for one chain."
            )
    first = next(iter(arrays))
    num_chains, num_draws = arrays[first].shape[:2]
    for name, values in arrays.items():
        if values.shape[:2] != (num_chains, num_draws):
            raise ValueError(
                f"{argument} differ in chains and draws: {first!r} has [C, S] = "
                f"{[num_chains, num_draws]}, {name!r} has {list(values.shape[:2])}. Cut them to "
                "those that all have."
            )
    return num_chains, num_draws
