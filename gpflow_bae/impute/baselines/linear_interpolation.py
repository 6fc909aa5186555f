"""Linear interpolation between the nearest observations of the same output.

The rows of a task that agree in all inputs but the first form a series (the days of one station;
all of a recording). Every cell is predicted from its nearest observed neighbours on either side in
its series, never from itself: by the line between the two, by the value of the only one, or, with
none, by the output's mean.

The error depends on the distance of the neighbours. So the variance is the mean squared error of
the same prediction of observed cells, from neighbours as many rows away.
"""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable, Standardiser
from ..model.gaps import series_of

__all__ = ["fit_predict"]

# With fewer residuals from neighbours as far away, the variance is that of the output, which is too
# large rather than too small.
_MIN_RESIDUALS = 10


@check_shapes("table.Y: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
def fit_predict(table: MultiOutputTable, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Interpolation along the first input.

    :param seed: Has no effect; every baseline takes one.
    :raises ValueError: If an output is never observed, or constant.
    """
    scale = Standardiser.fit(table.Y, table.output_names)
    mean, variance = np.full(table.Y.shape, np.nan), np.full(table.Y.shape, np.nan)
    task, row, real = series_of(table)  # [G, L] each
    x = table.X[task, row, 0]
    for p in range(table.num_outputs):
        y = np.where(real, table.Y[task, row, p], np.nan)
        left, right = _nearest(~np.isnan(y))
        predicted = _interpolate(x, y, np.arange(y.shape[1]), left, right, scale.mean[p])
        spread = np.full(y.shape, np.square(scale.std[p]))
        pairs = np.stack([left, right], axis=-1)
        for pair in np.unique(pairs[real], axis=0):
            same = real & (pairs == pair).all(-1)
            if pair.any():
                residuals = _residuals(x, y, *pair)
                if len(residuals) >= _MIN_RESIDUALS:
                    # Predictions of a locally constant series would have no variance.
                    floor = 1e-6 * np.square(scale.std[p])
                    spread[same] = max(float(np.mean(np.square(residuals))), floor)
        mean[task[real], row[real], p] = predicted[real]
        variance[task[real], row[real], p] = spread[real]
    return mean, variance


def _nearest(observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances in places to the next observed cell on the left and right; 0 where none is."""
    places = np.arange(observed.shape[1])
    last = np.maximum.accumulate(np.where(observed, places, -1), axis=1)
    before = np.concatenate([np.full((len(observed), 1), -1), last[:, :-1]], axis=1)
    left = np.where(before >= 0, places - before, 0)
    far = observed.shape[1]
    first = np.minimum.accumulate(np.where(observed, places, far)[:, ::-1], axis=1)[:, ::-1]
    after = np.concatenate([first[:, 1:], np.full((len(observed), 1), far)], axis=1)
    return left, np.where(after < far, after - places, 0)


def _interpolate(
    x: np.ndarray,
    y: np.ndarray,
    places: np.ndarray,
    left: np.ndarray | int,
    right: np.ndarray | int,
    mean: float,
) -> np.ndarray:
    """Predictions [G, K] at ``places [K]`` of all series, from neighbours at these distances."""
    series = np.arange(len(y))[:, None]
    x_left, y_left = x[series, places - left], y[series, places - left]
    x_right, y_right = x[series, places + right], y[series, places + right]
    between = (np.asarray(left) > 0) & (np.asarray(right) > 0)
    slope = (y_right - y_left) / np.where(between, x_right - x_left, 1.0)
    line = y_left + slope * (x[:, places] - x_left)
    one = np.where(np.asarray(left) > 0, y_left, np.where(np.asarray(right) > 0, y_right, mean))
    return np.where(between, line, one)


def _residuals(x: np.ndarray, y: np.ndarray, left: int, right: int) -> np.ndarray:
    """Errors at observed cells whose neighbours at these distances are observed too."""
    places = np.arange(left, y.shape[1] - right)
    residuals = y[:, places] - _interpolate(x, y, places, left, right, np.nan)
    return residuals[~np.isnan(residuals)]
