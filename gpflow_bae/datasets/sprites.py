"""Sprites: 1296 characters of pixel art that walk, cast a spell and slash.

Li and Mandt (2018), "Disentangled sequential autoencoder", compose the characters from sheets of
clothes and hair; Jazbec et al. (2021), "Scalable Gaussian process variational autoencoders",
generate poses of a character given others. The composition and the test characters are the
published ones; the poses are not, because no seed was published.

The sheets are art of the Liberated Pixel Cup, CC BY-SA 3.0 / GPL 3.0, from the public repository
YingzhenLi/Sprites. They are not part of this package, and must be credited wherever they, or images
made from them, are shown.
"""

import io
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import matplotlib.image
import numpy as np
from check_shapes import check_shapes

from ..core.arguments import check_integer
from .files import find_files

__all__ = [
    "LAYERS",
    "NUM_PIXELS",
    "NUM_POSES",
    "SEQUENCES",
    "Frames",
    "Sprites",
    "as_float",
    "build",
    "compose",
    "load",
    "read_sheet",
]

_ORIGIN = "https://github.com/YingzhenLi/Sprites (data/README.md says which sheets)"
# Checked against the digests that data/README.md gives (in SHA256SUMS beside it).
_SHEETS = {
    "body": {
        "0.png": "27d1ac78db37c42f35a20d15c42705efc5e58d47c236cc01423879d4f797f151",
        "1.png": "1535e9228357b884df80f777a0d1dac10ac35e550e4d8d077105ccad014a1460",
        "2.png": "7c241033b4897501cb3721b6c3a9ebfa94b13db10a539edbd9bcc3e0c2a4bcb9",
        "3.png": "055f5aa33fc112d8444b42fce2cf50608a9fbbf2466c54ceaa46c777589a717a",
        "4.png": "57f3b9c510482379aba9a32fc0de7d48e9cbe3dc40f2447283547f773b77ca72",
        "5.png": "91e49453aeab5ebbb4fd2b48253812895dcfb4cb1829b84e24425c66de8f04ff",
    },
    "bottomwear": {
        "0.png": "4ec356c488e272fde2d2d0d722b12a80217871e41161d43ba784caf243969ec2",
        "1.png": "0674312eaa4ab548f8bb31ef95d7dbd46b41555758cec51bd6c3e9fac9a0f936",
        "2.png": "3b464feb0d20ff34b0ca2a6d1fd00766ad86e2229c3d56ff91379fe27588a893",
        "3.png": "b366e84ea0519d06cf693f51e0ee2f9ac32b3132d27c75dfdc4b6f52fca072de",
        "4.png": "4ed7e7702e4f50b9692c0043be04b7296a108d85ea97230fb50d13c150d98771",
        "5.png": "a5c5e7e33f13fe5ad37b5836a5a74fb0d2094a0877c2146961b88688ff85840d",
    },
    "topwear": {
        "0.png": "b917edcf2b3c35d51ef57a6fad67557c5edf048785bea29db09a640d09ac9a90",
        "1.png": "e33c6cb31ed1268a2c0dc73b665b1c9b9420e22baf3321880222bdb22682368b",
        "2.png": "2b9b8fefa08894b7ea536cd62b86d494aefe6e54495c5c1d83460827b13b6448",
        "3.png": "807f5b628592f6747e2814be9435963069dba6c360577168c02f57bbe903433d",
        "4.png": "b51b17878503877e179ce4f9231713bf2b2d2d666c3ec9ee29f4e784469867a2",
        "5.png": "1b6049d43f83ebfda857cc405d1936ac9fd80be480fa6ad239024a6a75ad0372",
    },
    "hair": {
        "0.png": "e4007b0635a239ad16cdebfe90759349ccc73dfc6836c9d19625714be185f43d",
        "1.png": "fa6369f84d3310705df6d8ca8c9d515a7d211e73d2826c50a9cb5bb285652c66",
        "2.png": "1b8046752be7233e829ebe9b11048e171d8d181ee6f68e07042b34f57bb8af0d",
        "3.png": "333783285c5fd94ff434ae5000d2da39aac7940269f173119eaa70d34c8acfa1",
        "4.png": "24df8e9b291cbd444f6c4d12d35b3d43d909cd13f04e6401e0fd8ab10216d5a2",
        "5.png": "4dd471cc20e0b1cf71adcaab01c88598767e5cfe680adacdf560ca91574f17ae",
    },
    "shoes": {
        "1.png": "d56a561616a20a12030d2d40a52eeec63e6d048871bf3b6994221869362151f1",
    },
}
#: Layers of a character, from the lowest.
LAYERS = tuple(_SHEETS)

_ROWS, _COLUMNS, _SIDE = 21, 13, 64  # rows and columns of tiles in a sheet, and pixels of a tile
# First tiles of each action (from the front, left, right), and offsets of its frames from them.
# Actions with fewer than eight tiles repeat some.
_ACTIONS = {
    "walk": ((130, 117, 143), (8, 1, 2, 3, 4, 5, 6, 7)),
    "spellcard": ((26, 13, 39), (0, 1, 2, 3, 4, 5, 4, 6)),
    "slash": ((182, 169, 195), (0, 1, 2, 3, 4, 5, 4, 0)),
}
_TILES = np.array(
    [start + step for starts, steps in _ACTIONS.values() for start in starts for step in steps]
)
NUM_POSES, _NUM_TEST_POSES = 72, 36
NUM_PIXELS = 64 * 64 * 3  # values of an image, for all three colours
#: Names of the sequences: pose ``8 * i + t`` is frame t of ``SEQUENCES[i]``.
SEQUENCES = tuple(f"{action} {side}" for action in _ACTIONS for side in ("front", "left", "right"))


class Frames(NamedTuple):
    """Images with the character and pose of each, ordered by character, then by pose.

    - X [N, 2]: character id, pose id; float64.
    - Y [N, P]: red, green and blue of each pixel, 0 to 255, rows of the image one after the other;
      uint8, because floats would take four times the memory. P is 64 * 64 * 3.
    """

    X: np.ndarray
    Y: np.ndarray


class Sprites(NamedTuple):
    """Training characters, and test characters with poses given as context and to generate.

    - train, context, test: :class:`Frames`. ``context`` and ``test`` show the same characters, none
      of which is in ``train``, in different poses.
    - order [num_characters]: the character with id i is number ``order[i]`` of :func:`compose`. The
      first ids are those of the training characters.
    - sequences: :data:`SEQUENCES`.
    """

    train: Frames
    context: Frames
    test: Frames
    order: np.ndarray
    sequences: tuple[str, ...]


_SHAPES = (
    *(f"return.{name}.X: [N{name}, 2]" for name in ("train", "context", "test")),
    *(f"return.{name}.Y: [N{name}, P]" for name in ("train", "context", "test")),
    "return.order: [num_characters]",
)


@check_shapes(*_SHAPES)
def load(
    data_dir: str | os.PathLike[str],
    *,
    num_train_poses: int = 50,
    num_context: int = 36,
    seed: int = 0,
) -> Sprites:
    """Load the published characters: ids 0 to 999 for training, 1000 to 1295 for testing.

    By default 50000 training images, and 10656 each of context and to generate: 0.9 GB.

    :param data_dir: Folder that holds ``sprites`` with the sheets.
    :param num_train_poses, num_context, seed: As in :func:`build`.
    :return: The three sets of images and their characters.
    :raises FileNotFoundError: If sheets are missing.
    :raises ValueError: If an argument is out of range, or a sheet is not the published one.
    """
    _check_draws(num_train_poses, num_context, seed)
    names = [f"{layer}/{name}" for layer, sheets in _SHEETS.items() for name in sheets]
    find_files(data_dir, "sprites", names, _ORIGIN)  # all layers, so that one error names all files
    sheets = {}
    for layer, digests in _SHEETS.items():
        folder = pathlib.Path(data_dir, "sprites", layer)
        # Digests are checked last, because errors about a file's format are more informative.
        sheets[layer] = np.stack([read_sheet(folder / name) for name in digests])
        find_files(data_dir, f"sprites/{layer}", digests, _ORIGIN)
    return build(sheets, num_train_poses=num_train_poses, num_context=num_context, seed=seed)


@check_shapes(*_SHAPES)
def build(
    sheets: Mapping[str, np.ndarray],
    *,
    num_train: int = 1000,
    num_train_poses: int = 50,
    num_context: int = 36,
    seed: int = 0,
) -> Sprites:
    """Order the characters as published, draw poses, and compose their images.

    :param sheets: The variants of each of :data:`LAYERS`, as in :func:`compose`. A character is a
        choice of one variant of each layer.
    :param num_train: Number of training characters; all others are for testing.
    :param num_train_poses: Number of poses of each training character, 1 to 72, drawn at random. A
        larger number includes the poses of a smaller one.
    :param num_context: Number of context poses of each test character, 1 to 36. A larger number
        includes the poses of a smaller one, and the 36 poses to generate do not depend on it, so
        that scores are comparable.
    :param seed: Seed of the poses; any integer >= 0. The order of characters does not depend on it.
    :return: The three sets of images and their characters.
    :raises ValueError: If an argument is out of range, or the sheets are inconsistent.
    """
    num_characters = int(np.prod(_check_sheets(sheets)))
    check_integer("num_train", num_train, 1, num_characters - 1)
    _check_draws(num_train_poses, num_context, seed)
    # The published order was drawn by NumPy's legacy generator.
    order = np.random.RandomState(423).permutation(num_characters)
    streams = np.random.SeedSequence(int(seed)).spawn(2)
    train, test = (
        np.random.default_rng(stream).permuted(np.tile(np.arange(NUM_POSES), (number, 1)), axis=1)
        for stream, number in zip(streams, (num_train, num_characters - num_train), strict=True)
    )

    def frames(first: int, poses: np.ndarray) -> Frames:
        ids = np.repeat(first + np.arange(len(poses)), poses.shape[1])
        flat = np.sort(poses, axis=1).ravel()
        return Frames(np.stack([ids, flat], 1).astype(float), compose(sheets, order[ids], flat))

    return Sprites(
        frames(0, train[:, :num_train_poses]),
        frames(num_train, test[:, _NUM_TEST_POSES:][:, :num_context]),
        frames(num_train, test[:, :_NUM_TEST_POSES]),
        order,
        SEQUENCES,
    )


@check_shapes("characters: [N]", "poses: [N]", "return: [N, P]")
def compose(
    sheets: Mapping[str, np.ndarray], characters: np.ndarray, poses: np.ndarray
) -> np.ndarray:
    """Compose images of characters in poses: their layers over each other, on black.

    The 72 poses are 63 tiles: frames 4 and 6 of a spell or a slash are the same image, and so are
    0 and 7 of a slash. So an eighth of the images to generate are also among 36 of context, as
    another pose.

    :param sheets: The variants of each of :data:`LAYERS` [variants, 21 * height, 13 * width, 4]:
        red, green, blue and opacity, uint8, in tiles of the size of an image.
    :param characters: Numbers whose digits are the variants, those of ``body`` first. For the
        published sheets, 0 to 1295 in base 6; ``Sprites.order`` has them by character id.
    :param poses: Pose ids, 0 to 71.
    :return: uint8, as in :class:`Frames`; P is height * width * 3.
    :raises ValueError: If the sheets are inconsistent, or a character or pose does not exist.
    """
    counts = _check_sheets(sheets)
    for name, values, number in (
        ("characters", characters, int(np.prod(counts))),
        ("poses", poses, NUM_POSES),
    ):
        if values.dtype.kind not in "iu" or ((values < 0) | (values >= number)).any():
            raise ValueError(f"{name} must hold integers from 0 to {number - 1}.")
    height, width = sheets[LAYERS[0]].shape[1] // _ROWS, sheets[LAYERS[0]].shape[2] // _COLUMNS
    Y = np.zeros((len(poses), height * width, 3), np.uint8)
    variants = np.unravel_index(characters, counts)
    for layer, count, variant in zip(LAYERS, counts, variants, strict=True):
        blocks = sheets[layer].reshape(count, _ROWS, height, _COLUMNS, width, 4)
        row, column = np.divmod(_TILES, _COLUMNS)
        tiles = blocks[:, row, :, column].reshape(NUM_POSES * count, height * width, 4)
        # All images with the same tile at once, and only the few pixels that it covers.
        shown = count * poses + variant
        images = np.argsort(shown, kind="stable")
        starts = np.searchsorted(shown[images], np.arange(1, len(tiles)))
        for tile, which in zip(tiles, np.split(images, starts), strict=True):
            opacity = tile[:, 3]
            opaque = np.flatnonzero(opacity == 255)
            Y[np.ix_(which, opaque)] = tile[opaque, :3]
            # Blending takes five times as long, and few tiles need it.
            sheer = np.flatnonzero((opacity > 0) & (opacity < 255))
            if len(sheer):
                over, alpha = np.split(tile[sheer].astype(np.uint16), [3], axis=1)
                at = np.ix_(which, sheer)
                # Rounded to nearest; the sum is at most 255 * 255 + 127, which fits 16 bits.
                Y[at] = (alpha * over + (255 - alpha) * Y[at] + 127) // 255
    return Y.reshape(len(Y), height * width * 3)


@check_shapes("Y: [batch..., P]", "return: [batch..., P]")
def as_float(Y: np.ndarray) -> np.ndarray:
    """Convert colours to float32 in [0, 1), divided by 256, not 255, as in the published data.

    The division is exact, and the brightest colour is 255 / 256. The result takes four times the
    memory of ``Y``: 2.5 GB for the default training images.

    :param Y: Colours 0 to 255, uint8.
    :raises ValueError: If ``Y`` is of another type, because it may have been divided already.
    """
    if Y.dtype != np.uint8:
        raise ValueError(f"Y is of type {Y.dtype}; it must be uint8, colours from 0 to 255.")
    return np.divide(Y, 256, dtype=np.float32)


@check_shapes("return: [height, width, 4]")
def read_sheet(path: str | os.PathLike[str]) -> np.ndarray:
    """Read a sheet of 21 x 13 tiles of 64 x 64 pixels: red, green, blue and opacity, 0 to 255.

    :param path: Path of a PNG file.
    :return: uint8 [1344, 832, 4].
    :raises ValueError: If the file is not a PNG, has no opacity or is of another size.
    """
    content = pathlib.Path(path).read_bytes()
    try:
        image = matplotlib.image.imread(io.BytesIO(content), format="png")
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); it must be a whole PNG file. Fetch it again."
        ) from error
    kind = {3: "RGB", 4: "RGBA"}.get(image.shape[-1], "") if image.ndim == 3 else "grey"
    wanted = (_ROWS * _SIDE, _COLUMNS * _SIDE, 4)
    if image.shape != wanted:
        raise ValueError(
            f"{path} is {kind} of {image.shape[1]} x {image.shape[0]} pixels; a sheet is RGBA (or "
            f"a palette with transparency) of {wanted[1]} x {wanted[0]} pixels. Fetch it again."
        )
    return np.rint(255.0 * image).astype(np.uint8)  # imread divides by 255


def _check_draws(num_train_poses: int, num_context: int, seed: int) -> None:
    check_integer("num_train_poses", num_train_poses, 1, NUM_POSES)
    check_integer("num_context", num_context, 1, NUM_POSES - _NUM_TEST_POSES)
    check_integer("seed", seed, 0)


def _check_sheets(sheets: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Check the sheets and return the number of variants of each layer."""
    if set(sheets) != set(LAYERS):
        raise ValueError(f"sheets has {sorted(sheets)}; it must have {', '.join(LAYERS)}.")
    first = sheets[LAYERS[0]].shape
    for layer, sheet in sheets.items():
        shape = sheet.shape
        fits = len(shape) == 4 and shape[-1] == 4 and shape[1:] == first[1:] and min(shape) > 0
        if not fits or shape[1] % _ROWS or shape[2] % _COLUMNS or sheet.dtype != np.uint8:
            raise ValueError(
                f"sheets[{layer!r}] is {sheet.dtype} of shape {shape}; it must be uint8 [variants, "
                f"{_ROWS} * height, {_COLUMNS} * width, 4], of one size in all layers."
            )
    return tuple(len(sheets[layer]) for layer in LAYERS)
