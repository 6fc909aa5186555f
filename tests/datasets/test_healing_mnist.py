"""Healing MNIST: digits turn as their angles say, and holes and noise are what was asked for."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest

from gpflow_bae.datasets import healing_mnist, mnist

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_FOLDERS = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
MNIST = next((d for d in _FOLDERS if d and pathlib.Path(d, "mnist").is_dir()), None)


def blobs(number: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A bright square to the right of the middle; the labels are the images' numbers."""
    images = np.zeros((number, 28, 28), np.uint8)
    images[:, 12:16, 20:24] = 255
    return images, np.arange(number)


def made(**options: Any) -> tuple[healing_mnist.HealingMNIST, healing_mnist.HealingMNIST]:
    return healing_mnist.build(*blobs(), 300, 100, **options)


def test_frames_are_turned_by_their_angles() -> None:
    """The square's centre goes round the middle, anticlockwise, eight pixels away from it."""
    train, _ = made(flips=0.0, step=40.0)
    frames = train.truth.reshape(300, 10, 28, 28)
    rows, columns = np.mgrid[:28, :28] - 13.5
    total = frames.sum((2, 3))
    up = -(frames * rows).sum((2, 3)) / total
    right = (frames * columns).sum((2, 3)) / total
    np.testing.assert_allclose(np.hypot(up, right), 8.0, atol=0.5)
    error = np.arctan2(up, right) - train.angles
    # Of a square of sixteen pixels the centre is known to a fraction of one, 1/8 of a radian.
    assert np.abs((error + np.pi) % (2.0 * np.pi) - np.pi).max() < 0.06
    np.testing.assert_array_equal(train.complete, train.truth)


def test_steps_flips_and_holes_have_the_shares_asked_for() -> None:
    """Within four standard errors; holes are whole frames, exactly four of ten, anywhere."""
    for part in made():
        assert part.Y.dtype == part.truth.dtype == np.float32 and part.X.dtype == np.float64
        np.testing.assert_array_equal(part.X[..., 0], np.tile(np.arange(10.0), (len(part.X), 1)))
        steps = np.rad2deg(np.diff(part.angles, axis=1, prepend=0.0))
        assert abs(steps.std() / 20.0 - 1.0) < 4.0 / np.sqrt(2.0 * steps.size)
        assert abs(steps.mean()) < 4.0 * 20.0 / np.sqrt(steps.size)
        share = np.mean(part.complete != part.truth)
        assert abs(share - 0.1) < 4.0 * np.sqrt(0.09 / part.truth.size)
        assert (np.isnan(part.Y).any(-1) == part.missing).all()
        assert (part.missing.sum(1) == 4).all()
        gone = part.missing.mean(0)
        assert (np.abs(gone - 0.4) < 4.0 * np.sqrt(0.24 / len(part.Y))).all()
        there = ~part.missing
        np.testing.assert_array_equal(part.Y[there], part.complete[there])


def test_no_digit_is_seen_twice_and_test_sequences_stay() -> None:
    train, test = made(seed=3)
    assert len({*train.labels, *test.labels}) == 400
    fewer, same = healing_mnist.build(*blobs(), 20, 100, seed=3)
    for one, other in zip(test, same, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(fewer.Y) == 20
    other_seed = made(seed=4)[1]
    assert (other_seed.labels != test.labels).any()
    assert np.abs(other_seed.angles - test.angles).min() > 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": 0.96}, "missing is 0.96, all of the 10 frames; at least one"),
        ({"missing": -0.1}, "missing is -0.1; it must be a finite number of at least 0"),
        ({"flips": 0.5}, r"flips is 0.5; it must lie in \[0, 0.5\)"),
        ({"step": np.inf}, "step is inf; it must be a finite number"),
        ({"num_frames": 0}, "num_frames is 0; it must be an integer of at least 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_more_sequences_than_digits() -> None:
    with pytest.raises(ValueError, match="num_train is 300 and num_test 101; .* at most 400"):
        healing_mnist.build(*blobs(), 300, 101)


@pytest.mark.skipif(MNIST is None, reason="MNIST is not on this machine")
def test_without_turns_and_noise_they_are_the_digits_of_mnist() -> None:
    assert MNIST is not None
    train, _ = healing_mnist.load(MNIST, 5, 5, step=0.0, flips=0.0, missing=0.0)
    images, labels = mnist.load_train(MNIST)
    known = {(image > 127).tobytes(): label for image, label in zip(images, labels, strict=True)}
    for frames, label in zip(train.Y, train.labels, strict=True):
        assert (frames == frames[0]).all() and known[(frames[0] > 0.5).tobytes()] == label
