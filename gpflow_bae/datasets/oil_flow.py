"""Three-phase oil flow (Bishop and James, 1993): twelve measurements, three flow regimes."""

import os

import numpy as np
from check_shapes import check_shapes

from .files import find_files

__all__ = ["REGIMES", "load"]

#: Flow regimes of oil, water and gas in the pipe, in the order of the labels (from the data's own
#: description; the measurements of label 0 are linear in the fractions, as only a mixture's are).
REGIMES = ("homogeneous", "annular", "stratified")

_ORIGIN = "https://github.com/renero/class_notebooks, folder data (DataTrn.txt and its kin)"
_FILE = {"oil_flow.npz": "ee205f198cee1d31df8b97fac72f911a6efcf7b17f2aed2cb23f0e76d438d90f"}


@check_shapes("return[0]: [N, 12]", "return[1]: [N]")
def load(data_dir: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the 1000 training points, standardised per column, and their regimes (:data:`REGIMES`).

    :param data_dir: Folder that holds ``oil_flow`` with ``oil_flow.npz``.
    :raises FileNotFoundError: If the file is missing.
    :raises ValueError: If it is not the expected one.
    """
    (path,) = find_files(data_dir, "oil_flow", _FILE, _ORIGIN)
    with np.load(path) as file:
        Y, labels = file["train"], file["train_labels"]
    return (Y - Y.mean(0)) / Y.std(0), labels.argmax(1)
