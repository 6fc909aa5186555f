"""The simple methods by name: how each is fitted to a table, saved, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...data import MultiOutputTable
from ..method_names import GP, METHODS
from .chains import Chain, ChainSetup
from .linear_interpolation import Lines

__all__ = ["CHAINED", "SIMPLE", "Context", "Simple", "fit_simple", "read_simple", "variants"]

SIMPLE = tuple(name for name in METHODS if name != GP)
#: Those that have no variances of their own.
CHAINED = ("iterative", "trees")


class Simple(Protocol):
    """A fitted simple method."""

    def predict(
        self, table: MultiOutputTable, features: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments [T, N, P] of standardised outputs, NaN in padding."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name."""


class Context(NamedTuple):
    """What simple methods know of a table beside its cells.

    * features: the calendar's features [T, N, F] of its rows; None without.
    * day, step: length of a day and distance of rows, in units of the scaled first input; None for
      a table without hours.
    """

    features: np.ndarray | None = None
    day: float | None = None
    step: float | None = None


class _Means:
    """Standardised outputs have the mean zero and the variance one."""

    def predict(
        self, table: MultiOutputTable, features: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.where(table.rows, 1.0, np.nan)[..., None] * np.ones(table.num_outputs)
        return 0.0 * rows, rows

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {}


def variants(
    name: str, table: MultiOutputTable, context: Context, budget: float
) -> dict[Any, Simple]:
    """Fit a method with each of its settings to a table of standardised outputs.

    :param budget: of chained regressions, in seconds of a usual core.
    :return: fits by setting; none if the method does not suit the table, is beyond the budget or
        lacks its library.
    """
    if name == "mean":
        return {(): _Means()}
    if name in ("linear", "hour") and not table.X.shape[-1]:
        return {}  # rows have no order
    if name == "linear":
        return {(): Lines.fit(table)}
    if name == "hour":
        known = context.day is not None and context.step is not None
        return {(): Lines.fit(table, context.day, context.step)} if known else {}
    try:
        from .chain_fitting import fit_chains
    except ImportError:
        return {}
    trees = name == "trees"
    ways = (True,) if trees else (False, True)
    found: dict[Any, Simple] = {}
    for with_inputs in ways:
        chains = fit_chains(
            table,
            context.features,
            with_inputs=with_inputs,
            trees=trees,
            budget=budget / len(ways),
        )
        found |= {chain.setup: chain for chain in chains}
    return found


def fit_simple(name: str, setup: Any, table: MultiOutputTable, context: Context) -> Simple:
    """Fit a method with one of the settings of :func:`variants`."""
    if name not in CHAINED:
        return variants(name, table, context, 0.0)[()]
    from .chain_fitting import fit_chains

    setup = ChainSetup(*setup)
    (chain,) = fit_chains(
        table,
        context.features,
        with_inputs=setup.with_inputs,
        trees=setup.trees,
        rounds=(setup.rounds,),
        complete=True,
    )
    return chain


def read_simple(name: str, arrays: Mapping[str, np.ndarray]) -> Simple:
    """The fit of a method from the arrays that it gave."""
    if name == "mean":
        return _Means()
    if name in ("linear", "hour"):
        return Lines.from_arrays(arrays)
    return Chain.from_arrays(arrays)
