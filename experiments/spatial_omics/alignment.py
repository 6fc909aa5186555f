"""Correlate the embeddings of two runs, of other minibatches, seeds, or another order of rows.

python -m experiments.spatial_omics.alignment RUN_DIR OTHER_RUN_DIR

Both runs must be of the same cells. The embedding of one is turned onto that of the other: of
``obsm["X_gpbae_space"]`` (places), and of codes.
"""

import pathlib

import numpy as np
from absl import app

from experiments.spatial_omics.scores import aligned_correlation


def main(argv: list[str]) -> None:
    """Print correlations of how places differ, of the channels of space, and of all."""
    if len(argv) != 3:
        raise app.UsageError("Expected two folders of runs.")
    one, other = (dict(np.load(pathlib.Path(folder) / "arrays.npz")) for folder in argv[1:])
    if one["codes"].shape != other["codes"].shape:
        raise app.UsageError(
            f"The runs are of codes {one['codes'].shape} and {other['codes'].shape}, not the same."
        )
    number = int(one["num_spatial"])
    for name, key, chosen in (
        ("places", "places", slice(None)),
        ("channels of space", "codes", slice(0, number)),
        ("all channels", "codes", slice(None)),
    ):
        found = aligned_correlation(one[key][:, chosen], other[key][:, chosen])
        print(f"{name}: {found:.4f}")


if __name__ == "__main__":
    app.run(main)
