"""The series of a table: rows of a task that follow each other along the first input."""

from __future__ import annotations

import numpy as np

from ...data import MultiOutputTable

__all__ = ["series_of"]


def series_of(table: MultiOutputTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Task and row of each place of each series, in the order of the first input: [G, L].

    The rows of a task that agree in all inputs but the first form a series (the days of one
    station; all of a recording; a single row, where inputs are coordinates). The third array is
    False where a series is shorter than L.
    """
    series = []
    for t, (inputs, length) in enumerate(zip(table.X, table.lengths, strict=True)):
        inputs = inputs[:length]
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
