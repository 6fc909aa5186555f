"""Whether skewed columns are predicted better untransformed than as logarithms.

A skewed column may still be a sum of the sources of the other columns. It is then predicted better
untransformed, because predictions of its logarithm have the largest errors where values are large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.output_transforms import Log, OutputTransform
from ....core.scales import below_one, spread

__all__ = ["BEYOND", "better_as_they_are", "functions_alike", "near_the_range"]

_FOLDS = 10
_RIDGE = 1.0  # pseudo-observations of zero for each coefficient
_CLEARLY = 0.04  # least gain, as a share of the mean squared error
_TELLING = 0.9  # largest share of a column's variance that may remain, given the other columns
BEYOND = 0.25  # standard deviations beyond observed ones that a predicted logarithm can have
_FUNCTION = 0.1  # share of its variance that is left of a column that is a function of others
_TAKES_PART = 0.2  # least coefficient in such a function, of standardised columns
_MOST_COLUMNS = 50  # that are compared with each other
_SURE = 1.0  # least gain in standard errors: a few large values often make all of it


def better_as_they_are(Y: np.ndarray, transforms: Sequence[Log | None]) -> np.ndarray:
    """Which columns a linear regression on the others predicts clearly better untransformed.

    Errors are in the units of the column, from a cross-validation in ten blocks of successive rows;
    the prediction through a logarithm is the mean of a log-normal variable. A column that the
    others do not predict keeps its logarithm.

    :param Y: outputs [rows, P], NaN where missing; each column has values.
    :param transforms: logarithms of the columns in question; None for the others.
    :return: Booleans [P].
    """
    Y, exponents = below_one(Y, axis=0)
    transforms = [
        None if t is None else Log(float(np.ldexp(t.shift, -exponent)))
        for t, exponent in zip(transforms, exponents.ravel(), strict=True)
    ]
    logged = np.stack(
        [y if t is None else t.forward(y) for y, t in zip(Y.T, transforms, strict=True)], axis=-1
    )
    found = np.zeros(len(transforms), dtype=bool)
    for p, transform in enumerate(transforms):
        if transform is None:
            continue
        plain, through = _squares(Y, p, None), _squares(logged, p, transform)
        gain = through - plain
        doubt = gain.std() / np.sqrt(len(gain))
        useful = plain.mean() < _TELLING * np.nanvar(Y[:, p])
        found[p] = useful and gain.mean() > max(_SURE * doubt, _CLEARLY * through.mean())
    return found


def functions_alike(Y: np.ndarray, logged: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Which columns are to be logarithms, so that functions of each other are all so or none is.

    An area, a circumference and their ratio are linear functions of each other as logarithms; with
    one of them as it is, and the others as logarithms, none is. A column is a function of others if
    a regression leaves less than a tenth of its variance. Of such columns the choice is the one,
    all or none, with the lower cross-validated errors.

    :param Y: outputs [rows, P], NaN where missing.
    :param logged: which are logarithms, Booleans [P].
    :param free: which may become so or cease to be: positive columns.
    :return: Booleans [P].
    """
    columns = np.flatnonzero(free)
    if not 2 <= len(columns) <= _MOST_COLUMNS or logged[columns].all() or not logged.any():
        return logged
    plain, _ = below_one(Y[:, columns], axis=0)
    logs = np.log(plain)
    linked = np.eye(len(columns), dtype=bool)
    for values in (plain, logs):
        for i in range(len(columns)):
            # Medians: in rows where others are missing a function cannot be followed, and one
            # outlier would make a variance of its own.
            left = np.median(_squares(values, i, None))
            spread_out = np.nanmedian(np.square(values[:, i] - np.nanmedian(values[:, i])))
            if left < _FUNCTION * spread_out:
                weights = np.abs(_weights(values, i)) > _TAKES_PART
                linked[i] |= np.insert(weights, i, True)
    linked |= linked.T
    for _ in range(len(columns)):
        linked = linked @ linked  # whatever is linked through others
    found = logged.copy()
    for group in np.unique(linked, axis=0):
        own = columns[group]
        if len(own) < 2 or logged[own].all() or not logged[own].any():
            continue
        units = np.nanvar(plain[:, group], axis=0)
        costs = [
            sum(_squares(values[:, group], i, transform).mean() / units[i] for i in range(len(own)))
            for values, transform in ((plain, None), (logs, Log()))
        ]
        found[own] = costs[1] < costs[0]
    return found


def near_the_range(
    mean: np.ndarray, limits: np.ndarray, unit: np.ndarray | float, logged: np.ndarray | bool
) -> np.ndarray:
    """Predictions, kept near the observed range of their columns [P] or column.

    Logarithms are extrapolated linearly, hence values exponentially: a logarithm is kept within a
    quarter of its standard deviation of the range. Another value is kept within the length of the
    range.

    :param limits: the range [2, P] or [2].
    :param unit: standard deviations.
    :param logged: which columns are logarithms.
    """
    inside = np.clip(mean, limits[0], limits[1])
    beyond = mean - inside
    length = np.maximum(limits[1] - limits[0], 0.0)
    most = BEYOND * np.asarray(unit)
    return inside + np.where(
        logged, most * np.tanh(beyond / most), np.clip(beyond, -length, length)
    )


def _design(values: np.ndarray, p: int) -> np.ndarray:
    """The other columns of the rows where one is observed, standardised, and ones."""
    others = np.delete(values[~np.isnan(values[:, p])], p, axis=1)
    centre, unit = np.nanmean(values, 0), spread(values)
    others = (others - np.delete(centre, p)) / np.delete(unit, p)
    return np.concatenate([np.where(np.isnan(others), 0.0, others), np.ones((len(others), 1))], -1)


def _solved(A: np.ndarray, target: np.ndarray) -> np.ndarray:
    penalty = np.diag([_RIDGE] * (A.shape[1] - 1) + [1e-9])
    return np.linalg.solve(A.T @ A + penalty, A.T @ target)


def _weights(values: np.ndarray, p: int) -> np.ndarray:
    """Coefficients of the other columns in a regression of one, of standardised columns."""
    target = values[~np.isnan(values[:, p]), p]
    return _solved(_design(values, p), target - target.mean())[:-1] / spread(values)[p]


def _squares(values: np.ndarray, p: int, transform: OutputTransform | None) -> np.ndarray:
    """Squared errors of predictions of a column by the others, in its units.

    Predictions are kept near the observed range as filled values are: a single wild extrapolation
    must not decide.
    """
    target, A = values[~np.isnan(values[:, p]), p], _design(values, p)
    limits, unit = np.array([target.min(), target.max()]), float(target.std())
    centre = target.mean()  # or the penalty of the offset would move values far from zero
    moved = target - centre
    missed = np.zeros(len(target))
    for fold in np.array_split(np.arange(len(target)), _FOLDS):
        rest = np.ones(len(target), dtype=bool)
        rest[fold] = False
        weights = _solved(A[rest], moved[rest])
        raw, truth = centre + A[fold] @ weights, target[fold]
        found = near_the_range(raw, limits, unit, transform is not None)
        if transform is not None:
            left = np.mean(np.square(A[rest] @ weights - moved[rest]))
            doubt = left + np.square(np.minimum(np.abs(raw - found), 2.0 * BEYOND * unit))
            found, truth = transform.moments(found, doubt)[0], transform.inverse(truth)
        missed[fold] = found - truth
    return np.square(missed)
