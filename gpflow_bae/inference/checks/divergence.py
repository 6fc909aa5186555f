"""Messages for a chain that diverged: what became non-finite, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["against_divergence", "what_diverged"]

_NAMES = 5  # largest number of parameters shown


def what_diverged(names: Sequence[str], log_density: float) -> str:
    """Describe what diverged.

    :param names: names of the parameters that are not finite.
    :param log_density: log density of the chain, in nats.
    """
    if names:
        more = " and others" if len(names) > _NAMES else ""
        return f"{', '.join(names[:_NAMES])}{more} became non-finite"
    if not np.isfinite(log_density):
        return f"the log density became {log_density} (often a Cholesky decomposition that failed)"
    return "the encoder's loss became non-finite"


def against_divergence(settings: Mapping[str, Any]) -> str:
    """Return advice on which settings to change.

    :param settings: settings of the sampler.
    """
    now = ""
    if "step_size" in settings:
        search = settings.get("step_size_search")
        now = f" (now {settings['step_size']}{f', and searched by {search}' if search else ''})"
    decay = ""
    if "momentum_decay" in settings:
        decay = f", raise momentum_decay (now {settings['momentum_decay']})"
    return f"Lower step_size{now}{decay} or raise the jitter."
