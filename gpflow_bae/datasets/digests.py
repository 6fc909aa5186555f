"""Files that must be the published ones: checked by their digest before they are read."""

import hashlib
import pathlib

__all__ = ["check_sha256"]


def check_sha256(path: pathlib.Path, sha256: str, origin: str) -> None:
    """Checks that the file is, byte by byte, the one that an experiment's figures belong to.

    :param sha256: Hexadecimal digest of the expected file.
    :param origin: Where it comes from, for the error.
    :raises ValueError: If the file has another digest.
    """
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} has the SHA-256 {found}; the file of the published experiment has {sha256}. "
            f"Copy it again from {origin}: other data give other figures."
        )
