"""Columns of zeros and ones that say whether a cell has a category. Needs no pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Indicator", "groups", "probabilities"]


class Indicator(str):
    """The name of a column of zeros and ones: whether the cells of a column have a category.

    :param column: name of the column.
    :param level: the category, as text; True for a column of True and False.
    :param filled: whether missing cells of the column are to be filled. If not, the column helps to
        fill others.
    """

    column: Any
    level: Any
    filled: bool

    def __new__(cls, column: Any, level: Any, filled: bool = True) -> Indicator:
        self = super().__new__(cls, f"{column} = {level}")
        self.column, self.level, self.filled = column, level, filled
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.column, self.level, self.filled


def groups(names: Any) -> list[list[int]]:
    """Numbers of the columns by what was one column of the table, in order of the first of them."""
    found: dict[Any, list[int]] = {}
    for number, name in enumerate(names):
        key = (name.column,) if isinstance(name, Indicator) else number
        found.setdefault(key, []).append(number)
    return list(found.values())


def probabilities(ones: Mapping[Indicator, np.ndarray]) -> tuple[tuple[Any, ...], np.ndarray]:
    """The categories of a column, and their probabilities [rows, K], which sum to one.

    :param ones: the probability of a one in each of its columns of zeros and ones.
    """
    levels = tuple(indicator.level for indicator in ones)
    found = np.clip(np.stack(list(ones.values()), axis=-1), 1e-9, 1.0)
    if levels == (True,):
        return (False, True), np.concatenate([1.0 - found, found], axis=-1)
    return levels, found / found.sum(-1, keepdims=True)
