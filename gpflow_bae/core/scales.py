"""Scales of columns of numbers that differ by more than rounding."""

from __future__ import annotations

import numpy as np

__all__ = ["below_one", "spread", "varies"]


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
