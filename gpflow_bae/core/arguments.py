"""Conversion and validation of single arguments, and warnings that name the caller's line."""

from __future__ import annotations

import numbers
import sys
import types
import warnings
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "INT_MAX",
    "as_array",
    "as_numbers",
    "check_integer",
    "check_parts",
    "check_positive",
    "kind_of",
    "warn_caller",
]

INT_MAX = 2_000_000_000  # TensorFlow's shapes, loops and seeds have 32 bits


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning located at the innermost caller outside of this package."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: types.FrameType) -> bool:
    # Code run by exec may have no __name__.
    return str(frame.f_globals.get("__name__")).startswith("gpflow_bae.")


def kind_of(value: Any) -> str:
    """Describe the type of a value for an error message; a class is described as a class."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself, which makes one when it is called"
    return type(value).__name__


def check_integer(name: str, value: Any, low: float, high: float = np.inf) -> None:
    """Check that a value is an integer from ``low`` to ``high``, and not a Boolean.

    :raises ValueError: if not, with the argument's name.
    """
    valid = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not valid or not low <= value <= min(high, INT_MAX):
        expected = f"of at least {low}" if high == np.inf else f"from {low} to {high}"
        expected = "" if low == -np.inf and high == np.inf else f" {expected}"
        raise ValueError(f"{name} is {value!r}; it must be an integer{expected}.")


def check_positive(may_be_zero: bool = False, **values: Any) -> None:
    """Check that values are finite numbers above 0, or of at least 0 if ``may_be_zero``.

    :raises ValueError: if not, with the argument's name.
    """
    expected = "finite number of at least 0" if may_be_zero else "positive finite number"
    for name, value in values.items():
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 < number < np.inf or (may_be_zero and number == 0)):
            raise ValueError(f"{name} is {value!r}; it must be a {expected}.")


def check_parts(settings: Any, **kinds: type) -> None:
    """Refuse parts of settings that are no such objects, such as the names of what they hold.

    :raises TypeError: naming the field.
    """
    for name, kind in kinds.items():
        value = getattr(settings, name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}.")


def as_array(values: Any, name: str) -> np.ndarray:
    """Convert array-like values to an array, with NaN for masked and missing entries.

    :param name: name of the values in the error message.
    :raises ValueError: for rows of unequal lengths.
    """
    if isinstance(values, list | tuple) and any(isinstance(v, np.ma.MaskedArray) for v in values):
        values = np.stack([as_array(v, name) for v in values])  # NumPy would drop the masks
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind in "biuf" and np.ma.is_masked(values):
            values = np.ma.asarray(values, np.result_type(values.dtype, np.float16)).filled(np.nan)
        values = np.asarray(values)
    elif hasattr(values, "to_numpy") and hasattr(values, "isna"):  # a pandas frame or series
        known = values.notna()
        complete = bool(np.all(known))  # complete columns keep their types, integers among them
        values = values.to_numpy() if complete else values.astype(object).where(known, np.nan)
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        advice = f"{name} is no array of numbers ({error}); pass rows of equal lengths."
        if isinstance(values, list | tuple) and all(isinstance(v, np.ndarray) for v in values):
            advice = (
                f"{name} is a list of arrays of shapes {[v.shape for v in values[:3]]}"
                f"{', ...' if len(values) > 3 else ''}, of which no array can be made: where tasks "
                "of different lengths are allowed each is an array [N, columns], as x[:, None] is; "
                "elsewhere join them by np.concatenate."
            )
        raise ValueError(advice) from error


def as_numbers(values: Any, name: str, dtype: DTypeLike = np.float64, rank: int = 0) -> np.ndarray:
    """Convert lists, tensors, masked arrays or frames to an array of a float type.

    Masked and missing entries are NaN, as in :func:`as_array`.

    :param name: name of the values in error messages.
    :param dtype: a float type.
    :param rank: least number of axes.
    :raises ValueError: for text, dates, complex numbers, rows of unequal lengths, too few axes, and
        numbers that overflow the type.
    """
    array = as_array(values, name)
    try:
        if array.dtype.kind not in "biufOV" or (array.dtype.kind == "V" and array.dtype.names):
            raise TypeError(f"it holds {array.dtype}")
        if array.dtype == object and any(isinstance(v, str | bytes) for v in array.flat):
            raise TypeError("it holds text")
        with np.errstate(over="ignore"):
            found = array.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} is no array of numbers ({error}); convert text, dates and complex numbers "
            "first."
        ) from error
    if found.ndim < rank:
        raise ValueError(f"{name} must have at least {rank} axes, got shape {found.shape}.")
    if array.dtype.kind in "iuf" and array.dtype.itemsize > found.dtype.itemsize:
        beyond = np.isinf(found) & np.isfinite(array)
        if beyond.any():
            raise ValueError(
                f"{name} holds {array[beyond][0]:g}, more than {found.dtype} can hold: change its "
                "units, such as by its standard deviation."
            )
    return found
