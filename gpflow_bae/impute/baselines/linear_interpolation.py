"""Linear interpolation between the nearest observations of the same output.

The rows of a task that agree in all inputs but the first form a series (the days of one station;
all of a recording). Every cell is predicted from its nearest observed neighbours on either side in
its series, never from itself: by the line between the two, by the value of the only one, or, with
none, by the output's mean. With a period, such as a day, a series is only of rows at the same time
of the day.

The error depends on the distance of the neighbours. So the variance is the mean squared error of
the same prediction of observed cells, from neighbours as many rows away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from check_shapes import check_shapes

from ...data import MultiOutputTable

__all__ = ["Lines", "series_of"]

# With fewer residuals from neighbours as far away, the variance is that of the output, which is too
# large rather than too small.
_MIN_RESIDUALS = 10
# Cells of a column of which errors are measured, for each pair of distances and for all of them.
_MOST_RESIDUALS, _MOST_OF_COLUMN = 2_000, 5_000_000
_FLOOR = 1e-6  # predictions of a locally constant series would have no variance


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """Errors of the interpolation of standardised outputs.

    * pairs [K, 2]: distances in rows of the neighbours before and after; 0 where there is none.
    * squares [K, P]: mean squared errors of predictions from neighbours as far away.
    * day, step: length of a day and distance of rows, in units of the first input, if only rows at
      the same time of the day are a series; None otherwise.
    """

    pairs: np.ndarray
    squares: np.ndarray
    day: float | None = None
    step: float | None = None

    @classmethod
    def fit(
        cls, table: MultiOutputTable, day: float | None = None, step: float | None = None
    ) -> Lines:
        """Measure the errors at the observed cells of a table of standardised outputs."""
        task, row, real = _series(table, day, step)
        x, Y = table.X[task, row, 0], np.where(real[..., None], table.Y[task, row], np.nan)
        found: dict[tuple[int, int], np.ndarray] = {}
        for p in range(table.num_outputs):
            y = Y[..., p]
            before, after = _nearest(~np.isnan(y))
            pairs = _distinct(before[real], after[real])[0]
            most = max(_MOST_RESIDUALS, _MOST_OF_COLUMN // max(len(pairs), 1))
            for left, right in pairs.tolist():
                residuals = _residuals(x, y, left, right, most) if left or right else np.zeros(0)
                if len(residuals) >= _MIN_RESIDUALS:
                    own = found.setdefault((left, right), np.ones(table.num_outputs))
                    own[p] = max(float(np.mean(np.square(residuals))), _FLOOR)
        pairs = np.array(list(found), dtype=int).reshape(-1, 2)
        squares = np.array(list(found.values())).reshape(len(pairs), table.num_outputs)
        return cls(pairs, squares, day, step)

    @check_shapes("table.Y: [T, N, P]", "return[0]: [T, N, P]", "return[1]: [T, N, P]")
    def predict(
        self, table: MultiOutputTable, features: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Moments of all cells of a table of standardised outputs; NaN in padding.

        :param features: have no effect; other methods have the calendar's.
        """
        mean, variance = np.full(table.Y.shape, np.nan), np.full(table.Y.shape, np.nan)
        task, row, real = _series(table, self.day, self.step)
        x = table.X[task, row, 0]
        known = {tuple(pair): i for i, pair in enumerate(self.pairs.tolist())}
        for p in range(table.num_outputs):
            y = np.where(real, table.Y[task, row, p], np.nan)
            left, right = _nearest(~np.isnan(y))
            predicted = _interpolate(x, y, np.arange(y.shape[1]), left, right, 0.0)
            pairs, which = _distinct(left[real], right[real])
            places = [known.get(tuple(pair)) for pair in pairs.tolist()]
            squares = np.array([1.0 if i is None else self.squares[i, p] for i in places])
            mean[task[real], row[real], p] = predicted[real]
            variance[task[real], row[real], p] = squares[which]
        return mean, variance

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name, as :meth:`from_arrays` takes them."""
        times = [np.nan if t is None else t for t in (self.day, self.step)]
        return {"pairs": self.pairs, "squares": self.squares, "times": np.array(times)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Lines:
        """The inverse of :meth:`to_arrays`."""
        day, step = (None if np.isnan(t) else float(t) for t in arrays["times"])
        return cls(arrays["pairs"], arrays["squares"], day, step)


@check_shapes("left: [n]", "right: [n]", "return[0]: [K, 2]", "return[1]: [n]")
def _distinct(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of numbers from 0, and the number of each pair among them."""
    width = int(right.max(initial=0)) + 1  # as one number, whose sorting is much faster
    codes, which = np.unique(left * width + right, return_inverse=True)
    return np.stack(np.divmod(codes, width), axis=-1), which.ravel()


def series_of(table: MultiOutputTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the task and of the row [G, L] of each place of each series.

    The rows of a task that agree in all inputs but the first form a series, in the order of the
    first input: the days of one station, all of a recording, or a single row where inputs are
    coordinates. Without inputs each row is a series; they are ordered by their cells, so that the
    order of rows has no effect. The third array is False where a series is shorter than L.
    """
    series = []
    for t, (inputs, length) in enumerate(zip(table.X, table.lengths, strict=True)):
        inputs = inputs[:length]
        if inputs.shape[1] == 0:
            cells = np.nan_to_num(table.Y[t, :length], nan=np.inf)
            series += [(t, np.array([row])) for row in np.lexsort(cells.T)]
            continue
        _, group = np.unique(inputs[:, 1:], axis=0, return_inverse=True)
        ordered = np.lexsort((inputs[:, 0], group.ravel()))
        ends = np.cumsum(np.bincount(group.ravel()))[:-1]
        series += [(t, rows) for rows in np.split(ordered, ends)]
    longest = max(len(rows) for _, rows in series)
    task, row = np.zeros((2, len(series), longest), dtype=int)
    real = np.zeros((len(series), longest), dtype=bool)
    for i, (t, rows) in enumerate(series):
        task[i], row[i, : len(rows)], real[i, : len(rows)] = t, rows, True
    return task, row, real


def _series(
    table: MultiOutputTable, day: float | None, step: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Series of rows (:func:`series_of`), of one time of day if the day is given."""
    if day is None or step is None:
        return series_of(table)
    x = table.X[..., 0]
    places = np.round((x - x.min()) / step).astype(int)
    apart = (places % max(1, round(day / step)))[..., None]
    X = np.concatenate([table.X, apart], axis=-1)
    return series_of(dataclasses.replace(table, X=X, input_names=()))


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


def _residuals(x: np.ndarray, y: np.ndarray, left: int, right: int, most: int) -> np.ndarray:
    """Errors at observed cells whose neighbours at these distances are observed too.

    Of more than ``most`` cells evenly spaced ones are taken.
    """
    places = np.arange(left, y.shape[1] - right)
    most = max(1, most // len(y))
    if len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(int)]
    residuals = y[:, places] - _interpolate(x, y, places, left, right, np.nan)
    return residuals[~np.isnan(residuals)]
