"""Jura: concentrations of metals in the topsoil of the Swiss Jura (Goovaerts, 1997).

Nickel and zinc are known at all 359 sites, cadmium at 259 of them; it is predicted at the other
100. This is Goovaerts's split, which Ashman et al. (2020), "Sparse Gaussian process variational
autoencoders", and Tran et al. (2023) use.
"""

import csv
import os
import pathlib

import numpy as np
from check_shapes import check_shapes

from ..data import MultiOutputTable
from .files import find_files

__all__ = ["load"]

_ORIGIN = "https://github.com/tranbahien/sgp-bae, folder data/jura"
_SHA256 = {
    "prediction.dat": "ac09ef5312f2b8864abad54908eb920692b22a75fcad93bea2860fd72c38016e",
    "validation.dat": "c86380abc391c731fafd0ba778eaacda4bfeaa72b71d5723821acc6d9a13d3b2",
}
_INPUTS, _OUTPUTS = ("Xloc", "Yloc"), ("Ni", "Zn", "Cd")


@check_shapes("return.X: [1, N, 2]", "return.Y: [1, N, 3]")
def load(data_dir: str | os.PathLike[str]) -> MultiOutputTable:
    """Read the table of 359 sites: one task, inputs in kilometres, outputs Ni, Zn, Cd in ppm.

    The 259 prediction sites come first, then the 100 validation sites, whose Cd is the test.
    Inputs are as published, not standardised.

    :param data_dir: Folder that holds ``jura`` with ``prediction.dat`` and ``validation.dat``.
    :raises FileNotFoundError: If a file is missing.
    :raises ValueError: If a file is not the published one.
    """
    shown, tested = map(_read, find_files(data_dir, "jura", _SHA256, _ORIGIN))
    rows = np.concatenate([shown, tested])[None]
    truth = rows[..., len(_INPUTS) :]
    mask = np.zeros(truth.shape, dtype=bool)
    mask[:, len(shown) :, _OUTPUTS.index("Cd")] = True
    table = MultiOutputTable(
        X=rows[..., : len(_INPUTS)], Y=truth, output_names=_OUTPUTS, input_names=_INPUTS
    )
    return table.hide(mask)


def _read(path: pathlib.Path) -> np.ndarray:
    with open(path, newline="", encoding="ascii") as file:
        return np.array(
            [[float(row[name]) for name in _INPUTS + _OUTPUTS] for row in csv.DictReader(file)]
        )
