"""MNIST's training images, read from idx files and checked against the published digests."""

import gzip
import hashlib
import math
import os
import zlib

import numpy as np
from check_shapes import check_shapes

from .files import find_files

__all__ = ["load_train", "read_idx"]

_ORIGIN = "http://yann.lecun.com/exdb/mnist (data/README.md names copies)"
_IMAGES, _LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"

# MD5 of the uncompressed files, because compressed copies differ in gzip's time stamp.
# data/README.md has the digest of the uncompressed images, but of the labels only that of the
# compressed original; this is the digest of its content.
_MD5 = {
    _IMAGES: "6bbc9ace898e44ae57da46a324031adb",
    _LABELS: "a25bea736e30d166cdddb491f175f624",
}


@check_shapes("return[0]: [N, 28, 28]", "return[1]: [N]")
def load_train(data_dir: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the 60000 training images and their labels, in the order of the files.

    :param data_dir: Folder that holds ``mnist`` with the two gzipped idx files.
    :return: Grey values 0 to 255 [60000, 28, 28] and labels 0 to 9 [60000], both uint8.
    :raises FileNotFoundError: If a file is missing.
    :raises ValueError: If a file is not an idx file, or its content is not the published one.
    """
    paths = find_files(data_dir, "mnist", [_IMAGES, _LABELS], _ORIGIN)
    images, labels = (read_idx(path, _MD5[path.name]) for path in paths)
    return images, labels


def read_idx(path: str | os.PathLike[str], md5: str | None = None) -> np.ndarray:
    """Read a gzipped idx file of unsigned bytes, with the shape in its header.

    :param path: Path of the file.
    :param md5: Hexadecimal digest of the uncompressed file; None to leave it unchecked.
    :return: The array, uint8, read-only.
    :raises ValueError: If the file is not gzipped idx data of bytes, its length does not match its
        header, or it has another digest.
    """
    try:
        with gzip.open(path, "rb") as file:
            content = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be uncompressed ({error}); it must be a whole gzip file. Fetch it "
            "again."
        ) from error
    # Two zero bytes, the type (8: unsigned byte), the number of dimensions, then each dimension as
    # four big-endian bytes.
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise ValueError(
            f"{path} starts with the bytes {content[:4]!r}; an idx file of unsigned bytes starts "
            "with two zeros, 8, the number of dimensions and their sizes. Fetch it again."
        )
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], dtype=">u4").tolist())
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} holds {len(content) - start} bytes of data, but its header announces shape "
            f"{shape}, that is, {math.prod(shape)}. Fetch it again."
        )
    if md5 is not None:
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != md5:
            raise ValueError(
                f"The uncompressed content of {path} has the MD5 {found}; the published file has "
                f"{md5}. Fetch it again: other images give another split."
            )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
