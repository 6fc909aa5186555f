"""Convert nested states to named arrays and back; parameters are named by their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["from_arrays", "leaf_names", "to_arrays"]


def leaf_names(structure: Any, paths: Mapping[str, Sequence[str]], prefix: str = "") -> list[str]:
    """Return a name for each leaf, in the order of ``tf.nest.flatten``.

    Fields and keys are joined by "/". Entries of a plain tuple or list are named by ``paths[key]``
    if its key is in ``paths``, such as parameters by their paths, and otherwise by their positions.
    """
    if isinstance(structure, Mapping):
        entries = [(key, structure[key]) for key in sorted(structure)]
    elif hasattr(structure, "_fields"):
        entries = list(zip(structure._fields, structure, strict=True))
    elif isinstance(structure, (tuple, list)):
        names = paths.get(prefix.rsplit("/", 1)[-1], range(len(structure)))
        entries = list(zip(names, structure, strict=True))
    else:
        return [prefix]
    separator = "/" if prefix else ""
    return [
        name
        for key, part in entries
        for name in leaf_names(part, paths, f"{prefix}{separator}{key}")
    ]


def to_arrays(structure: Any, paths: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """Return the leaves as arrays by name."""
    leaves = tf.nest.flatten(structure)
    return {
        name: np.asarray(leaf)
        for name, leaf in zip(leaf_names(structure, paths), leaves, strict=True)
    }


def from_arrays(
    like: Any, arrays: Mapping[str, np.ndarray], paths: Mapping[str, Sequence[str]]
) -> Any:
    """Return the structure ``like`` with the leaves that :func:`to_arrays` returned.

    :raises ValueError: if a leaf is missing, for instance in a checkpoint of an earlier version.
    """
    names = leaf_names(like, paths)
    if missing := [name for name in names if name not in arrays]:
        raise ValueError(
            f"The checkpoint has no {missing[0]!r}: it was written by another version of the "
            "package. Start the run anew in another folder, or go on with the version it has."
        )
    return tf.nest.pack_sequence_as(like, [tf.constant(arrays[name]) for name in names])
