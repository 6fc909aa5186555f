"""Location of the files of data sets that cannot be generated."""

import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence

__all__ = ["find_files"]


def find_files(
    data_dir: str | os.PathLike[str],
    folder: str,
    names: Sequence[str] | Mapping[str, str],
    origin: str,
) -> list[pathlib.Path]:
    """Return the paths of ``names`` in ``data_dir / folder``.

    :param names: names of files, or a mapping from them to hexadecimal SHA-256 digests, if
        results depend on these exact files.
    :param origin: source of the data, for error messages.
    :raises FileNotFoundError: naming every file that is missing and what to do about it.
    :raises ValueError: if a file has another digest.
    """
    paths = [pathlib.Path(data_dir) / folder / name for name in names]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"The data set {folder!r} is not complete: {', '.join(missing)} not found. Put the "
            f"files of {origin} there, or set data_dir to the folder that holds {folder!r}."
        )
    digests = names if isinstance(names, Mapping) else {}
    for path in paths:
        wanted = digests.get(path.name)
        if wanted and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != wanted:
            raise ValueError(
                f"{path} has the SHA-256 {found}; the file of the published experiment has "
                f"{wanted}. Copy it again from {origin}: other data give other figures."
            )
    return paths
