"""The result of a check: scores on hidden cells, and a verdict in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["CheckResult"]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """Scores of the model and of simpler methods on cells that were hidden from all of them.

    Methods have names for readers ("linear interpolation"); the model comes first.

    * per_column: scores of each method for each column, ``{method: {column: {score: number}}}``:
      ``rmse`` in standard deviations of the column's observed cells, ``nll``, the negative log
      density of a hidden cell in those units (nats), and ``coverage_90``, the share of hidden
      cells inside of their 90 % interval. A score that a method does not have is absent.
    * summary: the same scores, averaged over columns, ``{method: {score: number}}``.
    * verdict: one or two sentences: whether to trust the model, or which method to use instead.
    * best: the method that the verdict advises.
    * hidden: a description of the hidden cells, in sentences.
    * num_hidden: number of hidden cells.
    * seconds: time that each method took.
    """

    per_column: Mapping[str, Mapping[str, Mapping[str, float]]]
    summary: Mapping[str, Mapping[str, float]]
    verdict: str
    best: str = ""
    hidden: str = ""
    num_hidden: int = 0
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, the model first."""
        return tuple(self.summary)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that had hidden cells, in the order of the table."""
        return tuple(dict.fromkeys(c for scores in self.per_column.values() for c in scores))
