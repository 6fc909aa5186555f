"""The moving ball: videos of a disc whose centre follows two independent Gaussian processes.

The data set of Pearce (2019), "The Gaussian process prior VAE for interpretable latent dynamics
from pixels", as used by Jazbec et al. (2021) and Tran et al. (2023): the true trajectory is known,
so a model of the pixels can be scored on the latent path that it recovers.
"""

from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..core.arguments import check_integer, check_positive

__all__ = ["MovingBall", "generate", "load", "render", "sample_trajectories"]


class MovingBall(NamedTuple):
    """Videos of one ball, and its true trajectories.

    - X [T, N, 1]: frame times 0, 1, ..., N - 1, float64; the same for each of the T videos.
    - Y [T, N, H * W]: pixels, 0 or 1, float32, rows of the image one after the other.
    - trajectories [T, N, 2]: the GP draws (horizontal, vertical), float64, in units of the prior's
      standard deviation (not pixels).
    """

    X: np.ndarray
    Y: np.ndarray
    trajectories: np.ndarray


def load(seed: int = 0, num_train: int = 35, num_test: int = 35) -> tuple[MovingBall, MovingBall]:
    """Generate training and test videos with the published settings.

    The two sets use separate streams of the seed, video by video: the test videos do not depend on
    ``num_train``, and a larger set starts with the videos of a smaller one.

    :param seed: Any integer >= 0.
    :param num_train: Number of training videos.
    :param num_test: Number of test videos.
    :return: The training set and the test set.
    :raises ValueError: If an argument is out of range.
    """
    check_integer("num_train", num_train, 1)
    check_integer("num_test", num_test, 1)
    check_integer("seed", seed, 0)
    train_seed, test_seed = np.random.SeedSequence(int(seed)).spawn(2)
    return generate(train_seed, num_videos=num_train), generate(test_seed, num_videos=num_test)


@check_shapes(
    "return.X: [T, N, 1]",
    "return.Y: [T, N, P]",
    "return.trajectories: [T, N, 2]",
)
def generate(
    seed: int | np.random.SeedSequence,
    num_videos: int = 35,
    num_frames: int = 30,
    lengthscale: float = 2.0,
    image_size: int = 32,
    scale: float = 6.4,
    radius: float = 3.0,
) -> MovingBall:
    """Draw trajectories from the GP prior and render them.

    :param seed: Seed of the trajectories; an integer >= 0 or a NumPy SeedSequence.
    :param num_videos: T.
    :param num_frames: N.
    :param lengthscale: Lengthscale l of the RBF kernel, in frames.
    :param image_size: H = W, in pixels.
    :param scale: Pixels per unit of a trajectory.
    :param radius: Radius of the ball, in pixels.
    :return: The videos with their trajectories.
    :raises ValueError: If an argument is out of range.
    """
    trajectories = sample_trajectories(seed, num_videos, num_frames, lengthscale)
    Y = render(trajectories, image_size=image_size, scale=scale, radius=radius)
    times = np.arange(num_frames, dtype=np.float64)[:, None]
    X = np.tile(times, (num_videos, 1, 1))
    return MovingBall(X=X, Y=Y, trajectories=trajectories)


@check_shapes("return: [num_videos, num_frames, 2]")
def sample_trajectories(
    seed: int | np.random.SeedSequence,
    num_videos: int,
    num_frames: int = 30,
    lengthscale: float = 2.0,
) -> np.ndarray:
    """Draw paths with two independent coordinates from GP(0, exp(-(t - t')^2 / (2 l^2))).

    Arguments as in :func:`generate`; frames are at times 0, 1, 2, ...

    :raises ValueError: If an argument is out of range.
    """
    if not isinstance(seed, np.random.SeedSequence):
        check_integer("seed", seed, 0)
    check_integer("num_videos", num_videos, 1)
    check_integer("num_frames", num_frames, 1)
    check_positive(lengthscale=lengthscale)

    times = np.arange(num_frames, dtype=np.float64)
    covariance = np.exp(-0.5 * ((times[:, None] - times) / float(lengthscale)) ** 2)
    # The symmetric root needs no jitter if the matrix is numerically singular, and is unique, so
    # the data do not depend on the signs of LAPACK's eigenvectors.
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    root = (eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))) @ eigenvectors.T

    rng = np.random.default_rng(seed)
    white = rng.standard_normal((num_videos, 2, num_frames))
    return np.swapaxes(white @ root, 1, 2)


@check_shapes(
    "trajectories: [T, N, 2]",
    "return: [T, N, P]",
)
def render(
    trajectories: np.ndarray, image_size: int = 32, scale: float = 6.4, radius: float = 3.0
) -> np.ndarray:
    """Render binary frames of a ball centred at ``image_size / 2 + scale * trajectory``.

    Pixel (i, j) is the point with vertical coordinate i and horizontal coordinate j, that is, its
    integer indices (not the middle of a cell, i + 1/2); it is on iff its squared distance to the
    ball's centre is strictly below ``radius ** 2``. The first coordinate of a trajectory is
    horizontal (j), the second vertical (i, downwards). The ball may leave the frame partly or
    entirely.

    :param trajectories: Paths in units of the GP prior's standard deviation; finite. Other
        arguments as in :func:`generate`.
    :return: Pixels, float32, rows one after the other: P = image_size ** 2, and pixel (i, j) is
        entry i * image_size + j.
    :raises ValueError: If an argument is out of range, or a trajectory is not finite.
    """
    check_integer("image_size", image_size, 1)
    check_positive(scale=scale, radius=radius)
    trajectories = np.asarray(trajectories, dtype=np.float64)
    if not np.all(np.isfinite(trajectories)):
        raise ValueError(
            "trajectories holds NaN or infinite entries; a ball needs a finite centre in every"
            " frame. Remove those frames, or draw the paths with sample_trajectories."
        )
    centres = 0.5 * image_size + scale * trajectories
    pixels = np.arange(image_size, dtype=np.float64)
    squared_j = (pixels - centres[..., :1]) ** 2
    squared_i = (pixels - centres[..., 1:]) ** 2
    on = squared_i[..., :, None] + squared_j[..., None, :] < np.square(float(radius))
    return on.reshape(*on.shape[:2], image_size**2).astype(np.float32)
