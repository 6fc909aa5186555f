"""Files of data sets that cannot be generated: found, or asked for in one clear error."""

import os
import pathlib
from collections.abc import Sequence

__all__ = ["find_files"]


def find_files(
    data_dir: str | os.PathLike[str], folder: str, names: Sequence[str], origin: str
) -> list[pathlib.Path]:
    """Paths of ``names`` in ``data_dir / folder``.

    :param origin: where the data come from, for the error.
    :raises FileNotFoundError: naming every file that is missing and what to do about it.
    """
    paths = [pathlib.Path(data_dir) / folder / name for name in names]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"The data set {folder!r} is not complete: {', '.join(missing)} not found. Put the "
            f"files of {origin} there, or name the folder that holds {folder!r} with --data_dir or "
            "the environment variable GPFLOW_BAE_DATA."
        )
    return paths
