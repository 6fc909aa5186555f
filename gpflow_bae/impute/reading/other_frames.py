"""Tables of polars, PyArrow and other libraries: to pandas for the imputer, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

__all__ = ["back", "is_other_frame", "to_pandas"]


def is_other_frame(table: Any) -> bool:
    """Whether a table is a DataFrame of another library than pandas."""
    library = type(table).__module__.partition(".")[0]
    known = library in ("polars", "pyarrow") or hasattr(table, "__narwhals_dataframe__")
    return not hasattr(table, "iloc") and (known or hasattr(table, "__dataframe__"))


def to_pandas(table: Any) -> pd.DataFrame:
    """The table as a pandas DataFrame; whole numbers and truth values stay so beside missing ones.

    :raises ImportError: without narwhals.
    :raises TypeError: for a table that is not in memory, such as a LazyFrame.
    """
    import pyarrow as pa

    types = {pa.bool_(): pd.BooleanDtype()}
    types |= {getattr(pa, f"int{n}")(): getattr(pd, f"Int{n}Dtype")() for n in (8, 16, 32, 64)}
    types |= {getattr(pa, f"uint{n}")(): getattr(pd, f"UInt{n}Dtype")() for n in (8, 16, 32, 64)}
    found = _wrapped(table).to_arrow()
    for number, field in enumerate(found.schema):
        if pa.types.is_dictionary(field.type):  # of unsigned numbers, which pandas does not have
            plain = pa.dictionary(pa.int32(), field.type.value_type)
            found = found.set_column(number, field.name, found[number].cast(plain))
    return found.to_pandas(types_mapper=types.get)


def back(table: Any, filled: pd.DataFrame, changed: Sequence[Any]) -> Any:
    """The given table with the columns of ``filled`` that are changed or new.

    :param table: the table that :func:`to_pandas` was given.
    :param filled: its rows, with further columns behind its own.
    :param changed: names of its own columns that are not as they were.
    """
    import narwhals as nw
    import pyarrow as pa

    given = _wrapped(table)
    names = [*changed, *filled.columns[len(given.columns) :]]
    columns = {name: pa.array(filled[name], from_pandas=True) for name in names}
    words = {k: v.dictionary_decode() for k, v in columns.items() if pa.types.is_dictionary(v.type)}
    new = nw.from_arrow(pa.table(columns | words), backend=given.implementation)
    kept = [new[name].cast(given.schema[name]) for name in changed]
    return given.with_columns(*kept, *(new[name] for name in names[len(changed) :])).to_native()


def _wrapped(table: Any) -> Any:
    try:
        import narwhals as nw
    except ImportError as error:
        raise ImportError(
            f"A {type(table).__name__} is read with narwhals ({error}): "
            "pip install 'gpflow-bae[frames]', or pass a pandas DataFrame."
        ) from error
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError:
        raise TypeError(
            f"table is a {type(table).__module__}.{type(table).__name__}; expected a table in "
            "memory: call its collect() or compute() first."
        ) from None
