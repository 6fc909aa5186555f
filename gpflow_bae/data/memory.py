"""Checks that results fit into memory before they are computed."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

__all__ = ["check_bytes", "check_full_cov", "check_memory", "total_memory"]

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def total_memory() -> float:
    """Return the bytes of memory of the machine, or the limit of the container."""
    try:
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return float("inf")
    try:
        return min(found, float(_CGROUP.read_text()))  # "max", without a limit, is a ValueError
    except (OSError, ValueError):
        return found


def check_bytes(needed: float, what: str, advice: str) -> None:
    """Check that a computation fits into the memory of this machine.

    :param needed: lower bound of the bytes it needs.
    :param what: beginning of the error message, with subject and verb.
    :param advice: sentence on what to do instead.
    :raises ValueError: if it needs more than there is.
    """
    available = total_memory()
    if needed > available:
        raise ValueError(
            f"{what} at least {needed / 1e9:.0f} GB, and there are {available / 1e9:.0f} GB. "
            f"{advice}"
        )


def check_full_cov(*sizes: int | None, num_points: int | None) -> None:
    """Check that covariances between points fit into the memory of this machine.

    :param sizes: sizes of the other axes, such as tasks, channels and draws; None if unknown.
    :param num_points: N', for covariances [N', N'] in the result and in the prior; None if
        unknown.
    :raises ValueError: if they need more than there is.
    """
    if num_points is None:
        return
    check_bytes(
        2.0 * 8.0 * math.prod(size or 1 for size in sizes) * num_points**2,
        f"full_cov=True of {num_points} points needs, for covariances of each with each,",
        "Ask for fewer points, or set full_cov=False for a variance of each.",
    )


def check_memory(prior: Any, num_tasks: int, num_points: int) -> None:
    """Check that the matrices of a latent prior fit into the memory of this machine.

    :param prior: latent prior; each kernel of a dense one has a covariance and its factor.
    :param num_tasks: number of tasks in a batch.
    :param num_points: number of points of a task in a batch.
    :raises ValueError: if they need more than there is.
    """
    parts = getattr(prior, "parts", [prior])
    matrices = max(2 * len(part.kernels) if part.is_dense else 0 for part in parts)
    check_bytes(
        8.0 * num_tasks * matrices * num_points**2,
        f"{type(prior).__name__} over {num_points} points needs, for {num_tasks} task(s) at a "
        "time, matrices of",
        "Take another prior (latent_priors.SparseGP, or NearestNeighbourGP for places and MarkovGP "
        "for times), a smaller batch_size, or fewer points.",
    )
