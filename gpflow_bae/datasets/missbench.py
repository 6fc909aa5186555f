"""Four plain tables of MissBench (Feitelberg et al. 2025), a benchmark of imputation of tables.

Small tables of OpenML whose rows have no order, standardised by what is observed, in which the
benchmark hid cells in three ways; and the imputations that it published with them.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .files import find_files

__all__ = ["PATTERNS", "TABLES", "HiddenTable", "load"]

#: Cells missing at random, by the values of other columns, and by their own values.
PATTERNS = ("mcar", "mar", "mnar")

_ORIGIN = "the benchmark's tables with its hidden cells (Student-Scores.npz, pah.npz, ...)"
_FILES = {
    "Student-Scores": "cbc40b1c9cc85bee832785d4c3380da6461f3044f536f50497f9ac0c8d96609e",
    "analcatdata_gviolence": "17788d1ae187cd781551d382c7b52c82d91c344f6ae594df38d962b5e71e578f",
    "pah": "6043874fd99f6e6638685e67077c7fc00204c17a7541fb64ce57ab22b1ca91f7",
    "pdgfr": "53654f63b87fc9a7940eda1e108c95364c08202296465394c726b11bf117cbd9",
}

#: Names of the tables; of 56 x 13, 74 x 9, 80 x 113 and 79 x 321 cells.
TABLES = tuple(_FILES)

_METHODS = ("column_mean", "softimpute", "hyperimpute", "mcpfn")


class HiddenTable(NamedTuple):
    """A table with hidden cells.

    - Y [N, P]: complete, float64.
    - hidden [N, P]: True where a method must not look, and is scored.
    - published: the table as each method of the benchmark filled it [N, P], by name.
    """

    Y: np.ndarray
    hidden: np.ndarray
    published: Mapping[str, np.ndarray]

    @property
    def observed(self) -> np.ndarray:
        """``Y`` with NaN where it is hidden."""
        return np.where(self.hidden, np.nan, self.Y)


def load(data_dir: str | os.PathLike[str], table: str, pattern: str) -> HiddenTable:
    """Return a table with the hidden cells of a pattern.

    :param data_dir: folder that holds ``missbench`` with the table's file.
    :param table: one of :data:`TABLES`.
    :param pattern: one of :data:`PATTERNS`.
    :raises FileNotFoundError: if the file is missing.
    :raises ValueError: if it is not the expected one, or for an unknown name.
    """
    for what, name, known in (("table", table, TABLES), ("pattern", pattern, PATTERNS)):
        if name not in known:
            raise ValueError(f"{what} must be one of {known}, got {name!r}.")
    file_name = f"{table}.npz"
    (path,) = find_files(data_dir, "missbench", {file_name: _FILES[table]}, _ORIGIN)
    with np.load(path) as file:
        Y = file[f"{pattern}_true"].astype(float)
        hidden = np.isnan(file[f"{pattern}_missing"]) & ~np.isnan(Y)
        filled = {name: file[f"{pattern}_{name}"].astype(float) for name in _METHODS}
    return HiddenTable(Y, hidden, filled)
