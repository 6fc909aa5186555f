"""Hide other cells of TSI-Bench's windows, by the benchmark's own tool and settings.

python -m benchmarks.tsi_masks --seed=2025 --data_dir=DATA

``DATA/tsi_bench`` gets a file for each data set, ``italy_air_2025.npz`` and so on, which
``python -m experiments.tsi_bench --mask_seed=2025`` reads. ``pip install pygrinder`` has the tool;
it needs PyTorch, and an environment of its own is enough: nothing of gpflow_bae is imported here.
"""

from __future__ import annotations

import pathlib

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS

#: Arguments of the subsequence and block patterns, from the scripts of the benchmark.
_SUBSEQUENCE = {"italy_air": 8, "ett_h1": 36}
_BLOCK = {
    "italy_air": {"factor": 0.07, "block_len": 4, "block_width": 4},
    "ett_h1": {"factor": 0.36, "block_len": 6, "block_width": 6},
}


def hidden(dataset: str, pattern: str, Y: np.ndarray) -> np.ndarray:
    """Which cells of windows [T, N, P] a pattern hides: Booleans."""
    import pygrinder

    if pattern.startswith("point"):
        found = pygrinder.mcar(Y, int(pattern[-2:]) / 10)
    elif pattern == "subseq05":
        found = pygrinder.seq_missing(Y, 0.5, _SUBSEQUENCE[dataset])
    else:
        found = pygrinder.block_missing(Y, **_BLOCK[dataset])
    return np.isnan(found)


def main(argv: list[str]) -> None:
    """Write a file for each data set."""
    folder = pathlib.Path(FLAGS.data_dir) / "tsi_bench"
    for dataset in ("italy_air", "ett_h1"):
        with np.load(folder / f"{dataset}.npz") as file:
            arrays = {part: file[part] for part in ("train", "val", "test")}
        masks = {}
        for pattern in ("point01", "point05", "point09", "subseq05", "block05"):
            np.random.seed(FLAGS.seed)  # noqa: NPY002  (the tool draws from it)
            for part, Y in arrays.items():
                masks[f"{pattern}_{part}"] = np.packbits(hidden(dataset, pattern, Y))
        path = folder / f"{dataset}_{FLAGS.seed}.npz"
        np.savez_compressed(path, **arrays, **masks)
        print(path)


if __name__ == "__main__":
    flags.DEFINE_integer("seed", 2025, "Of the hidden cells.", lower_bound=0)
    flags.DEFINE_string("data_dir", None, "Folder that holds tsi_bench.", required=True)
    app.run(main)
