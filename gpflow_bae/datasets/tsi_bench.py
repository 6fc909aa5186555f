"""Two data sets of TSI-Bench (Du et al. 2024), a benchmark of imputation of time series.

Windows of hourly measurements, standardised by the training part, whose hidden cells were chosen by
the benchmark's own tools. A method learns from the training windows, and fills each test window
from the cells that are observed in it.
"""

import os
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from .files import find_files

__all__ = ["DATASETS", "MASK_SEED", "PATTERNS", "Windows", "load"]

#: Air quality in an Italian city (UCI; windows of 12 hours, 13 columns), and the oil temperature
#: and loads of a transformer (ETTh1; windows of 48 hours, 7 columns).
DATASETS = ("italy_air", "ett_h1")

#: 10, 50 and 90 % of all points, and half of the cells in subsequences or in blocks.
PATTERNS = ("point01", "point05", "point09", "subseq05", "block05")

#: Seed of the hidden cells in the data sets' own files, that of the benchmark's scripts.
MASK_SEED = 2024

_ORIGIN = "the benchmark's two data sets with its masks (italy_air.npz, ett_h1.npz)"
_FILES = {
    "italy_air.npz": "78990405198474dabaf2e8835626501123c665c371cb16baa918aa1b583ca4ea",
    "ett_h1.npz": "b0c34815cc746fe101f03c56daed9398e7601b8df6ad1369ea6d3449b62b4d08",
}


class Windows(NamedTuple):
    """The windows of one part of a data set.

    - Y [T, N, P]: complete, float64.
    - hidden [T, N, P]: True where a method must not look, and is scored.
    """

    Y: np.ndarray
    hidden: np.ndarray

    @property
    def observed(self) -> np.ndarray:
        """``Y`` with NaN where it is hidden."""
        return np.where(self.hidden, np.nan, self.Y)


def load(
    data_dir: str | os.PathLike[str], dataset: str, pattern: str, mask_seed: int = MASK_SEED
) -> dict[str, Windows]:
    """The windows of ``"train"``, ``"val"`` and ``"test"``.

    :param data_dir: folder that holds ``tsi_bench`` with the data set's file.
    :param dataset: one of :data:`DATASETS`.
    :param pattern: of hidden cells, one of :data:`PATTERNS`.
    :param mask_seed: of another one the file ``DATASET_SEED.npz`` beside the data set's own is
        read, which ``python -m benchmarks.tsi_masks`` writes.
    :raises FileNotFoundError: if the file is missing.
    :raises ValueError: if it is not the expected one, or for an unknown name.
    """
    for what, name, known in (("dataset", dataset, DATASETS), ("pattern", pattern, PATTERNS)):
        if name not in known:
            raise ValueError(f"{what} must be one of {known}, got {name!r}.")
    name = f"{dataset}.npz" if mask_seed == MASK_SEED else f"{dataset}_{mask_seed}.npz"
    (path,) = find_files(data_dir, "tsi_bench", {name: _FILES.get(name, "")}, _ORIGIN)
    with np.load(path) as file:
        return {
            part: Windows(
                file[part].astype(float), _unpacked(file[f"{pattern}_{part}"], file[part])
            )
            for part in ("train", "val", "test")
        }


@check_shapes("like: [T, N, P]", "return: [T, N, P]")
def _unpacked(bits: np.ndarray, like: np.ndarray) -> np.ndarray:
    """A mask of which eight cells are one byte."""
    return np.unpackbits(bits)[: like.size].reshape(like.shape).astype(bool)
