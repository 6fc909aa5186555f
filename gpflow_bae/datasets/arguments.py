"""Arguments of data sets, checked."""

import numbers
from typing import Any

import numpy as np

__all__ = ["check_integer", "check_positive"]


def check_integer(name: str, value: Any, low: int, high: float = np.inf) -> None:
    """Refuses what is no integer from ``low`` to ``high``, truth values included.

    :raises ValueError: Naming the argument.
    """
    valid = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not valid or not low <= value <= high:
        expected = f"of at least {low}" if high == np.inf else f"from {low} to {high}"
        raise ValueError(f"{name} is {value!r}; it must be an integer {expected}.")


def check_positive(may_be_zero: bool = False, **values: Any) -> None:
    """Refuses what is no finite number above 0, or none of at least 0, by name.

    :raises ValueError: Naming the argument.
    """
    expected = "finite number of at least 0" if may_be_zero else "positive finite number"
    for name, value in values.items():
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 < number < np.inf or (may_be_zero and number == 0)):
            raise ValueError(f"{name} is {value!r}; it must be a {expected}.")
