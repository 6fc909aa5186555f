"""The result of a check: scores on hidden cells, and a verdict in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

__all__ = ["CheckResult"]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """Scores of what is filled in and of single methods on cells hidden from all of them.

    Methods have names for readers ("linear interpolation"). The first is what the Imputer fills in:
    ``"auto"``, whose methods were chosen without these cells, or the method that was asked for.

    * per_column: scores of each method for each column, ``{method: {column: {score: number}}}``:
      ``rmse`` in standard deviations of the column's observed cells, ``nll``, the negative log
      density of a hidden cell in those units (nats), and ``coverage_90``, the share of hidden
      cells inside of their 90 % interval. Columns of zeros and ones, and categories, have no
      ``coverage_90``: their intervals mostly hold all values that there are.
    * summary: the same scores, averaged over columns, ``{method: {score: number}}``.
    * verdict: a few sentences: how large the error of filled cells is, and which methods fill.
    * best: the method with the lowest error, averaged over columns.
    * hidden: a description of the hidden cells, in sentences.
    * num_hidden: number of hidden cells.
    * seconds: time that each method took.
    * expected_error: root mean squared error of filled cells, in standard deviations of their
      columns, averaged over these, corrected for the small number of gaps; and the ends of a 90 %
      interval of it, NaN for fewer than five gaps.
    * filled_by: the method that fills each column.
    """

    per_column: Mapping[str, Mapping[str, Mapping[str, float]]]
    summary: Mapping[str, Mapping[str, float]]
    verdict: str
    best: str = ""
    hidden: str = ""
    num_hidden: int = 0
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    expected_error: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    filled_by: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, what is filled in first."""
        return tuple(self.summary)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that had hidden cells, in the order of the table."""
        return tuple(dict.fromkeys(c for scores in self.per_column.values() for c in scores))
