"""MNIST at 14 x 14 with pixels missing at random (GPLVF, Lalchand et al.)."""

import dataclasses
import os

import numpy as np

from . import mnist

__all__ = ["MissingImages", "load"]


@dataclasses.dataclass(frozen=True)
class MissingImages:
    """Images ``Y [N, 196]`` in [0, 1], NaN where missing; complete ``truth``; ``labels [N]``."""

    Y: np.ndarray
    truth: np.ndarray
    labels: np.ndarray

    @property
    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and true values [K] of the missing pixels."""
        rows, columns = np.nonzero(np.isnan(self.Y))
        return rows, columns, self.truth[rows, columns]


def load(
    data_dir: str | os.PathLike[str],
    num_images: int = 5000,
    missing: float = 0.4,
    seed: int = 0,
) -> MissingImages:
    """Read training digits, averaged over 2 x 2 pixels, and hide some of the pixels.

    :param num_images: number of images, drawn at random from the 60 000.
    :param missing: fraction of pixels, each hidden independently.
    :param seed: seed of the images and the hidden pixels.
    :raises ValueError: If an argument is out of range, or a pixel is hidden in every image.
    """
    images, labels = mnist.load_train(data_dir)
    if not 1 <= num_images <= len(images):
        raise ValueError(f"num_images is {num_images}; expected 1 to {len(images)}.")
    if not 0.0 <= missing < 1.0:
        raise ValueError(f"missing is {missing}; it must lie in [0, 1).")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(images))[:num_images]
    blocks = images[chosen].reshape(-1, 14, 2, 14, 2).astype(np.float64) / 255.0
    truth = blocks.mean(axis=(2, 4)).reshape(num_images, -1)
    Y = np.where(rng.random(truth.shape) < missing, np.nan, truth)
    if np.isnan(Y).all(0).any() or np.isnan(Y).all(1).any():
        raise ValueError(
            f"With missing = {missing} of {num_images} images a pixel or an image is hidden "
            "entirely; hide less, or take more images."
        )
    return MissingImages(Y, truth, labels[chosen].astype(np.int64))
