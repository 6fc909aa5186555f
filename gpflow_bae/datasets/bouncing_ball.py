"""Generated sequences of bouncing balls in a column of pixels.

One ball: the moving dot of Johnson et al. (2016), "Composing graphical models with neural
networks", with the sizes of Lin et al. (2018) and Ashman et al. (2020), "Sparse Gaussian process
variational autoencoders": 12 pixels, 80 sequences of 50 frames, to predict later frames. Two
balls (Ashman et al., 2020): 100 pixels, 80 sequences of 500 frames, one ball at constant speed and
one under gravity, 25 % of the pixels missing.

The papers give sizes only. Speed, width and noise of the single dot are those of Johnson et al.'s
released generator (speed 0.75 in steps of 0.1, that is, there and back in 80/3 frames; width 0.15
and noise 0.1 with the column from -1 to 1). For two balls the periods, the width and the noise are
our choices. All sequences share the periods, to suit one periodic kernel, and differ in phase.
"""

from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes

from ..core.arguments import check_integer, check_positive
from ..data import MultiOutputTable

__all__ = [
    "ONE_WIDTH",
    "TWO_WIDTH",
    "BouncingBalls",
    "gravity_height",
    "hide_future",
    "linear_height",
    "load_one",
    "load_two",
    "one_ball",
    "render",
    "two_balls",
]


#: Standard deviation of the single ball's bump, as a fraction of the column.
ONE_WIDTH = 0.075
#: Standard deviation of the bump of each of two balls.
TWO_WIDTH = 0.03


class BouncingBalls(NamedTuple):
    """Sequences of images, and the true positions of the balls.

    - table: one task per sequence; X [T, N, 1] frame numbers, Y [T, N, P] brightness of P pixels,
      about 1 at a ball and 0 elsewhere, plus noise.
    - heights [T, N, balls]: positions from 0 (first pixel) to 1 (last pixel).
    """

    table: MultiOutputTable
    heights: np.ndarray


def load_one(
    seed: int = 0, num_train: int = 80, num_test: int = 20
) -> tuple[BouncingBalls, BouncingBalls]:
    """Generate training and test sequences of one ball, from separate streams of the seed.

    :param seed: Integer >= 0.
    :param num_train: Number of training sequences; 80 as published.
    :param num_test: Number of test sequences.
    """
    train, test = _streams(seed)
    return one_ball(train, num_train), one_ball(test, num_test)


def load_two(
    seed: int = 0, num_train: int = 80, num_test: int = 20
) -> tuple[BouncingBalls, BouncingBalls]:
    """Generate training and test sequences of two balls, with missing pixels in both.

    :param seed: Integer >= 0.
    :param num_train: Number of training sequences; 80 as published.
    :param num_test: Number of test sequences.
    """
    train, test = _streams(seed)
    return two_balls(train, num_train), two_balls(test, num_test)


@check_shapes("return.table.Y: [T, N, P]", "return.heights: [T, N, 1]")
def one_ball(
    seed: int | np.random.SeedSequence = 0,
    num_sequences: int = 80,
    num_frames: int = 50,
    num_pixels: int = 12,
    *,
    period: float = 80.0 / 3.0,
    width: float = ONE_WIDTH,
    noise: float = 0.1,
) -> BouncingBalls:
    """Generate sequences of a ball at constant speed between the ends of the column.

    :param seed: Seed of the phases and the noise.
    :param num_sequences: T.
    :param num_frames: N.
    :param num_pixels: P.
    :param period: Number of frames there and back.
    :param width: Standard deviation of the ball's bump, as a fraction of the column.
    :param noise: Standard deviation of the brightness of each pixel.
    :return: Complete sequences; hide frames with :func:`hide_future`.
    :raises ValueError: If an argument is out of range.
    """
    rng, times = _start(seed, num_sequences, num_frames, num_pixels)
    check_positive(period=period, width=width)
    check_positive(may_be_zero=True, noise=noise)
    phases = period * rng.random((num_sequences, 1))
    heights = linear_height(times + phases, period)[..., None]
    return BouncingBalls(_table(rng, heights, num_pixels, width, noise, 0.0), heights)


@check_shapes("return.table.Y: [T, N, P]", "return.heights: [T, N, 2]")
def two_balls(
    seed: int | np.random.SeedSequence = 0,
    num_sequences: int = 80,
    num_frames: int = 500,
    num_pixels: int = 100,
    *,
    periods: tuple[float, float] = (80.0, 50.0),
    width: float = TWO_WIDTH,
    noise: float = 0.1,
    missing: float = 0.25,
) -> BouncingBalls:
    """Generate sequences of a ball at constant speed and one under gravity, with pixels missing.

    The balls do not collide: their brightness adds up where they overlap.

    Other arguments as in :func:`one_ball`; the seed also determines the missing pixels.

    :param periods: Number of frames there and back of the first ball, and between two bounces of
        the second.
    :param missing: Fraction of the pixels that is removed, at random over frames and sequences;
        these are the test cells.
    :return: Sequences with their missing pixels.
    :raises ValueError: If an argument is out of range.
    """
    rng, times = _start(seed, num_sequences, num_frames, num_pixels)
    check_positive(first_period=periods[0], second_period=periods[1], width=width)
    check_positive(may_be_zero=True, noise=noise)
    if not 0.0 <= missing < 1.0:
        raise ValueError(f"missing is {missing!r}; expected a share in [0, 1).")
    first, second = (period * rng.random((num_sequences, 1)) for period in periods)
    heights = np.stack(
        [
            linear_height(times + first, periods[0]),
            gravity_height(times + second, periods[1]),
        ],
        axis=-1,
    )
    return BouncingBalls(_table(rng, heights, num_pixels, width, noise, missing), heights)


@check_shapes("times: [batch...]", "return: [batch...]")
def linear_height(times: np.ndarray, period: float) -> np.ndarray:
    """Return the height at constant speed: 0 at time 0, 1 after half a period, 0 after a whole."""
    return 1.0 - np.abs(1.0 - 2.0 * np.mod(np.asarray(times) / period, 1.0))


@check_shapes("times: [batch...]", "return: [batch...]")
def gravity_height(times: np.ndarray, period: float) -> np.ndarray:
    """Return the height under gravity without loss: 0 at each bounce, 1 halfway between."""
    share = np.mod(np.asarray(times) / period, 1.0)
    return 4.0 * share * (1.0 - share)


@check_shapes("heights: [batch..., balls]", "return: [batch..., P]")
def render(heights: np.ndarray, num_pixels: int, width: float) -> np.ndarray:
    """Return the brightness of pixels at 0, 1 / (P - 1), ..., 1.

    It is the sum of exp(-(pixel - h)^2 / (2 w^2)) over balls.

    :param heights: Heights h of the balls.
    :param num_pixels: P, at least 2.
    :param width: w, as a fraction of the column.
    """
    pixels = np.linspace(0.0, 1.0, num_pixels)
    distance = (pixels - np.asarray(heights)[..., None]) / width
    return np.sum(np.exp(-0.5 * np.square(distance)), axis=-2)


def hide_future(table: MultiOutputTable, num_context: int) -> MultiOutputTable:
    """Hold out all frames from the ``num_context``-th on as test cells.

    The error of predicting tau frames ahead is the one at frame ``num_context + tau - 1``.

    :param table: Complete sequences.
    :param num_context: Number of frames to keep, at least 1 and fewer than there are.
    :raises ValueError: If ``num_context`` is out of range.
    """
    num_frames = table.Y.shape[1]
    if not 1 <= num_context < num_frames:
        raise ValueError(
            f"num_context is {num_context}; expected 1 to {num_frames - 1}, so that there are "
            "frames to see and frames to predict."
        )
    return table.hide((np.arange(num_frames) >= num_context)[:, None] & table.observed)


def _streams(seed: int) -> list[np.random.SeedSequence]:
    check_integer("seed", seed, 0)
    return np.random.SeedSequence(int(seed)).spawn(2)


def _start(
    seed: int | np.random.SeedSequence, num_sequences: int, num_frames: int, num_pixels: int
) -> tuple[np.random.Generator, np.ndarray]:
    if not isinstance(seed, np.random.SeedSequence):
        check_integer("seed", seed, 0)
    check_integer("num_sequences", num_sequences, 1)
    check_integer("num_frames", num_frames, 1)
    check_integer("num_pixels", num_pixels, 2)
    return np.random.default_rng(seed), np.arange(num_frames, dtype=np.float64)


def _table(
    rng: np.random.Generator,
    heights: np.ndarray,
    num_pixels: int,
    width: float,
    noise: float,
    missing: float,
) -> MultiOutputTable:
    truth = render(heights, num_pixels, width)
    truth += noise * rng.standard_normal(truth.shape)
    hidden = rng.random(truth.shape) < missing
    frames = np.arange(truth.shape[1], dtype=np.float64)[:, None]
    table = MultiOutputTable(
        X=np.tile(frames, (len(truth), 1, 1)),
        Y=truth,
        output_names=tuple(f"pixel{i}" for i in range(num_pixels)),
        input_names=("frame",),
    )
    return table.hide(hidden)
