"""Write predictions into the missing cells of a DataFrame, and their uncertainty beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .categories import fill_categories
from .indicators import Indicator, probabilities
from .table_format import TableFormat

__all__ = ["beside_names", "fill_frame", "probabilities_of"]


def beside_names(output: Any, suffixes: tuple[str, ...] = ("sd", "lower", "upper")) -> list[Any]:
    """Names of the columns that a filled frame has beside an output.

    Of a name with several levels, the suffix is on the last one.
    """
    *levels, last = output if isinstance(output, tuple) and output else (output,)
    names = [f"{last}_{suffix}" for suffix in suffixes]
    return [(*levels, name) for name in names] if isinstance(output, tuple) and output else names


def fill_frame(
    source: pd.DataFrame,
    outputs: Mapping[Any, np.ndarray],
    settled: Mapping[Any, tuple[np.ndarray, ...]],
    table_format: TableFormat,
) -> pd.DataFrame:
    """A copy of a frame with missing cells filled, and columns of uncertainty behind its own.

    :param outputs: which cells are missing (Booleans [rows]) of each output, by name; of a column
        of categories one of its indicators is enough.
    :param settled: values, deviations and interval ends [rows] of all outputs, by name.
    :param table_format: how numbers are written into columns of text.
    """
    names = list(source.columns)
    columns = [source.iloc[:, i] for i in range(source.shape[1])]
    for name, hole in outputs.items():
        if isinstance(name, Indicator):
            place = names.index(name.column)
            chances = probabilities_of(name.column, settled)
            columns[place], chosen = fill_categories(columns[place], hole, chances, table_format)
            names += beside_names(name.column, ("probability",))
            columns.append(pd.Series(chosen, index=source.index))
            continue
        value, *beside = settled[name]
        if hole.any():
            place = names.index(name)
            columns[place] = _filled(columns[place], hole, value[hole], table_format.decimal)
        names += beside_names(name)
        for array in beside:
            columns.append(pd.Series(np.where(hole, array, np.nan), index=source.index))
    filled = pd.concat(columns, axis=1)
    filled.attrs = dict(source.attrs)
    if isinstance(source.columns, pd.MultiIndex):
        filled.columns = pd.MultiIndex.from_tuples(names, names=source.columns.names)
    else:
        filled.columns = pd.Index(names, name=source.columns.name, tupleize_cols=False)
    return filled


def probabilities_of(
    column: Any, settled: Mapping[Any, tuple[np.ndarray, ...]], index: pd.Index | None = None
) -> pd.DataFrame:
    """Probabilities [rows, K] of the categories of a column.

    :param settled: as in :func:`fill_frame`; of the column's indicators the values are used, which
        are probabilities of a one.
    :param index: of the rows.
    """
    ones = {n: v[0] for n, v in settled.items() if isinstance(n, Indicator) and n.column == column}
    levels, chances = probabilities(ones)
    return pd.DataFrame(chances, index, pd.Index(levels, dtype=object))


def _filled(column: Any, hole: np.ndarray, values: np.ndarray, decimal: str) -> Any:
    """A column of a frame with its missing cells filled; its type and observed cells stay."""
    if hasattr(column, "sparse"):  # which takes no assignments
        dense = _filled(column.sparse.to_dense(), hole, values, decimal)
        return dense.astype(column.dtype)
    kind = getattr(column.dtype, "kind", "O")
    if kind == "f":
        found: Any = values.astype(getattr(column.dtype, "numpy_dtype", column.dtype))
    elif kind in "iu":
        limits = np.iinfo(getattr(column.dtype, "numpy_dtype", column.dtype))
        whole = [min(max(round(v), limits.min), limits.max) for v in values.tolist()]
        found = np.array(whole, limits.dtype)
    elif kind == "b":
        found = values >= 0.5
    else:
        cells = column.to_numpy(dtype=object, copy=True)
        if any(isinstance(cell, str) for cell in cells):
            # The shortest text that is read as the same number.
            text = [repr(v).removesuffix(".0").replace(".", decimal) for v in values.tolist()]
            cells[hole] = text
        else:
            cells[hole] = values
            numbers = cells.astype(float)
            cells = numbers if (numbers == cells).all() else cells
        return type(column)(cells, index=column.index, name=column.name)
    filled = column.copy()
    filled[hole] = found
    return filled
