"""What would not fit into memory is said before it is begun."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

__all__ = ["check_bytes", "check_full_cov", "check_memory", "total_memory"]

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def total_memory() -> float:
    """Bytes that this process may use: the machine's, or the limit of its container."""
    try:
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return float("inf")
    try:
        return min(found, float(_CGROUP.read_text()))  # "max" where there is no limit
    except (OSError, ValueError):
        return found


def check_bytes(needed: float, what: str, advice: str) -> None:
    """Refuse what no memory of this machine could hold, before it is begun.

    :param needed: bytes, at least.
    :param what: a sentence's beginning, that needs them.
    :param advice: what to do instead, a sentence.
    :raises ValueError: where they are too many.
    """
    available = total_memory()
    if needed > available:
        raise ValueError(
            f"{what} at least {needed / 1e9:.0f} GB, and there are {available / 1e9:.0f} GB. "
            f"{advice}"
        )


def check_full_cov(*sizes: int | None, num_points: int | None) -> None:
    """Refuse covariances between points that no memory of this machine could hold.

    :param sizes: of the other axes, such as tasks, channels and draws; None where they are not
        known.
    :param num_points: N', each with each of which has a number, in the result and in the prior.
    :raises ValueError: where they are too many.
    """
    if num_points is None:
        return
    check_bytes(
        2.0 * 8.0 * math.prod(size or 1 for size in sizes) * num_points**2,
        f"full_cov=True of {num_points} points needs, for covariances of each with each,",
        "Ask for fewer points, or set full_cov=False for a variance of each.",
    )


def check_memory(prior: Any, num_tasks: int, num_points: int) -> None:
    """Refuse matrices that no memory of this machine could hold.

    :param prior: one that says by ``num_matrix_entries`` how many numbers it cannot do without.
    :param num_tasks: in a batch.
    :param num_points: of a task, in a batch.
    :raises ValueError: where they are too many.
    """
    check_bytes(
        8.0 * num_tasks * prior.num_matrix_entries(num_points),
        f"{type(prior).__name__} over {num_points} points needs, for {num_tasks} task(s) at a "
        "time, matrices of",
        "Take another prior (latent_priors.SparseGP, or NearestNeighbourGP for places and MarkovGP "
        "for times), a smaller batch_size, or fewer points.",
    )
