"""Check the arguments of public functions against their type annotations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from .arguments import INT_MAX, kind_of

__all__ = ["check_arguments", "check_fields", "check_types"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def check_arguments(**least: float) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that checks arguments against their type annotations.

    An ``int`` must not be a Boolean and must fit 32 bits, as TensorFlow requires of seeds, shapes
    and loops; a ``float`` must not be NaN; NumPy numbers become Python numbers. If a class is
    expected, only numbers, arrays, None and other plain values are rejected here; the function
    checks other objects itself. An annotation that includes tensors accepts everything.

    :param least: the smallest value of a number, or of each entry of a sequence, by argument name;
        0 for ``seed``.
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


def check_fields(settings: Any, *, positive: Sequence[str] = (), **least: float) -> None:
    """Check a dataclass's fields as :func:`check_arguments` does; call it in ``__post_init__``.

    :param positive: names of the fields that must be None, or positive and finite.
    """
    kind = type(settings)
    annotations = {field.name: field.type for field in dataclasses.fields(kind)}
    names = vars(sys.modules[kind.__module__])
    check_types(vars(settings), annotations, names, least)
    for name, value in _python_numbers(vars(settings), annotations, names).items():
        object.__setattr__(settings, name, value)  # the dataclass may be frozen
    for name in positive:
        value = getattr(settings, name)
        if value is not None and not 0 < value < np.inf:
            words = "finite" if value == np.inf else "positive"
            raise ValueError(f"{name} must be {words}, got {value}.")


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
        low = least.get(name, 0.0 if name == "seed" else -np.inf)
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
            described = [_described(kind, low, value) for kind in kinds]
            words = (", or " if any("," in each for each in described) else " or ").join(described)
            raise (ValueError if _is_out_of_range(value, kinds) else TypeError)(
                f"{name} must be {words}, got {_short_repr(value)}."
            )


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
        return isinstance(value, numbers.Integral) and max(low, -INT_MAX) <= value <= INT_MAX  # type: ignore[operator]
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
    if kind is int and isinstance(value, numbers.Integral) and abs(value) > INT_MAX:  # type: ignore[operator]
        return f"an integer from {max(low, -INT_MAX):.0f} to {INT_MAX}"
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
