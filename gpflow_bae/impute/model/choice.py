"""The method of each column, by the errors of all of them in gaps that none of them has seen."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from check_shapes import check_shapes

from ...data import Standardiser
from ..baselines.chains import mean_squares
from ..baselines.methods import CHAINED, SIMPLE, Context, variants
from ..method_names import GP
from ..reading.indicators import groups
from ..reading.kinds.column_kind import ColumnKind
from .calibration import VarianceScales, gap_weights, variance_scales
from .gaps import HiddenGaps

__all__ = ["Choice", "GapErrors", "by_gap", "compare", "settled"]

_BUDGET = {"iterative": 15.0, "trees": 60.0}  # of methods that take long, in seconds of a core
_DOUBT = 0.5  # standard errors by which a simple method must be better than the GPs

_Moments = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class GapErrors:
    """Squared errors of a method in hidden cells, summed by gap and column.

    * squares [G, P]: sums, in squared standard deviations of the columns.
    * counts [G, P]: numbers of hidden cells.
    """

    squares: np.ndarray
    counts: np.ndarray

    @check_shapes("weights: [draws, G]", "return: [draws, P]")
    def rmse(self, weights: np.ndarray) -> np.ndarray:
        """Root mean squared error of each column; NaN where no gap of a column is drawn.

        :param weights: how often each gap is drawn.
        """
        total = weights @ self.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt((weights @ self.squares) / total)

    def __add__(self, other: GapErrors) -> GapErrors:
        """The errors in the gaps of both."""
        return GapErrors(
            np.concatenate([self.squares, other.squares]),
            np.concatenate([self.counts, other.counts]),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """The methods of a table's columns, and what they were chosen by.

    * methods: the name of the method of each output.
    * setups: settings of the simple methods that were compared, by name.
    * scales: of their variances, by name.
    * errors: of all methods that were compared, by name.
    * together: numbers of the outputs that are one column of the table, and have one method.
    """

    methods: tuple[str, ...]
    setups: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scales: Mapping[str, VarianceScales] = dataclasses.field(default_factory=dict)
    errors: Mapping[str, GapErrors] = dataclasses.field(default_factory=dict)
    together: Sequence[Sequence[int]] = ()

    def without(self, names: Collection[str]) -> Choice:
        """The choice among the other methods."""
        left = {name: own for name, own in self.errors.items() if name not in names}
        return dataclasses.replace(self, methods=self._best(left), errors=left)

    def with_more(self, errors: Mapping[str, GapErrors]) -> Choice:
        """The choice by the errors of other gaps as well."""
        both = {name: own + errors[name] for name, own in self.errors.items() if name in errors}
        return dataclasses.replace(self, methods=self._best(both), errors=both)

    def _best(self, errors: Mapping[str, GapErrors]) -> tuple[str, ...]:
        """The method of each column: the GPs, or one that is better by half its doubt.

        Differences are paired by gap. Gaps of other columns count as few of a column's own. Columns
        of zeros and ones of one category have one method: the GPs, unless another is best for all.
        """
        first = next(iter(errors), GP)
        found = [first] * len(self.methods)
        if first not in errors or not errors[first].counts.any():
            return tuple(found)
        gap, column = np.nonzero(errors[first].counts)
        cells = np.maximum(errors[first].counts.sum(0), 1.0)
        differences = {}
        for name, rival in errors.items():
            unit = (rival.squares + errors[first].squares).sum(0) / cells
            # Relative to the columns' errors: badly predicted ones may not outweigh others.
            excess = (rival.squares - errors[first].squares) / np.where(unit > 0.0, unit, 1.0)
            differences[name] = excess[gap, column]
        for p in range(len(self.methods)):
            counts, lowest = gap_weights(column == p), 0.0
            for name, excess in differences.items():
                gain = float(excess @ counts)
                rest = excess - gain / counts.sum()
                doubt = np.sqrt(np.square(rest) @ np.square(counts))
                if gain < lowest and gain < -_DOUBT * doubt:
                    found[p], lowest = name, gain
        for columns in self.together:
            if len({found[p] for p in columns}) > 1:
                for p in columns:
                    found[p] = first
        return tuple(found)


def compare(
    hidden: Sequence[HiddenGaps],
    of_gps: Sequence[_Moments] | None,
    of_rows: Callable[[], Sequence[np.ndarray]],
    Z: np.ndarray,
    context: Context,
    to_units: Callable[[np.ndarray, np.ndarray], np.ndarray],
    names: Sequence[str] = SIMPLE,
) -> Choice:
    """Fit the simple methods to a table with hidden gaps, and choose a method for each column.

    :param hidden: gaps in a table of standardised outputs.
    :param of_gps: moments [T, N, P] of standardised outputs by the GPs, for each set of gaps; None
        to leave them out.
    :param of_rows: a function that returns variances [T, N, P] of standardised outputs by the
        Gaussian of rows, for each set of gaps. Chained regressions, which have none of their own,
        take them; without these it is not called.
    :param Z: standardised outputs [T, N, P], with the hidden cells.
    :param to_units: values of cells as they would be filled in, given standardised moments, in
        standard deviations of their columns.
    """
    truth = to_units(Z, np.zeros(Z.shape))
    errors: dict[str, GapErrors] = {}
    setups, scales = {}, {}
    of_rows = functools.cache(of_rows)
    if of_gps is not None:
        errors[GP] = _errors(hidden, of_gps, truth, to_units)
    for name in names:
        fits, budget = [], _BUDGET.get(name, np.inf) / len(hidden)
        for gaps in hidden:
            found = variants(name, gaps.table, context, budget)
            fits.append({k: fit.predict(gaps.table, context.features) for k, fit in found.items()})
        shared = [setup for setup in fits[0] if all(setup in fit for fit in fits)]
        if not shared:
            continue
        of_setup = {
            setup: _errors(hidden, [fit[setup] for fit in fits], truth, to_units)
            for setup in shared
        }
        best = min(of_setup, key=lambda setup: _mean_square(of_setup[setup]))
        setups[name], errors[name] = best, of_setup[best]
        moments = [fit[best] for fit in fits]
        if name in CHAINED:
            means = [mean for mean, _ in moments]
            scales[name] = _scales_of_chains(hidden, means, of_rows(), Z)
        else:
            scales[name] = variance_scales(hidden, moments, Z)
    together = groups(hidden[0].table.output_names)
    choice = Choice((GP,) * Z.shape[-1], setups, scales, errors, together)
    return choice.without(())


def settled(
    scale: Standardiser, kinds: Sequence[ColumnKind], units: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A function that returns the values that would be filled in, as :func:`compare` takes it.

    :param units [P]: standard deviations of the columns.
    """

    def to_units(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        values = scale.inverse_moments(mean, variance)[0]
        low, high = np.array([kind.range for kind in kinds]).T
        return np.clip(values, low, high) / units

    return to_units


def by_gap(gaps: HiddenGaps, squares: np.ndarray) -> GapErrors:
    """Squares [T, N, P] summed by gap and column."""
    mask = gaps.table.test_mask
    shape = (gaps.num_gaps, mask.shape[-1])
    place = gaps.gap[mask] * shape[1] + np.nonzero(mask)[2]
    size = shape[0] * shape[1]
    total = np.bincount(place, squares[mask], minlength=size).reshape(shape)
    return GapErrors(total, np.bincount(place, minlength=size).reshape(shape).astype(float))


def _errors(
    hidden: Sequence[HiddenGaps],
    moments: Sequence[_Moments],
    truth: np.ndarray,
    to_units: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> GapErrors:
    parts = (
        by_gap(gaps, np.square(to_units(*found) - truth))
        for gaps, found in zip(hidden, moments, strict=True)
    )
    return functools.reduce(operator.add, parts)


def _scales_of_chains(
    hidden: Sequence[HiddenGaps],
    means: Sequence[np.ndarray],
    of_rows: Sequence[np.ndarray],
    Z: np.ndarray,
) -> VarianceScales:
    """Scales of the variances of the Gaussian of rows, for chained regressions.

    Columns that are functions of each other may have a small part of them: they are compared with
    the mean squared errors first.
    """
    masks = [gaps.table.test_mask for gaps in hidden]
    missed = [
        ((mean - Z) / np.sqrt(np.where(mask, own, 1.0)))[mask]
        for mean, own, mask in zip(means, of_rows, masks, strict=True)
    ]
    columns = np.concatenate([np.nonzero(mask)[2] for mask in masks])
    base = mean_squares(np.concatenate(missed), columns, Z.shape[-1])
    moments = [(mean, own * base) for mean, own in zip(means, of_rows, strict=True)]
    found = variance_scales(hidden, moments, Z)
    return VarianceScales(found.factors * base, found.reach / base)


def _mean_square(errors: GapErrors) -> float:
    """The mean over columns of their mean squared errors."""
    counts = errors.counts.sum(0)
    return float(np.mean(errors.squares.sum(0)[counts > 0] / counts[counts > 0]))
