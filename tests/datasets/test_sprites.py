"""Sprites: composed as published, poses drawn so that nothing leaks, and bad sheets named."""

from __future__ import annotations

import os
import pathlib
import shutil
import zlib
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

from gpflow_bae.datasets import sprites
from gpflow_bae.datasets.sprites import LAYERS, SEQUENCES, Frames, Sprites

_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_CANDIDATES = [os.environ.get("GPFLOW_BAE_DATA"), str(_BESIDE)]
DATA = next((d for d in _CANDIDATES if d and pathlib.Path(d, "sprites").is_dir()), None)
needs_sheets = pytest.mark.skipif(DATA is None, reason="the sprite sheets are not on this machine")

HEIGHT, WIDTH = 4, 3  # of a tile of the made sheets
COUNTS = (2, 3, 2, 3, 1)  # of their variants

# As data/README.md has it: first tile, and the tiles of frames 0 to 7 counted from there.
PUBLISHED = [
    (130, (8, 1, 2, 3, 4, 5, 6, 7)),
    (117, (8, 1, 2, 3, 4, 5, 6, 7)),
    (143, (8, 1, 2, 3, 4, 5, 6, 7)),
    (26, (0, 1, 2, 3, 4, 5, 4, 6)),
    (13, (0, 1, 2, 3, 4, 5, 4, 6)),
    (39, (0, 1, 2, 3, 4, 5, 4, 6)),
    (182, (0, 1, 2, 3, 4, 5, 4, 0)),
    (169, (0, 1, 2, 3, 4, 5, 4, 0)),
    (195, (0, 1, 2, 3, 4, 5, 4, 0)),
]


def _made_sheets(counts: tuple[int, ...] = COUNTS) -> dict[str, np.ndarray]:
    """Random colours; a third of the pixels is clear, a third opaque, the others in between."""
    rng = np.random.default_rng(0)
    sheets = {}
    for layer, count in zip(LAYERS, counts, strict=True):
        sheet = rng.integers(0, 256, (count, 21 * HEIGHT, 13 * WIDTH, 4), dtype=np.uint8)
        kind = rng.integers(0, 3, sheet.shape[:-1])
        sheet[..., 3] = np.where(kind == 2, sheet[..., 3], 255 * kind)
        sheets[layer] = sheet
    return sheets


@pytest.fixture(scope="module")
def sheets() -> dict[str, np.ndarray]:
    return _made_sheets()


@pytest.fixture(scope="module")
def small(sheets: dict[str, np.ndarray]) -> Sprites:
    return sprites.build(sheets, num_train=30, num_train_poses=5, num_context=7)


@pytest.fixture(scope="module")
def published() -> Sprites:
    """A pose of each character of either part, so that it is quick."""
    return sprites.load(DATA, num_train_poses=1, num_context=1)


def _by_pillow(layers: list[Image.Image]) -> np.ndarray:
    """The 72 images [72, P] cut from whole sheets that another library has put over each other."""
    whole = Image.new("RGBA", layers[0].size, "black")
    for layer in layers:
        whole = Image.alpha_composite(whole, layer.convert("RGBA"))
    width, height = whole.width // 13, whole.height // 21
    images = []
    for start, steps in PUBLISHED:
        for tile in (start + step for step in steps):
            left, top = tile % 13 * width, tile // 13 * height
            image = whole.crop((left, top, left + width, top + height)).convert("RGB")
            images.append(np.asarray(image).ravel())
    return np.stack(images)


def _rows(frames: Frames) -> set[tuple[float, ...]]:
    return {tuple(row) for row in frames.X}


def _write_sheets(folder: pathlib.Path) -> None:
    """Sheets of the right size and names, but all clear."""
    clear = np.zeros((1344, 832, 4), np.uint8)
    for layer, number in zip(LAYERS, (6, 6, 6, 6, 2), strict=True):
        (folder / layer).mkdir(parents=True)
        for i in range(number):
            Image.fromarray(clear).save(folder / layer / f"{i}.png")


# The published characters


@needs_sheets
def test_some_frames_are_shown_under_another_pose() -> None:
    """An eighth of what is asked for is a context frame of its character: so are the sheets."""
    found = sprites.load(DATA, num_train_poses=1)

    def frames(part: Frames) -> list[tuple[int, bytes]]:
        return [(int(x[0]), y.tobytes()) for x, y in zip(part.X, part.Y, strict=True)]

    seen = set(frames(found.context))
    share = np.mean([frame in seen for frame in frames(found.test)])
    assert share == pytest.approx(0.126, abs=5e-4)


@needs_sheets
def test_sizes_of_the_published_split(published: Sprites) -> None:
    assert [len(frames.X) for frames in published[:3]] == [1000, 296, 296 * 36]
    assert published.train.Y.shape == (1000, 64 * 64 * 3)
    assert published.train.X[:, 0].tolist() == list(range(1000))
    for part in (published.context, published.test):
        assert set(part.X[:, 0]) == set(range(1000, 1296))
    assert published.order[:4].tolist() == [1116, 1135, 17, 469]
    assert sorted(published.order) == list(range(1296))


@needs_sheets
def test_published_characters_are_their_layers_over_each_other(published: Sprites) -> None:
    folder = pathlib.Path(DATA or "", "sprites")
    for part, row in ((published.train, 3), (published.train, 907), (published.test, 5000)):
        character, pose = part.X[row].astype(int)
        digits = np.base_repr(published.order[character], 6).zfill(4)
        names = [f"{layer}/{i}.png" for layer, i in zip(LAYERS, digits + "1", strict=True)]
        expected = _by_pillow([Image.open(folder / name) for name in names])
        np.testing.assert_array_equal(part.Y[row], expected[pose])


@needs_sheets
def test_no_image_is_of_two_characters(published: Sprites) -> None:
    images = [{image.tobytes() for image in part.Y} for part in published[:3]]
    assert len(images[0]) == 1000 and len(images[1]) == 296
    assert not images[0] & (images[1] | images[2])


@needs_sheets
def test_published_characters_stand_alone_on_black(published: Sprites) -> None:
    # An image cut in the wrong place would show parts of two figures.
    images = published.train.Y.reshape(-1, 64, 64, 3)
    assert not images[:, :9].any()
    assert not images[:, :, :7].any() and not images[:, :, 58:].any()
    assert (images > 0).any(-1).mean((1, 2)) == pytest.approx(0.23, abs=0.07)


# Made sheets


def test_images_are_those_of_another_library(sheets: dict[str, np.ndarray]) -> None:
    poses = np.arange(72)
    for character in range(0, 36, 5):
        variants = np.unravel_index(character, COUNTS)
        layers = [Image.fromarray(sheets[k][v]) for k, v in zip(LAYERS, variants, strict=True)]
        found = sprites.compose(sheets, np.full(72, character), poses)
        np.testing.assert_array_equal(found, _by_pillow(layers))
    assert found.dtype == np.uint8 and found.shape == (72, HEIGHT * WIDTH * 3)


def test_every_opacity_rounds_to_the_nearest() -> None:
    # All of 0 to 255 once over 0, 85, 170 and 255.
    sheets = {k: np.zeros((4, 21 * 16, 13 * 16, 4), np.uint8) for k in LAYERS}
    sheets["body"][..., 3] = 255
    sheets["body"][..., :3] = 85 * np.arange(4)[:, None, None, None]
    sheets["hair"][..., :3] = 200
    sheets["hair"][..., 3] = np.tile(np.arange(256).reshape(16, 16), (21, 13))
    characters = np.ravel_multi_index((np.arange(4), 0, 0, 0, 0), (4,) * 5)
    found = sprites.compose(sheets, characters, np.zeros(4, int)).reshape(4, 256, 3)
    opacity = np.arange(256) / 255.0
    below = 85.0 * np.arange(4)[:, None]
    expected = np.rint(opacity * 200.0 + (1.0 - opacity) * below)
    np.testing.assert_array_equal(found, np.repeat(expected[..., None], 3, axis=-1))


def test_rows_may_come_in_any_order(sheets: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    characters, poses = rng.integers(0, 36, 9), rng.integers(0, 72, 9)
    found = sprites.compose(sheets, characters, poses)
    for i in range(9):
        alone = sprites.compose(sheets, characters[i : i + 1], poses[i : i + 1])
        np.testing.assert_array_equal(found[i : i + 1], alone)
    assert sprites.compose(sheets, characters[:0], poses[:0]).shape == (0, HEIGHT * WIDTH * 3)


def test_small_split_leaks_nothing(small: Sprites, sheets: dict[str, np.ndarray]) -> None:
    assert [len(frames.X) for frames in small[:3]] == [30 * 5, 6 * 7, 6 * 36]
    assert [len(_rows(frames)) for frames in small[:3]] == [30 * 5, 6 * 7, 6 * 36]
    assert set(small.train.X[:, 0]) == set(range(30))
    assert set(small.context.X[:, 0]) == set(small.test.X[:, 0]) == set(range(30, 36))
    assert not _rows(small.context) & _rows(small.test)
    np.testing.assert_array_equal(small.order, np.random.RandomState(423).permutation(36))
    assert small.sequences is SEQUENCES and len(set(SEQUENCES)) == 9
    assert SEQUENCES[0] == "walk front" and SEQUENCES[5] == "spellcard right"
    for part in small[:3]:
        ids, poses = part.X.astype(int).T
        assert part.X.dtype == np.float64 and (np.diff(72 * ids + poses) > 0).all()
        np.testing.assert_array_equal(part.Y, sprites.compose(sheets, small.order[ids], poses))
        assert len(set(poses)) > 20 and set(poses) <= set(range(72))


def test_scores_compare_across_sizes_of_the_context(sheets: dict[str, np.ndarray]) -> None:
    few, more, all_ = (
        sprites.build(sheets, num_train=30, num_train_poses=n, num_context=n) for n in (1, 20, 36)
    )
    for other in (few, more):
        np.testing.assert_array_equal(other.test.X, all_.test.X)
        np.testing.assert_array_equal(other.test.Y, all_.test.Y)
    assert _rows(few.context) < _rows(more.context) < _rows(all_.context)
    assert _rows(few.train) < _rows(more.train) < _rows(all_.train)
    assert len(_rows(all_.context) | _rows(all_.test)) == 6 * 72
    # Both parts are drawn at random, for each character anew.
    assert len(set(few.context.X[:, 1])) > 3 and len(set(all_.test.X[:, 1])) > 60


def test_poses_depend_on_the_seed_alone(sheets: dict[str, np.ndarray], small: Sprites) -> None:
    np.random.seed(1)  # noqa: NPY002 (the global generator must not matter)
    state = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    settings: Any = {"num_train": 30, "num_train_poses": 5, "num_context": 7}
    again, other = (sprites.build(sheets, seed=seed, **settings) for seed in (0, 1))
    for same, first, another in zip(again[:3], small[:3], other[:3], strict=True):
        np.testing.assert_array_equal(same.X, first.X)
        assert not np.array_equal(another.X, first.X)
    np.testing.assert_array_equal(other.order, small.order)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_floats_are_divided_by_256(small: Sprites) -> None:
    found = sprites.as_float(small.train.Y)
    assert found.dtype == np.float32 and found.max() == np.float32(255 / 256)
    np.testing.assert_array_equal(256.0 * found, small.train.Y)
    with pytest.raises(ValueError, match="Y is of type float32; it must be uint8"):
        sprites.as_float(found)


# What is refused


def test_arguments_are_checked(sheets: dict[str, np.ndarray], tmp_path: pathlib.Path) -> None:
    for name, value, expected in (
        ("num_train_poses", 0, "from 1 to 72"),
        ("num_train_poses", 73, "from 1 to 72"),
        ("num_context", 37, "from 1 to 36"),
        ("num_context", 1.0, "from 1 to 36"),
        ("seed", -1, "of at least 0"),
    ):
        arguments: Any = {name: value}
        with pytest.raises(ValueError, match=f"{name} is {value}; .* integer {expected}"):
            sprites.build(sheets, num_train=30, **arguments)
        with pytest.raises(ValueError, match=f"{name} is {value}; "):
            sprites.load(tmp_path, **arguments)
    with pytest.raises(ValueError, match="num_train is 36; .* from 1 to 35"):
        sprites.build(sheets, num_train=36)
    for characters, poses, name in (([36], [0], "characters"), ([0], [72], "poses")):
        with pytest.raises(ValueError, match=f"{name} must hold integers from 0 to (35|71)"):
            sprites.compose(sheets, np.array(characters), np.array(poses))
    with pytest.raises(ValueError, match="poses must hold integers from 0 to 71"):
        sprites.compose(sheets, np.array([0]), np.array([0.0]))


def test_sheets_that_do_not_go_together_are_refused(sheets: dict[str, np.ndarray]) -> None:
    hair = sheets["hair"]
    for spoilt in (hair[:, :, :-1], hair[..., :3], hair[:, :21], hair[:0], hair / 255.0, hair[0]):
        with pytest.raises(ValueError, match=r"sheets\['hair'\] is .* of shape .*21 \* height"):
            sprites.build({**sheets, "hair": spoilt}, num_train=1)
    with pytest.raises(ValueError, match="sheets has .*'hair'.*; it must have body, bottomwear"):
        sprites.build({"hair": hair}, num_train=1)


def test_sheets_are_read_and_checked(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sheet.png"
    values = np.random.default_rng(0).integers(0, 256, (1344, 832, 4), dtype=np.uint8)
    Image.fromarray(values).save(path, compress_level=1)
    found = sprites.read_sheet(path)
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.uint8
    # As most of the published sheets are: a palette with one clear colour.
    palette = Image.fromarray(values[..., 0], "P")
    palette.putpalette([n for i in range(256) for n in (i, 255 - i, 7)])
    palette.save(path, transparency=9)
    first = values[..., 0]
    expected = np.stack([first, 255 - first, np.full_like(first, 7), 255 * (first != 9)], -1)
    np.testing.assert_array_equal(sprites.read_sheet(path), expected)
    for spoilt, words in (
        (values[..., :3], "RGB of 832 x 1344 pixels"),
        (first, "grey of 832 x 1344 pixels"),
        (values[:-64], "RGBA of 832 x 1280 pixels"),
    ):
        Image.fromarray(spoilt).save(path, compress_level=1)
        with pytest.raises(ValueError, match=rf"sheet.png is {words}; .* RGBA .* of 832 x 1344"):
            sprites.read_sheet(path)


def test_damaged_sheets_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sheet.png"
    image = np.random.default_rng(0).random((1344, 832, 4)).astype(np.float32)
    matplotlib.image.imsave(path, image)
    content = path.read_bytes()
    spoilt = bytearray(content)
    spoilt[20] += 1  # of the header, whose checksum is then wrong
    cuts = [content[:n] for n in (0, 5, 20, 30, 45, 60, len(content) // 2)]
    for other in (*cuts, bytes(spoilt), b"other", zlib.compress(content)):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"sheet.png cannot be read .* a whole PNG file"):
            sprites.read_sheet(path)


def test_missing_sheets_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"body/0.png.*shoes/1.png not found.*data_dir"):
        sprites.load(tmp_path)
    _write_sheets(tmp_path / "sprites")
    (tmp_path / "sprites" / "hair" / "4.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"complete: \S*hair/4.png not found.*Sprites"):
        sprites.load(tmp_path)


def test_other_sheets_are_refused(tmp_path: pathlib.Path) -> None:
    _write_sheets(tmp_path / "sprites")
    with pytest.raises(ValueError, match=r"body/0.png has the SHA-256 .* has 27d1ac78db37"):
        sprites.load(tmp_path)
    Image.fromarray(np.zeros((64, 64, 4), np.uint8)).save(tmp_path / "sprites" / "body" / "0.png")
    with pytest.raises(ValueError, match=r"body/0.png is RGBA of 64 x 64 pixels"):
        sprites.load(tmp_path)
    if DATA is not None:
        shutil.rmtree(tmp_path / "sprites" / "body")
        shutil.copytree(pathlib.Path(DATA, "sprites", "body"), tmp_path / "sprites" / "body")
        with pytest.raises(ValueError, match=r"bottomwear/0.png has the SHA-256"):
            sprites.load(tmp_path)
