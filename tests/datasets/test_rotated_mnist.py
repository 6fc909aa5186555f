"""Rotated MNIST: the published split rebuilt, nothing leaks between its parts, bad input named."""

from __future__ import annotations

import gzip
import os
import pathlib
import random
import shutil
import struct
from typing import Any

import numpy as np
import pytest

from gpflow_bae.datasets import mnist, rotated_mnist
from gpflow_bae.datasets.rotated_mnist import Images, RotatedMNIST

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]


def _folder_with(*names: str) -> str | None:
    """The first data folder that has all of ``names``."""
    return next(
        (d for d in _CANDIDATES if d and all(pathlib.Path(d, name).is_dir() for name in names)),
        None,
    )


MNIST, BOTH = _folder_with("mnist"), _folder_with("mnist", "rotated_mnist")
needs_mnist = pytest.mark.skipif(MNIST is None, reason="MNIST is not on this machine")
needs_both = pytest.mark.skipif(
    BOTH is None, reason="MNIST and the published rotated MNIST are not on this machine"
)


@pytest.fixture(scope="module")
def rebuilt() -> RotatedMNIST:
    return rotated_mnist.load(MNIST, source="mnist")


@pytest.fixture(scope="module")
def small() -> RotatedMNIST:
    """Two "digits" of 20 objects each, 6 x 6 pixels of noise."""
    return rotated_mnist.build(*_noise(), digits=(1, 2), num_components=3, num_per_digit=20)


def _noise() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (90, 6, 6), dtype=np.uint8), np.arange(90) % 3


def _rows(images: Images) -> set[tuple[float, ...]]:
    return {tuple(row) for row in images.X}


def _write_idx(path: pathlib.Path, values: np.ndarray) -> bytes:
    header = struct.pack(">BBBB", 0, 0, 8, values.ndim) + struct.pack(
        f">{values.ndim}I", *values.shape
    )
    path.parent.mkdir(exist_ok=True)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content))
    return content


# The published split


@needs_both
def test_rebuilding_gives_the_published_split(rebuilt: RotatedMNIST) -> None:
    published = rotated_mnist.load(BOTH, source="published")
    for found, expected in zip(rebuilt[:3], published[:3], strict=True):
        np.testing.assert_array_equal(found.X, expected.X)  # ids, angles and order
        np.testing.assert_allclose(found.Y, expected.Y, rtol=0, atol=1e-6)
        assert found.X.dtype == expected.X.dtype == np.float64
        assert found.Y.dtype == expected.Y.dtype == np.float32
    np.testing.assert_array_equal(rebuilt.angles, published.angles)
    np.testing.assert_allclose(rebuilt.upright, published.upright, rtol=0, atol=1e-7)


@needs_both
def test_object_vectors_are_the_published_up_to_sign(rebuilt: RotatedMNIST) -> None:
    published = rotated_mnist.load(BOTH, source="published").object_vectors
    found = rebuilt.object_vectors
    signs = np.sign((found * published).sum(0))
    np.testing.assert_allclose(found * signs, published, rtol=0, atol=0.05)
    assert found.shape == (400, 8) and np.abs(published).max() > 1.0


@needs_mnist
def test_sizes_and_angles_of_one_digit(rebuilt: RotatedMNIST) -> None:
    assert [len(images.X) for images in rebuilt[:3]] == [4050, 640, 270]
    assert rebuilt.train.Y.shape == (4050, 784) and rebuilt.upright.shape == (400, 784)
    np.testing.assert_allclose(np.rad2deg(rebuilt.test.X[:, 1]), 157.5)
    assert not np.isclose(np.rad2deg(rebuilt.train.X[:, 1]), 157.5).any()
    assert set(rebuilt.test.X[:, 0]) <= set(rebuilt.train.X[:, 0]) == set(range(360))
    assert _rows(rebuilt.validation) == {(i, a) for i in range(360, 400) for a in rebuilt.angles}


@needs_mnist
def test_images_at_zero_degrees_are_those_of_mnist(rebuilt: RotatedMNIST) -> None:
    images, labels = mnist.load_train(MNIST)
    threes = {image.tobytes() for image in images[labels == 3]}
    assert {np.rint(row * 255).astype(np.uint8).tobytes() for row in rebuilt.upright} <= threes
    for part in rebuilt[:3]:
        at_zero = part.X[:, 1] == 0.0
        upright = rebuilt.upright[part.X[at_zero, 0].astype(int)]
        np.testing.assert_allclose(part.Y[at_zero], upright, rtol=0, atol=1e-6)


@needs_mnist
def test_two_digits_have_ids_of_their_own() -> None:
    data = rotated_mnist.load(MNIST, (3, 6))
    assert [len(images.X) for images in data[:3]] == [8100, 1280, 540]
    assert data.object_vectors.shape == (800, 8)
    train, validation = set(data.train.X[:, 0]), set(data.validation.X[:, 0])
    assert train == {*range(360), *range(400, 760)}
    assert validation == {*range(360, 400), *range(760, 800)}
    # What the released generator draws: its validation images are shuffled.
    assert (np.diff(data.validation.X[:, 0]) < 0).any() and len(_rows(data.validation)) == 1280
    images, labels = mnist.load_train(MNIST)
    labels_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    upright = np.rint(data.upright * 255).astype(np.uint8)
    assert [labels_of[row.tobytes()] for row in upright] == [3] * 400 + [6] * 400


@needs_both
def test_auto_prefers_the_published_file(tmp_path: pathlib.Path) -> None:
    published = rotated_mnist.load(BOTH, source="published", num_components=2)
    assert published.object_vectors.shape == (400, 2)
    np.testing.assert_array_equal(
        rotated_mnist.load(BOTH, num_components=2).object_vectors, published.object_vectors
    )
    assert rotated_mnist.load(BOTH, num_components=9).object_vectors.shape == (400, 9)
    with pytest.raises(ValueError, match='holds the digit 3 and 8 components.*source="mnist"'):
        rotated_mnist.load(BOTH, num_components=9, source="published")
    (tmp_path / "mnist").symlink_to(pathlib.Path(BOTH or "", "mnist"))
    assert len(rotated_mnist.load(tmp_path).test.X) == 270  # and does without it


# Without data


def test_small_split_leaks_nothing(small: RotatedMNIST) -> None:
    assert [len(images.X) for images in small[:3]] == [405, 64, 27]
    train, test = set(small.train.X[:, 0]), set(small.test.X[:, 0])
    assert test <= train and not train & set(small.validation.X[:, 0])
    assert len(_rows(small.train)) == 405 and len(_rows(small.test)) == 27
    assert len(np.unique(small.test.X[:, 1])) == 1
    assert not np.isin(small.train.X[:, 1], small.test.X[:, 1]).any()
    for part in small[:3]:
        at_zero = part.X[:, 1] == 0.0
        upright = small.upright[part.X[at_zero, 0].astype(int)]
        np.testing.assert_allclose(part.Y[at_zero], upright, rtol=0, atol=1e-6)
        # Half a turn is exact on the grid of pixels, and tells the ids from one another.
        half = np.isclose(part.X[:, 1], np.pi)
        turned = small.upright[part.X[half, 0].astype(int)][:, ::-1]
        np.testing.assert_allclose(part.Y[half], turned, rtol=0, atol=1e-6)


def test_object_vectors_are_principal_coordinates(small: RotatedMNIST) -> None:
    vectors = small.object_vectors
    np.testing.assert_allclose(vectors.mean(0), 0.0, atol=1e-12)
    covariance = vectors.T @ vectors / len(vectors)
    largest = np.linalg.eigvalsh(np.cov(small.upright.T.astype(float), bias=True))[::-1][:3]
    np.testing.assert_allclose(covariance, np.diag(largest), rtol=1e-5, atol=1e-6)
    # The sign of a column is that of the largest entry of its direction.
    directions = vectors.T @ small.upright
    assert (np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1) > 0).all()


def test_shuffling_keeps_the_validation_images(small: RotatedMNIST) -> None:
    ordered = rotated_mnist.build(
        *_noise(), (1, 2), num_components=3, num_per_digit=20, shuffle_validation=False
    )
    assert (np.diff(ordered.validation.X[:, 0]) >= 0).all()
    assert _rows(ordered.validation) == _rows(small.validation)
    assert not np.array_equal(ordered.validation.X, small.validation.X)


def test_the_split_does_not_touch_the_global_generators() -> None:
    random.seed(5)
    first = random.random()
    random.seed(5)
    rotated_mnist.build(*_noise(), digits=(1,), num_components=1, num_per_digit=10)
    assert random.random() == first


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_held_out_view_is_made_of_training_images(small: RotatedMNIST, share: float) -> None:
    view = 5
    held = rotated_mnist.hold_out_view(small, view, share)
    train, test = _rows(held.train), _rows(held.test)
    assert not train & test and train | test == _rows(small.train)
    assert {angle for _, angle in test} == {small.angles[view]}
    at_view = (small.train.X[:, 1] == small.angles[view]).sum()
    assert len(test) == int(share * at_view)
    assert (small.angles[view] in held.train.X[:, 1]) == (share < 1.0)
    pixels = {tuple(x): y for x, y in zip(small.train.X, small.train.Y, strict=True)}
    for part in held[:1] + held[2:3]:
        for x, y in zip(part.X, part.Y, strict=True):
            np.testing.assert_array_equal(y, pixels[tuple(x)])
    assert held.validation is small.validation and held.object_vectors is small.object_vectors


def test_held_out_objects_depend_on_the_seed_alone(small: RotatedMNIST) -> None:
    first, again, other = (rotated_mnist.hold_out_view(small, 5, seed=s).test.X for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_share_of_the_training_images_keeps_every_object(small: RotatedMNIST) -> None:
    number = len(small.train.X)
    half, more = (rotated_mnist.keep_share(small, share) for share in (0.5, 0.75))
    assert (len(half.train.X), len(more.train.X)) == (int(0.5 * number), int(0.75 * number))
    assert _rows(half.train) < _rows(more.train) < _rows(small.train)
    assert set(half.train.X[:, 0]) == set(small.train.X[:, 0])
    np.testing.assert_array_equal(half.test.Y, small.test.Y)
    pixels = {tuple(x): y for x, y in zip(*small.train, strict=True)}
    for x, y in zip(*half.train, strict=True):
        np.testing.assert_array_equal(y, pixels[tuple(x)])
    other = rotated_mnist.keep_share(small, 0.5, seed=1)
    assert _rows(other.train) != _rows(half.train)
    np.testing.assert_array_equal(rotated_mnist.keep_share(small, 1.0).train.X, small.train.X)


def test_a_share_of_the_training_images_is_checked(small: RotatedMNIST) -> None:
    for share in (0.0, 1.5, np.nan, "half"):
        with pytest.raises(ValueError, match=r"share is .*\(0, 1\]"):
            rotated_mnist.keep_share(small, share)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="share is 0.01 of .* leave one for each of"):
        rotated_mnist.keep_share(small, 0.01)


def test_held_out_view_is_checked(small: RotatedMNIST) -> None:
    test_view = int(np.flatnonzero(small.angles == small.test.X[0, 1])[0])
    with pytest.raises(ValueError, match=f"view is {test_view}, the angle of the test images"):
        rotated_mnist.hold_out_view(small, test_view)
    for view in (-1, 16, 1.0, True):
        with pytest.raises(ValueError, match=f"view is {view}; .* integer from 0 to 15"):
            rotated_mnist.hold_out_view(small, view)  # type: ignore[arg-type]
    for share in (0, 1.5, np.nan, "half"):
        with pytest.raises(ValueError, match=r"share is .*\(0, 1\]"):
            rotated_mnist.hold_out_view(small, 5, share)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="share is 0.001 of .* at least one"):
        rotated_mnist.hold_out_view(small, 5, 0.001)
    with pytest.raises(ValueError, match="seed is -1"):
        rotated_mnist.hold_out_view(small, 5, seed=-1)
    # An object whose only training image is held out.
    lone = (small.train.X[:, 0] > 0) | (small.train.X[:, 1] == small.angles[5])
    train = Images(small.train.X[lone], small.train.Y[lone])
    assert (train.X[:, 0] == 0).sum() == 1
    with pytest.raises(ValueError, match=r"images of 1 objects \(0\) of which train has none"):
        rotated_mnist.hold_out_view(small._replace(train=train), 5, share=1.0)


def test_unknown_objects_are_named() -> None:
    train = Images(np.array([[0.0, 0.1], [2.0, 0.1]]), np.zeros((2, 1)))
    rotated_mnist.check_objects_known(train, train)
    test = Images(np.array([[7.0, 0.0], [2.0, 0.0], [5.0, 0.0]]), np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"2 objects \(5, 7\) of which train has none"):
        rotated_mnist.check_objects_known(train, test)
    many = Images(np.stack([np.arange(20.0), np.zeros(20)], 1), np.zeros((20, 1)))
    with pytest.raises(ValueError, match=r"18 objects \(1, 3, .*, 11, \.\.\.\)"):
        rotated_mnist.check_objects_known(train, many)


@pytest.mark.parametrize("digits", [3, "3", (), (3, 3), (10,), (-1,), (3.0,)])
def test_digits_are_checked(digits: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="digits is .* different integers 0 to 9"):
        rotated_mnist.load(tmp_path, digits)


def test_arguments_are_checked(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="num_components is 0; .* at least 1"):
        rotated_mnist.load(tmp_path, num_components=0)
    with pytest.raises(ValueError, match="source is 'npz'"):
        rotated_mnist.load(tmp_path, source="npz")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'"published" with digits \(6,\).*source="mnist"'):
        rotated_mnist.load(tmp_path, (6,), source="published")
    images, labels = _noise()
    with pytest.raises(ValueError, match="digit 3 only 0 times; num_per_digit is 20"):
        rotated_mnist.build(images, labels, (3,), num_per_digit=20)
    with pytest.raises(ValueError, match="num_per_digit is 9; .* at least 10"):
        rotated_mnist.build(images, labels, (1,), num_per_digit=9)
    with pytest.raises(ValueError, match="num_components is 21; 20 objects of 36 pixels"):
        rotated_mnist.build(images, labels, (1,), num_components=21, num_per_digit=20)
    spoilt = images.astype(float)
    spoilt[4, 1, 1] = np.nan
    with pytest.raises(ValueError, match="images holds NaN .* first in image 4"):
        rotated_mnist.build(spoilt, labels, (1,), num_per_digit=20)


def test_missing_files_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train-images.*train-labels.*data_dir"):
        rotated_mnist.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"rotated_mnist3.npz not found.*data_dir"):
        rotated_mnist.load(tmp_path, source="published")


def test_other_content_is_refused(tmp_path: pathlib.Path) -> None:
    images, labels = _noise()
    _write_idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", images)
    _write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte.gz", labels)
    with pytest.raises(ValueError, match="train-images.*MD5 .*6bbc9ace898e44ae57da46a324031adb"):
        rotated_mnist.load(tmp_path)
    if MNIST is not None:
        shutil.copy(pathlib.Path(MNIST, "mnist", "train-images-idx3-ubyte.gz"), tmp_path / "mnist")
        with pytest.raises(ValueError, match="train-labels.*MD5"):
            rotated_mnist.load(tmp_path)
    (tmp_path / "rotated_mnist").mkdir()
    (tmp_path / "rotated_mnist" / "rotated_mnist3.npz").write_bytes(b"other")
    with pytest.raises(ValueError, match='rotated_mnist3.npz has the SHA-256 .*source="mnist"'):
        rotated_mnist.load(tmp_path)


def test_idx_files_are_read_and_checked(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "small.gz"
    values = np.arange(2 * 3 * 4).reshape(2, 3, 4) + 200
    content = _write_idx(path, values)
    np.testing.assert_array_equal(mnist.read_idx(path), values)
    assert mnist.read_idx(path).dtype == np.uint8
    for spoilt, expected in (
        (content[:-1], r"holds 23 bytes .* \(2, 3, 4\), that is, 24"),
        (content + b"\x00", "holds 25 bytes"),
        (content[:6], "starts with the bytes"),
        (b"\x00\x00\x0d" + content[3:], "starts with the bytes"),
        (b"", "starts with the bytes"),
    ):
        path.write_bytes(gzip.compress(spoilt))
        with pytest.raises(ValueError, match=f"small.gz {expected}"):
            mnist.read_idx(path)
    for raw in (content, gzip.compress(content)[:-9]):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="cannot be uncompressed"):
            mnist.read_idx(path)
