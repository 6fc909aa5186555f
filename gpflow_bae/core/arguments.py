"""Validation and conversion of arguments of public functions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "as_array",
    "as_numbers",
    "below_one",
    "check_arguments",
    "check_fields",
    "check_integer",
    "check_parts",
    "check_positive",
    "check_types",
    "kind_of",
    "spread",
    "varies",
    "warn_caller",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_INT_MAX = 2_000_000_000  # TensorFlow's shapes, loops and seeds have 32 bits


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
    if not valid or not low <= value <= min(high, _INT_MAX):
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
        raise ValueError(
            f"{name} is no array of numbers ({error}); pass rows of equal lengths."
        ) from error


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


def spread(values: np.ndarray, axis: int | tuple[int, ...] = 0) -> np.ndarray:
    """Compute the standard deviation along ``axis``, or 1 where values are equal up to rounding.

    The computed deviation of a constant is not zero but a rounding error (3.6e-14 for rows of
    48.85), and division by it would blow up the next value. Missing entries (NaN) are left out;
    the result is 1 if nothing is observed.

    :param values: numbers of a float or integer type. Values count as equal if they lie within
        eight units in the last place of the largest.
    """
    values = np.asarray(values)
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    differ = varies(values, axis)
    if not differ.any():
        return np.ones(differ.shape, values.dtype)
    known = np.where(np.expand_dims(differ, axis) if values.ndim else differ, values, 1)
    known, exponent = below_one(known, axis)
    found = np.nanstd(known, axis, keepdims=True)
    found = np.ldexp(found, exponent).reshape(differ.shape)
    return np.where(differ, found, 1).astype(values.dtype)


def below_one(
    values: np.ndarray, axis: int | tuple[int, ...] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Multiply values by a power of two after which the largest lies in [0.5, 1).

    No digit changes, and squares of the result neither overflow, as those of 1e200 do, nor are 0,
    as those of 1e-200 are.

    :param values: finite numbers of a float type, or NaN where missing, at least one of them known.
    :param axis: along which the largest value is sought; all axes if None.
    :return: the values in the new units, and the exponents, with the axes of ``values``, such that
        ``np.ldexp(result, exponents)`` are the values.
    """
    _, exponent = np.frexp(np.nanmax(np.abs(values), axis, keepdims=True))
    return np.ldexp(values, -exponent), exponent


def varies(values: np.ndarray, axis: int | tuple[int, ...] = 0) -> np.ndarray:
    """Return whether finite values differ along ``axis`` by more than rounding: Booleans.

    :param values: as in :func:`spread`, which is 1 where this is False.
    """
    values = np.asarray(values)
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    seen = ~np.isnan(values)
    empty = ~seen.any(axis)
    low = np.where(seen, values, np.inf).min(axis, initial=np.inf)
    high = np.where(seen, values, -np.inf).max(axis, initial=-np.inf)
    low, high = np.where(empty, 0, low), np.where(empty, 0, high)
    rounding = 8 * np.finfo(values.dtype).eps * np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are rejected elsewhere
        return np.asarray(high - low > rounding)


def check_arguments(**least: float) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that checks arguments against their type annotations.

    An ``int`` must not be a Boolean and must fit 32 bits, as TensorFlow requires of seeds, shapes
    and loops; a ``float`` must not be NaN; NumPy numbers become Python numbers. If a class is
    expected, only numbers, arrays, None and other plain values are rejected here; the function
    checks other objects itself. An annotation that includes tensors accepts everything.

    :param least: the smallest value of a number, or of each entry of a sequence, by argument name.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        annotations = {
            k: Any if p.annotation is p.empty else p.annotation
            for k, p in signature.parameters.items()
        }

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # raises Python's own error
            given = bound.arguments
            check_types(given, annotations, function.__globals__, least)
            given.update(_python_numbers(given, annotations, function.__globals__))
            return function(*bound.args, **bound.kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def check_fields(settings: Any, **least: float) -> None:
    """Check a dataclass's fields as :func:`check_arguments` does; call it in ``__post_init__``."""
    kind = type(settings)
    annotations = {field.name: field.type for field in dataclasses.fields(kind)}
    names = vars(sys.modules[kind.__module__])
    check_types(vars(settings), annotations, names, least)
    for name, value in _python_numbers(vars(settings), annotations, names).items():
        object.__setattr__(settings, name, value)  # the dataclass may be frozen


def check_parts(settings: Any, **kinds: type) -> None:
    """Refuse parts of settings that are no such objects, such as the names of what they hold.

    :raises TypeError: naming the field.
    """
    for name, kind in kinds.items():
        value = getattr(settings, name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}.")


def _python_numbers(
    values: Mapping[str, Any], annotations: Mapping[str, Any], names: dict[str, Any]
) -> dict[str, Any]:
    """Return those NumPy numbers for which Python numbers are expected, as Python numbers."""
    return {
        name: value.item()
        for name, value in values.items()
        if isinstance(value, np.generic)
        and {bool, int, float} & set(_types_of(annotations.get(name), names))
    }


def check_types(
    values: Mapping[str, Any],
    annotations: Mapping[str, Any],
    names: dict[str, Any],
    least: Mapping[str, float],
) -> None:
    """Check values against their annotations.

    :param annotations: annotations by argument; ``from __future__ import annotations`` makes them
        strings.
    :param names: namespace in which strings are evaluated.
    :param least: as in :func:`check_arguments`.
    :raises ValueError: for a value out of range, with the argument's name and the expected type.
    :raises TypeError: for another type, with the same.
    """
    for name, value in values.items():
        kinds = _types_of(annotations.get(name), names)
        if not kinds:
            continue
        low = least.get(name, -np.inf)
        of_classes = [kind for kind in kinds if _is_class(kind)]
        if isinstance(value, type) and of_classes and not any(map(_takes_classes, kinds)):
            words = " or ".join(_described(kind, low, value) for kind in kinds)
            raise TypeError(f"{name} must be {words}, got {kind_of(value)}.")
        if of_classes and not _is_plain(value):
            continue
        if not any(_fits(value, kind, low) for kind in kinds):
            if _is_out_of_range(value, kinds) and isinstance(value, numbers.Real) and value < low:
                raise ValueError(f"{name} must be at least {low:g}, got {value}.")
            if isinstance(value, float) and np.isnan(value) and float in kinds:
                raise ValueError(f"{name} must be finite, got nan.")
            words = " or ".join(_described(kind, low, value) for kind in kinds)
            raise (ValueError if _is_out_of_range(value, kinds) else TypeError)(
                f"{name} must be {words}, got {_short_repr(value)}."
            )


def _is_class(kind: Any) -> bool:
    outer = get_origin(kind) or kind
    if getattr(outer, "__module__", "") == "collections.abc":
        return False
    return outer is not Literal and outer not in (*_WORDS, *_SEQUENCES, types.NoneType)


def _takes_classes(kind: Any) -> bool:
    """Return whether a class, rather than an instance, is valid for this annotation."""
    outer = get_origin(kind) or kind
    return outer is type or outer is Callable or not _is_class(kind) and outer in (Any, object)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a plain number, text, container, array or tensor, or None."""
    kinds = (types.NoneType, numbers.Number, bytes, Mapping, np.ndarray)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return all(map(_is_plain, value))
    return isinstance(value, kinds) or type(value).__module__.startswith("tensorflow.python.framew")


def _is_out_of_range(value: Any, kinds: Sequence[Any]) -> bool:
    """Return whether a value has one of the types, but is out of range."""
    literals = {type(v) for kind in kinds if get_origin(kind) is Literal for v in get_args(kind)}
    if type(value) in literals or (isinstance(value, float) and np.isnan(value)):
        return True
    is_integer = (
        isinstance(value, numbers.Integral) and not isinstance(value, bool) and int in kinds
    )
    return is_integer or any(_fits(value, kind, -np.inf) for kind in kinds)


def _short_repr(value: Any) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) < 80 else f"{shown[:77]}..."


_cached_types: dict[tuple[str, int], tuple[Any, ...]] = {}


def _types_of(annotation: Any, names: dict[str, Any]) -> tuple[Any, ...]:
    """Return the members of an annotated union; none if one of them cannot be checked."""
    key = (str(annotation), id(names))
    if key not in _cached_types:
        try:
            kind = eval(annotation, names) if isinstance(annotation, str) else annotation
        except NameError:  # imported for type checkers only
            kind = Any
        union = get_origin(kind) in (Union, types.UnionType)
        kinds = get_args(kind) if union else (kind,)
        _cached_types[key] = kinds if all(map(_is_checked, kinds)) else ()
    return _cached_types[key]


def _is_checked(kind: Any) -> bool:
    outer = get_origin(kind) or kind
    if outer is Literal or outer in _SEQUENCES:
        return True
    if outer in (Any, Union, types.UnionType) or not isinstance(outer, type):
        return False
    if getattr(outer, "_is_protocol", False):
        return False
    if hasattr(outer, "_fields"):  # a named tuple
        return False
    is_array = issubclass(outer, np.ndarray) or outer.__module__.startswith("tensorflow.")
    return not (is_array and hasattr(outer, "shape")) and outer is not object


_SEQUENCES = (Sequence, tuple, list)


def _fits(value: Any, kind: Any, low: float) -> bool:
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is Literal:
        return isinstance(value, type(inner[0])) and value in inner
    if kind is None or kind is types.NoneType:
        return value is None
    if isinstance(value, bool | np.bool_):
        return kind is bool
    if kind is int:
        return isinstance(value, numbers.Integral) and max(low, -_INT_MAX) <= value <= _INT_MAX  # type: ignore[operator]
    if kind is float:
        if getattr(value, "ndim", None) == 0 and hasattr(value, "__array__"):
            value = np.asarray(value).item()
        return isinstance(value, numbers.Real) and low <= value  # type: ignore[operator]  # NaN is not
    if outer in _SEQUENCES:
        if isinstance(value, str | bytes | Mapping) or not np.iterable(value):
            return False
        known = [k for k in inner if k is not ... and _is_checked(k)]
        return not known or all(any(_fits(v, k, low) for k in known) for v in value)
    return isinstance(value, outer) if outer is not Callable else callable(value)


def _described(kind: Any, low: float, value: Any) -> str:
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if kind is None or kind is types.NoneType:
        return "None"
    if outer in _SEQUENCES:
        kinds = " or ".join(_described(k, low, None) for k in inner if _is_checked(k))
        return f"a sequence, each entry {kinds}" if kinds else "a sequence"
    if kind is int and isinstance(value, numbers.Integral) and abs(value) > _INT_MAX:  # type: ignore[operator]
        return f"an integer from {max(low, -_INT_MAX):.0f} to {_INT_MAX}"
    if kind in (int, float) and low > -np.inf:
        return f"{_WORDS[kind]} of at least {low:g}"
    return _WORDS.get(outer, f"a {outer.__module__.split('.')[0]} {outer.__qualname__}")


_WORDS = {
    bool: "True or False",
    str: "a string",
    int: "an integer",
    float: "a number",
    Callable: "a function",
}
