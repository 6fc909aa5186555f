"""Whether skewed columns are predicted better untransformed than as logarithms.

A skewed column may still be a sum of the sources of the other columns. It is then predicted better
untransformed, because predictions of its logarithm have the largest errors where values are large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.arguments import below_one, spread
from ...core.output_transforms import Log

__all__ = ["better_as_they_are"]

_FOLDS = 10
_RIDGE = 1.0  # pseudo-observations of zero for each coefficient
_CLEARLY = 0.04  # least gain, as a share of the mean squared error
_TELLING = 0.9  # largest share of a column's variance that may remain, given the other columns
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


def _squares(values: np.ndarray, p: int, transform: Log | None) -> np.ndarray:
    """Squared errors of predictions of a column by the others, in its units."""
    shown = ~np.isnan(values[:, p])
    target = values[shown, p]
    others = np.delete(values[shown], p, axis=1)
    limits = [
        v if transform is None else transform.inverse(v) for v in (target.min(), target.max())
    ]
    centre, unit = np.nanmean(values, 0), spread(values)
    target = target - centre[p]  # or the penalty of the offset would move values far from zero
    others = (others - np.delete(centre, p)) / np.delete(unit, p)
    A = np.concatenate([np.where(np.isnan(others), 0.0, others), np.ones((len(target), 1))], -1)
    penalty = np.diag([_RIDGE] * (A.shape[1] - 1) + [1e-9])
    missed = np.zeros(len(target))
    for fold in np.array_split(np.arange(len(target)), _FOLDS):
        rest = np.ones(len(target), dtype=bool)
        rest[fold] = False
        weights = np.linalg.solve(A[rest].T @ A[rest] + penalty, A[rest].T @ target[rest])
        found, truth = centre[p] + A[fold] @ weights, values[shown, p][fold]
        if transform is not None:
            left = np.mean(np.square(A[rest] @ weights - target[rest]))
            found = transform.moments(found, np.full(found.shape, left))[0]
            truth = transform.inverse(truth)
        # A single wild extrapolation must not decide.
        found = np.clip(found, *limits)
        missed[fold] = found - truth
    return np.square(missed)
