"""Timing in turns: each repeat has every variant once, so that drifts of the machine meet all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Run = Callable[[], object]


class Seconds(float):
    """Returned by a call that has timed itself."""


def interleaved(variants: Mapping[str, Run], repeats: int) -> dict[str, np.ndarray]:
    """Seconds of each variant in each repeat [repeats], after one call of each that is not timed.

    :param variants: calls that have waited for their result when they return. One that returns
        :class:`Seconds` has timed itself (a peer in another process), and they are taken.
    """
    for run in variants.values():
        run()  # trace, allocate
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, run in variants.items():
            began = time.perf_counter()
            found = run()
            own = found if isinstance(found, Seconds) else time.perf_counter() - began
            seconds[name].append(own)
    return {name: np.array(values) for name, values in seconds.items()}


def milliseconds(seconds: np.ndarray, steps: int = 1) -> float:
    """The median of a step, where each repeat had so many."""
    return 1e3 * float(np.median(seconds)) / steps


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> dict[str, float]:
    """The ratio of two variants repeat by repeat: its median and its quartiles."""
    low, middle, high = np.quantile(numerator / denominator, (0.25, 0.5, 0.75))
    return {"median": float(middle), "lower_quartile": float(low), "upper_quartile": float(high)}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The power of the size that times grow with: a line through their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
