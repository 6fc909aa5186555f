"""Columns of categories (words, True and False), which models see as columns of zeros and ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .cells import Cells
from .indicators import Indicator
from .problems import Problems
from .table_format import TableFormat

__all__ = ["Categories", "are_categories", "fill_categories", "read_categories"]

_MOST = 50  # categories of a column that models see; cells of others have none of these
_FREE = 0.5  # categories for each observed cell, above which text is no column of categories
_FEW = 5  # categories that may be as rare as that in a column that is mostly observed
_RARE = 0.2  # share of the observed cells in which all categories of a single cell are named
_ENOUGH = 20  # observed cells from which a category of a single one is named
_NUMBER = re.compile("[<>≤≥+\N{MINUS SIGN}-]?=?\\s*[.,]?\\d.*")


class Categories(NamedTuple):
    """A column of categories, as models see it.

    * columns: zeros and ones [rows] of each category, NaN where missing or unknown.
    * unknown [rows]: which cells hold what is no category of the fit, Booleans.
    * notes: notes for the user, in sentences.
    """

    columns: dict[Indicator, np.ndarray]
    unknown: np.ndarray
    notes: tuple[str, ...] = ()


def are_categories(cells: Cells) -> bool:
    """Whether the cells are categories: True and False, or words none of which begins with a digit.

    A column of pandas' categories that are no numbers is one in any case.
    """
    column = cells.column
    if isinstance(column.dtype, pd.CategoricalDtype):
        return not pd.api.types.is_numeric_dtype(column.cat.categories)
    if pd.api.types.is_bool_dtype(column):
        return True
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return False
    said = cells.text[~cells.missing].unique()
    return len(said) > 0 and not any(_NUMBER.fullmatch(cell) for cell in said)


def read_categories(
    cells: Cells,
    problems: Problems,
    filled: bool,
    fitted: Sequence[Indicator] | None = None,
    *,
    said: bool = False,
) -> Categories:
    """Read a column as columns of zeros and ones, one for each category.

    True and False make one column. Beside the fifty most frequent categories, a cell of another one
    has none. What an earlier fit with fewer has not seen is unknown to it.

    :param filled: whether missing cells are to be filled.
    :param fitted: columns of the table of an earlier fit.
    :param said: whether the user says that these are categories, few as their cells may be.
    """
    name, text, missing = cells.name, _words_of(cells), cells.missing
    lower = text.str.lower()
    known, unknown = text[~missing], np.zeros(len(text), dtype=bool)
    truths = set(lower[~missing].unique()) <= {"true", "false"} and len(known) > 0
    if fitted is not None:
        levels = [indicator.level for indicator in fitted]
        truths = levels == [True]
    elif truths:
        levels = [True]
    else:
        counts = known.value_counts()
        rare = len(counts) > _FREE * len(known)
        empty = len(known) < _FREE * len(text) and not said
        if filled and rare and (len(counts) > _FEW or empty):
            problems.add(
                f"Column {name!r} is text with {len(counts)} different values in {len(known)} "
                "cells, which is no column of categories",
                "Leave it out of the outputs: columns that are not named stay as they are.",
            )
            return Categories({}, unknown)
        order = sorted(counts.index, key=lambda level: (-counts[level], level))
        levels = sorted(order[:_MOST])
    shown = lower if truths else text
    if fitted is None:
        notes = () if truths else _notes(cells, problems)
    elif truths or len(levels) < _MOST:
        unknown = ~(missing | shown.isin(["true", "false"] if truths else levels).to_numpy())
        notes = _unknown(cells, unknown, problems)
    else:
        notes = ()
    found = {}
    for level in levels:
        ones = (shown == ("true" if truths else level)).to_numpy(dtype=float)
        found[Indicator(name, level, filled)] = np.where(missing | unknown, np.nan, ones)
    return Categories(found, unknown, notes)


def _words_of(cells: Cells) -> pd.Series:
    """The cells as words. Whole numbers have no decimals, as those of a column with holes do."""
    words = cells.column.map(lambda cell: isinstance(cell, str)).to_numpy(dtype=bool)
    return cells.text.where(words, cells.text.str.removesuffix(".0"))


def _notes(cells: Cells, problems: Problems) -> tuple[str, ...]:
    """Notes on spellings that are read as one, and on categories that may be misspelt."""
    words, notes = _words_of(cells), []
    pairs = pd.DataFrame({"word": words, "cell": cells.column.astype(object)})[~cells.missing]
    pairs = pairs[pairs["cell"].map(lambda cell: isinstance(cell, str))].drop_duplicates()
    several = pairs[pairs["word"].duplicated(keep=False)]
    for word, spellings in several.groupby("word")["cell"]:
        shown = ", ".join(map(repr, sorted(spellings)))
        notes.append(f"Column {cells.name!r}: {shown} are read as {word!r}.")
    known = words[~cells.missing]
    counts = known.value_counts()
    single = sorted(counts.index[counts == 1], key=str)
    # Of a column in which most words are rare none of them is more likely to be misspelt.
    if single and len(known) >= _ENOUGH and len(single) <= _RARE * len(known):
        rows = [int(np.flatnonzero((words == level).to_numpy())[0]) for level in single[:_FEW]]
        pairs = zip(single, map(problems.place, rows), strict=False)
        shown = ", ".join(f"{level!r} ({place})" for level, place in pairs)
        if len(single) > _FEW:
            shown += f" and {len(single) - _FEW} more"
        notes.append(
            f"Column {cells.name!r} has categories of a single cell: {shown}. Correct them if they "
            "are misspelt."
        )
    return tuple(notes)


def _unknown(cells: Cells, unknown: np.ndarray, problems: Problems) -> tuple[str, ...]:
    """A note on cells that hold no category of the fit."""
    rows = np.flatnonzero(unknown)
    if not len(rows):
        return ()
    words = list(dict.fromkeys(_words_of(cells).to_numpy()[rows]))
    shown = ", ".join(map(repr, words[:_FEW])) + (" and others" if len(words) > _FEW else "")
    return (
        f"Column {cells.name!r} holds {shown} in {len(rows)} cells, first in "
        f"{problems.place(int(rows[0]))}, which the fit has not seen: they stay as they are, and "
        "say as little to the model as missing ones.",
    )


def fill_categories(
    column: pd.Series,
    hole: np.ndarray,
    probabilities: pd.DataFrame,
    table_format: TableFormat,
) -> tuple[pd.Series, np.ndarray]:
    """The column with the most probable category in its missing cells, and its probabilities.

    :param hole: which cells to fill [rows].
    :param probabilities: of the levels [rows, K], which are the names of its columns.
    """
    levels, chances = list(probabilities.columns), probabilities.to_numpy()
    if _holds_numbers(column) and pd.to_numeric(pd.Index(map(str, levels)), "coerce").isna().any():
        column = column.astype(object)  # a column without cells, which is read as one of numbers
    cells = _cells_of(column, levels, table_format)
    best = np.argmax(chances, axis=1)
    chosen = [cells[levels[k]] for k in best[hole]]
    filled = column.copy()
    if isinstance(column.dtype, pd.CategoricalDtype):
        filled = filled.cat.add_categories(
            [c for c in dict.fromkeys(chosen) if c not in set(column.cat.categories)]
        )
    if filled.dtype == object:
        values = filled.to_numpy(copy=True)
        values[hole] = chosen
        filled = pd.Series(values, index=column.index, name=column.name, dtype=object)
    else:
        filled[hole] = chosen
    return filled, np.where(hole, chances.max(1), np.nan)


def _cells_of(
    column: pd.Series, levels: Sequence[Any], table_format: TableFormat
) -> Mapping[Any, Any]:
    """How the column writes each level: as most of its cells of that level do."""
    values = (
        column.dropna().value_counts(sort=False).sort_values(ascending=False, kind="stable").index
    )
    if isinstance(column.dtype, pd.CategoricalDtype):
        values = column.cat.categories
    cells = Cells.read(pd.Series(values, dtype=object), table_format)
    written: dict[Any, Any] = {}
    for cell, word, absent in zip(values, _words_of(cells), cells.missing, strict=True):
        if not absent:
            written.setdefault(word, cell)
            written.setdefault(word.lower(), cell)
    if _holds_numbers(column):
        return {level: written.get(level, float(level)) for level in levels}
    if not any(isinstance(level, bool) for level in levels):
        return {level: written.get(level, level) for level in levels}
    if pd.api.types.is_bool_dtype(column) or not any(isinstance(v, str) for v in values):
        return {level: level for level in levels}
    return {level: written.get(str(level).lower(), str(level)) for level in levels}


def _holds_numbers(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
