"""Healing MNIST: sequences of a digit that turns, with noise on its pixels and frames missing.

Krishnan, Shalit and Sontag (2015), "Deep Kalman filters", made the data; Fortuin et al. (2020),
"GP-VAE: Deep probabilistic time series imputation", fill missing pixels of such sequences with ten
frames. As in the code released with the latter a digit turns by independent normal steps and is
binarised. What is ours: each frame is turned from the digit itself by the sum of the steps, where
the released code turns the frame before once more, which blurs; pixels are flipped at random, as
Krishnan et al. have it, where that code leaves them; and what is missing are whole frames.
"""

import os
from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes
from scipy import ndimage

from ..arguments import check_integer, check_positive
from . import mnist

__all__ = ["HealingMNIST", "build", "load"]


class HealingMNIST(NamedTuple):
    """Sequences of one digit each, and what they would be without holes and without noise.

    - X [T, N, 1]: frame numbers 0, 1, ..., N - 1, float64; the same for each of the T sequences.
    - Y [T, N, H * W]: pixels, 0 or 1, float32, NaN in missing frames; rows of the image one after
      the other.
    - complete [T, N, H * W]: the same with the missing frames, noise included.
    - truth [T, N, H * W]: without flipped pixels.
    - angles [T, N]: of each frame, radians, anticlockwise, float64.
    - labels [T]: of the digits.
    """

    X: np.ndarray
    Y: np.ndarray
    complete: np.ndarray
    truth: np.ndarray
    angles: np.ndarray
    labels: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Which frames are missing: Booleans [T, N]."""
        return np.isnan(self.Y).all(-1)


def load(
    data_dir: str | os.PathLike[str],
    num_train: int = 4000,
    num_test: int = 1000,
    *,
    num_frames: int = 10,
    step: float = 20.0,
    flips: float = 0.1,
    missing: float = 0.4,
    seed: int = 0,
) -> tuple[HealingMNIST, HealingMNIST]:
    """Training and test sequences, of digits that differ, drawn from MNIST's training images.

    :param data_dir: Folder that holds ``mnist``.
    :raises FileNotFoundError: If a file of MNIST is missing.
    :raises ValueError: As :func:`build`, which has the other arguments.
    """
    images, labels = mnist.load_train(data_dir)
    return build(
        images,
        labels,
        num_train,
        num_test,
        num_frames=num_frames,
        step=step,
        flips=flips,
        missing=missing,
        seed=seed,
    )


@check_shapes("images: [digits, H, W]", "labels: [digits]")
def build(
    images: np.ndarray,
    labels: np.ndarray,
    num_train: int,
    num_test: int,
    *,
    num_frames: int = 10,
    step: float = 20.0,
    flips: float = 0.1,
    missing: float = 0.4,
    seed: int = 0,
) -> tuple[HealingMNIST, HealingMNIST]:
    """Draws digits, turns them, flips pixels and leaves frames out.

    The test sequences do not depend on ``num_train``.

    :param images: Grey values 0 to 255; above 127 a pixel is 1.
    :param labels: The digit on each image.
    :param num_train: Training sequences, each of a digit that no other sequence shows.
    :param num_test: Test sequences, likewise.
    :param num_frames: N.
    :param step: Standard deviation of the angle between a frame and the next, and between the first
        and the upright digit, in degrees.
    :param flips: Share of the pixels that show the other value, each independently.
    :param missing: Share of the frames of each sequence that are missing, rounded to whole frames.
    :param seed: Of everything; an integer >= 0.
    :return: The training sequences and the test sequences.
    :raises ValueError: If an argument is out of range, there are fewer images than sequences, or
        no frame would be left.
    """
    check_integer("num_train", num_train, 1)
    check_integer("num_test", num_test, 1)
    check_integer("num_frames", num_frames, 1)
    check_integer("seed", seed, 0)
    check_positive(may_be_zero=True, step=step, flips=flips, missing=missing)
    if flips >= 0.5:
        raise ValueError(f"flips is {flips}; it must lie in [0, 0.5), or nothing is left to see.")
    if not round(missing * num_frames) < num_frames:
        raise ValueError(
            f"missing is {missing}, all of the {num_frames} frames; at least one must be left. "
            "Lower it."
        )
    if num_train + num_test > len(images):
        raise ValueError(
            f"num_train is {num_train} and num_test {num_test}; their sum must be at most "
            f"{len(images)}, the number of images. Ask for fewer."
        )
    order, *streams = np.random.SeedSequence(int(seed)).spawn(3)
    chosen = np.random.default_rng(order).permutation(len(images))
    test, train = chosen[:num_test], chosen[num_test : num_test + num_train]
    made = []
    for rows, stream in zip((train, test), streams, strict=True):
        rng = np.random.default_rng(stream)
        angles = np.cumsum(rng.normal(0.0, np.deg2rad(step), (len(rows), num_frames)), axis=1)
        truth = _turned(images[rows], angles)
        flipped = rng.random(truth.shape) < flips
        complete = np.where(flipped, 1.0 - truth, truth).astype(np.float32)
        # The frames with the smallest of N random numbers: any set of them is as likely.
        rank = rng.random(angles.shape).argsort(1).argsort(1)
        gone = rank < round(missing * num_frames)
        Y = np.where(gone[..., None], np.float32(np.nan), complete)
        times = np.arange(num_frames, dtype=np.float64)[:, None]
        X = np.tile(times, (len(rows), 1, 1))
        made.append(HealingMNIST(X, Y, complete, truth, angles, labels[rows]))
    return made[0], made[1]


def _turned(images: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Images [T, H, W], binarised after a turn by ``angles [T, N]``: [T, N, H * W], float32."""
    frames = np.empty((*angles.shape, images[0].size), np.float32)
    for image, turns, found in zip(images, angles, frames, strict=True):
        for n, degrees in enumerate(np.rad2deg(turns)):
            turned = ndimage.rotate(image.astype(np.float32), degrees, reshape=False, order=1)
            found[n] = (turned > 127.0).reshape(-1)
    return frames
