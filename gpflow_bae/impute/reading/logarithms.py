"""Whether columns that a logarithm makes symmetric are better seen as they are.

A skewed column may still be a sum of what makes the others: then it is predicted better as it is,
and a prediction of its logarithm, taken back, is wrong most where its values are large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.arguments import spread
from ...core.output_transforms import OutputTransform

__all__ = ["better_as_they_are"]

_FOLDS = 10
_RIDGE = 1.0  # pseudo-observations of zero for each coefficient
_CLEARLY = 0.04  # share of the mean squared error that must be gained
_TELLING = 0.9  # share of a column's variance, of which the others must leave less
_SURE = 1.0  # standard errors that the gain must have: a few large values often make all of it


def better_as_they_are(Y: np.ndarray, transforms: Sequence[OutputTransform | None]) -> np.ndarray:
    """Which columns a linear regression on the others predicts clearly better untransformed: [P].

    Errors are those of a cross-validation in ten runs of rows, in the units of the column; the mean
    of what is predicted through a logarithm is that of a log-normal variable. A column that nothing
    else tells of stays what it was.

    :param Y: outputs [rows, P], NaN where missing.
    :param transforms: of the columns in question; None for the others.
    """
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


def _squares(values: np.ndarray, p: int, transform: OutputTransform | None) -> np.ndarray:
    """Squared errors of a column's cells, in its units, when others predict it."""
    shown = ~np.isnan(values[:, p])
    target = values[shown, p]
    others = np.delete(values[shown], p, axis=1)
    limits = [
        v if transform is None else transform.inverse(v) for v in (target.min(), target.max())
    ]
    centre, unit = np.nanmean(values, 0), spread(values)
    others = (others - np.delete(centre, p)) / np.delete(unit, p)
    A = np.concatenate([np.where(np.isnan(others), 0.0, others), np.ones((len(target), 1))], -1)
    penalty = np.diag([_RIDGE] * (A.shape[1] - 1) + [1e-9])
    missed = np.zeros(len(target))
    for fold in np.array_split(np.arange(len(target)), _FOLDS):
        rest = np.ones(len(target), dtype=bool)
        rest[fold] = False
        weights = np.linalg.solve(A[rest].T @ A[rest] + penalty, A[rest].T @ target[rest])
        found, truth = A[fold] @ weights, target[fold]
        if transform is not None:
            left = np.mean(np.square(A[rest] @ weights - target[rest]))
            found = transform.moments(found, np.full(found.shape, left))[0]
            truth = transform.inverse(truth)
        # One wild extrapolation must not decide.
        found = np.clip(found, *limits)
        missed[fold] = found - truth
    return np.square(missed)
