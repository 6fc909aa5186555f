"""Made tables with real gaps, whose truth is known: for the imputer's benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd

__all__ = ["MADE", "RealGaps", "air", "hide_runs", "long_table"]

_START = "2023-03-01"


@dataclasses.dataclass(frozen=True)
class RealGaps:
    """A table with gaps, and the truth in them.

    * frame: as a user has it; truth: the same without gaps.
    * arguments: of the Imputer.
    """

    frame: pd.DataFrame
    truth: pd.DataFrame
    arguments: dict


def _walk(rng: np.random.Generator, num_rows: int, time: float, num: int = 1) -> np.ndarray:
    """Ornstein-Uhlenbeck paths [rows, num] of variance 1 that forget in ``time`` rows."""
    keep = np.exp(-1.0 / time)
    steps = rng.standard_normal((num_rows, num)) * np.sqrt(1.0 - keep**2)
    path = np.empty_like(steps)
    path[0] = rng.standard_normal(num)
    for n in range(1, num_rows):
        path[n] = keep * path[n - 1] + steps[n]
    return path


def hide_runs(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    length: float,
    share: float,
    together: float = 0.3,
) -> np.ndarray:
    """Runs of exponential length: Booleans [T, N, P], ``share`` of them True.

    :param together: probability that a run is of several columns.
    """
    T, N, P = shape
    hidden = np.zeros(shape, dtype=bool)
    while hidden.mean() < share:
        first, rows = rng.integers(N), 1 + int(rng.exponential(length))
        columns = [rng.integers(P)]
        if P > 1 and rng.random() < together:
            columns = rng.permutation(P)[: rng.integers(2, P + 1)]
        hidden[rng.integers(T), first : first + rows, columns] = True
    return hidden


def air(seed: int, num_hours: int, num_stations: int, num_outputs: int = 5) -> np.ndarray:
    """Hourly pollutants of stations that share weather, traffic and sun: [stations, hours, P]."""
    rng = np.random.default_rng(seed)
    hours = np.arange(num_hours)
    day, weekend = 2.0 * np.pi * hours / 24.0, (hours // 24) % 7 >= 5
    weather, slow = _walk(rng, num_hours, 60.0)[:, 0], _walk(rng, num_hours, 240.0)[:, 0]
    mixing = 0.6 * rng.standard_normal((4, num_outputs))
    found = []
    for _ in range(num_stations):
        near, far = _walk(rng, num_hours, 8.0)[:, 0], _walk(rng, num_hours, 30.0)[:, 0]
        rush = np.cos(day - 2.0 * np.pi * 8 / 24) + 0.7 * np.cos(2.0 * day - 2.0 * np.pi * 17 / 12)
        traffic = (1.0 - 0.35 * weekend) * rush * np.exp(0.3 * weather)
        sun = np.cos(day - 2.0 * np.pi * 14 / 24) * np.exp(0.3 * slow)
        factors = np.stack(
            [
                0.8 * weather + 0.4 * far,
                0.8 * slow + 0.3 * near,
                traffic + 0.5 * near,
                sun + 0.4 * far,
            ],
            axis=-1,
        )
        own = mixing + 0.15 * rng.standard_normal(mixing.shape)
        shared = rng.standard_normal((num_hours, 2)) @ rng.standard_normal((2, num_outputs))
        noise = rng.standard_normal((num_hours, num_outputs))
        found.append(factors @ own + 0.15 * shared + 0.15 * noise)
    return np.stack(found)


def long_table(
    Y: np.ndarray,
    hidden: np.ndarray,
    step: str = "h",
    task: bool = True,
    X: np.ndarray | None = None,
) -> RealGaps:
    """A frame of tasks [T, N, P] with dates, or with the inputs X [N, D] instead."""
    T, N, P = Y.shape
    names = [f"y{p}" for p in range(P)]
    beside: dict = {"outputs": names}
    columns: dict = {}
    if X is None:
        dates = pd.date_range(_START, periods=N, freq=step)
        columns["time"] = np.tile(dates, T)
        beside["time"] = "time"
    else:
        for d in range(X.shape[1]):
            columns[f"x{d}"] = np.tile(X[:, d], T)
        beside["inputs"] = [f"x{d}" for d in range(X.shape[1])]
    if task and T > 1:
        columns["task"] = np.repeat([f"t{t}" for t in range(T)], N)
        beside["task"] = "task"
    truth = pd.DataFrame(columns | dict(zip(names, Y.reshape(-1, P).T, strict=True)))
    frame = truth.copy()
    frame[names] = frame[names].mask(hidden.reshape(-1, P))
    return RealGaps(frame, truth, beside)


def _air_days(rng: np.random.Generator) -> RealGaps:
    Y = air(int(rng.integers(100)), 24 * 15, 2)
    return long_table(Y, hide_runs(rng, Y.shape, 10.0, 0.15))


def _patients(rng: np.random.Generator) -> RealGaps:
    """Forty short, smooth courses of four values."""
    mixing = rng.standard_normal((2, 4))
    t = np.arange(24.0)
    Y = np.stack(
        [
            np.stack([np.sin(t / rng.uniform(3, 6) + rng.uniform(0, 6)) for _ in range(2)], -1)
            @ mixing
            for _ in range(40)
        ]
    )
    Y += 0.1 * rng.standard_normal(Y.shape)
    return long_table(Y, hide_runs(rng, Y.shape, 4.0, 0.15), step="h")


def _places(rng: np.random.Generator) -> RealGaps:
    """Four concentrations at 300 places of a plane, smooth in space."""
    X = rng.uniform(0.0, 10.0, (300, 2))
    apart = np.square(X[:, None] - X[None]).sum(-1)
    factor = np.linalg.cholesky(np.exp(-0.5 * apart / 1.5**2) + 1e-6 * np.eye(300))
    Y = (factor @ rng.standard_normal((300, 2))) @ rng.standard_normal((2, 4))
    Y += 0.3 * rng.standard_normal(Y.shape)
    return long_table(Y[None], rng.random((1, 300, 4)) < 0.15, X=X)


def _independent_columns(rng: np.random.Generator) -> RealGaps:
    """Smooth series that have nothing to do with each other."""
    Y = np.concatenate([_walk(rng, 500, 40.0, 4)], axis=-1)[None]
    Y = Y + 0.05 * rng.standard_normal(Y.shape)
    return long_table(Y, hide_runs(rng, Y.shape, 5.0, 0.15, 0.0))


def _unordered_rows(rng: np.random.Generator) -> RealGaps:
    """Rows that know nothing of each other, columns that go together: no use for time."""
    Y = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 6))
    Y += 0.3 * rng.standard_normal(Y.shape)
    return long_table(Y[None], rng.random((1, 500, 6)) < 0.12)


def _random_walks(rng: np.random.Generator) -> RealGaps:
    """Prices: walks that share most of their steps."""
    steps = rng.standard_normal((500, 1)) + 0.5 * rng.standard_normal((500, 4))
    Y = np.cumsum(steps, axis=0)[None]
    return long_table(Y, hide_runs(rng, Y.shape, 4.0, 0.15))


def _noise(rng: np.random.Generator) -> RealGaps:
    """Nothing to learn."""
    Y = rng.standard_normal((1, 400, 4))
    return long_table(Y, hide_runs(rng, Y.shape, 3.0, 0.15))


def _straight_lines(rng: np.random.Generator) -> RealGaps:
    """Four very smooth courses without noise, single readings missing: lines are hard to beat."""
    t = np.arange(400.0)
    Y = np.stack([np.sin(t / s + rng.uniform(0, 6)) for s in (20.0, 31.0, 44.0, 57.0)], -1)[None]
    return long_table(Y, rng.random(Y.shape) < 0.1)


def _daily_cycles(rng: np.random.Generator) -> RealGaps:
    """Power drawn by four houses: the hour says most of it, and gaps are days long."""
    hours = np.arange(24 * 30)
    day = 2.0 * np.pi * hours / 24.0
    Y = np.stack([np.cos(day - rng.uniform(0, 6)) + 0.5 * np.cos(2 * day) for _ in range(4)], -1)
    Y = (Y + 0.3 * rng.standard_normal(Y.shape) + 0.3 * _walk(rng, len(hours), 20.0))[None]
    return long_table(Y, hide_runs(rng, Y.shape, 30.0, 0.15))


def _skewed(rng: np.random.Generator) -> RealGaps:
    """Positive concentrations over half a year of days, heavy to the right."""
    factors = _walk(rng, 400, 15.0, 2) @ rng.standard_normal((2, 4))
    Y = np.exp(0.8 * factors + 0.25 * rng.standard_normal(factors.shape))[None]
    return long_table(Y, hide_runs(rng, Y.shape, 6.0, 0.15), step="D")


#: Ten tables that differ in what tells of a missing cell; each by a generator.
MADE: dict[str, Callable[[np.random.Generator], RealGaps]] = {
    "air of two stations": _air_days,
    "patients": _patients,
    "places": _places,
    "independent columns": _independent_columns,
    "unordered rows": _unordered_rows,
    "random walks": _random_walks,
    "noise": _noise,
    "straight lines": _straight_lines,
    "daily cycles": _daily_cycles,
    "skewed": _skewed,
}
