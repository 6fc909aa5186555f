"""SPE10: porosity and permeability of a model of an oil reservoir (Christie and Blunt 2001).

The second data set of the tenth SPE comparative solution project: a grid of 60 x 220 x 85 cells of
20 x 10 x 2 feet, with a porosity and a permeability along each axis. Shi et al. (2025),
"Neighbour-driven Gaussian process variational autoencoders for scalable structured latent
modelling", take every second cell along each axis, 30 x 110 x 43, the logarithms of permeabilities,
and hide half of all numbers; so does :func:`load`. What is hidden is drawn by another generator.

Download ``por_perm_case2a.zip`` from the page of the project (spe.org, "SPE Comparative Solution
Project", data set 2), and put its ``spe_phi.dat`` and ``spe_perm.dat`` into ``spe10`` in your data
folder: plain numbers, x running fastest, then y, then z; the permeabilities of all cells along x,
then those along y, then along z.
"""

import os
import pathlib

import numpy as np
from check_shapes import check_shapes

from ..arguments import check_integer
from ..data import MultiOutputTable
from .files import find_files

__all__ = ["OUTPUTS", "SHAPE", "load"]

SHAPE = (60, 220, 85)  # cells along x, y and z
OUTPUTS = ("porosity", "log_permeability_x", "log_permeability_y", "log_permeability_z")
_ORIGIN = "por_perm_case2a.zip of the SPE Comparative Solution Project, data set 2"


@check_shapes("return.X: [1, N, 3]", "return.Y: [1, N, 4]")
def load(
    data_dir: str | os.PathLike[str], every: int = 2, missing: float = 0.5, seed: int = 0
) -> MultiOutputTable:
    """One task: places in cells of the thinned grid, and four outputs, of which a share is hidden.

    :param data_dir: Folder that holds ``spe10`` with ``spe_phi.dat`` and ``spe_perm.dat``.
    :param every: Cells along each axis of which one is taken; 2 leaves 141,900.
    :param missing: Share of all numbers that is hidden, at random, and is the test.
    :param seed: Of what is hidden.
    :raises FileNotFoundError: If a file is missing.
    :raises ValueError: If a file does not hold as many numbers as there are cells, or a
        permeability that is not positive; for arguments out of range.
    """
    check_integer("every", every, 1, min(SHAPE))
    if not 0.0 < missing < 1.0:
        raise ValueError(f"missing is {missing!r}; it must lie strictly between 0 and 1.")
    paths = find_files(data_dir, "spe10", ("spe_phi.dat", "spe_perm.dat"), _ORIGIN)
    porosity, permeability = (_read(p, n) for p, n in zip(paths, (1, 3), strict=True))
    if not np.all(permeability > 0.0):
        raise ValueError(
            f"{paths[1]} holds permeabilities of {permeability.min():g}; their logarithms are "
            f"taken, so all must be positive. Copy it again from {_ORIGIN}."
        )
    fields = np.concatenate([porosity, np.log(permeability)])[:, ::every, ::every, ::every]
    truth = fields.reshape(len(OUTPUTS), -1).T[None]
    axes = [np.arange(n, dtype=float) for n in fields.shape[1:]]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, 3)
    hidden = np.random.default_rng(seed).random(truth.shape) < missing
    return MultiOutputTable(
        X=X,
        Y=np.where(hidden, np.nan, truth),
        truth=truth,
        test_mask=hidden,
        output_names=OUTPUTS,
        input_names=("x", "y", "z"),
    )


def _read(path: pathlib.Path, count: int) -> np.ndarray:
    """Fields [count, x, y, z]."""
    values = np.fromfile(path, sep=" ")
    expected = count * int(np.prod(SHAPE))
    if len(values) != expected:
        raise ValueError(
            f"{path} holds {len(values)} numbers, and {count} times {' x '.join(map(str, SHAPE))} "
            f"= {expected} were expected. Copy it again from {_ORIGIN}."
        )
    return values.reshape(count, *SHAPE[::-1]).transpose(0, 3, 2, 1)
