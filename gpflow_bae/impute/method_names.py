"""Names of the methods and periods that arguments and flags take. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["AUTO", "GP", "METHODS", "PERIOD_NAMES", "check_names", "names_for", "who_fills"]

AUTO = "auto"
GP = "gp"
#: Names of the methods for readers, by the name that an argument has; see :func:`names_for`.
METHODS = {
    GP: "coregionalised GPs",
    "iterative": "IterativeImputer",
    "trees": "IterativeImputer with trees",
    "linear": "linear interpolation",
    "hour": "same hour of other days",
    "mean": "column means",
}
PERIOD_NAMES = ("hour", "weekday", "season")
_OF_ROWS = "multivariate Gaussian"  # what "gp" is for rows without time and inputs
_NAMED = 6  # columns that a sentence names


def check_names(method: str, periods: Sequence[str] | None) -> None:
    """Check the arguments ``method`` and ``periods``.

    :raises ValueError: for unknown names.
    """
    if method not in (AUTO, *METHODS):
        raise ValueError(f"method is {method!r}; expected one of {[AUTO, *METHODS]}.")
    if isinstance(periods, str) or set(periods or ()) - set(PERIOD_NAMES):
        raise ValueError(
            f"periods is {periods!r}; expected a list of some of {list(PERIOD_NAMES)}, or an empty "
            "one."
        )


def names_for(num_inputs: int) -> dict[str, str]:
    """Names of the methods for readers of a table's report, by the name that an argument has.

    A table without time and inputs has no Gaussian process: its rows are independent draws of one
    multivariate Gaussian.
    """
    return METHODS if num_inputs else METHODS | {GP: _OF_ROWS}


def who_fills(filled_by: Mapping[Any, str]) -> str:
    """A sentence that names the method of each column."""
    methods: dict[str, list[str]] = {}
    for column, method in filled_by.items():
        methods.setdefault(method, []).append(str(column))
    if len(methods) == 1:
        return f"All columns are filled by {next(iter(methods))}."
    parts = []
    for method, names in methods.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts.append(f"{method} ({', '.join(names[:_NAMED])}{more})")
    return f"Columns are filled by {'; '.join(parts)}."
