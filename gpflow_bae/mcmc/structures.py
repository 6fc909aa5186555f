"""Functions of nested structures beyond ``tf.nest.map_structure``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.types import Position, Scalar, validate

__all__ = ["leaf_gradients", "leaf_temperatures", "map_leaves", "when"]


def map_leaves(
    function: Callable[..., tuple[tf.Tensor, ...]], *structures: Position
) -> tuple[Position, ...]:
    """Apply a function that returns several leaves, and return as many structures like the first.

    :param function: function of one leaf of each structure.
    :param structures: structures of the same kind, with at least one leaf.
    """
    leaves = [function(*parts) for parts in zip(*map(tf.nest.flatten, structures), strict=True)]
    return tuple(
        tf.nest.pack_sequence_as(structures[0], list(part)) for part in zip(*leaves, strict=True)
    )


def when(condition: bool | TensorType, changed: Callable[[], Any], otherwise: Any) -> Any:
    """Return ``changed()`` if the condition is true, else ``otherwise``.

    A tensor is a branch of the graph, so that nothing is retraced when adaptation ends.
    """
    if tf.is_tensor(condition):
        return tf.cond(condition, changed, lambda: otherwise)
    return changed() if condition else otherwise


def leaf_temperatures(temperature: Scalar | Position, position: Position) -> Position:
    """Return a structure like ``position`` with a scalar temperature for each leaf.

    :param temperature: such a structure, or one scalar for all leaves.
    :raises ValueError: if one is out of its range, or their number is not that of leaves.
    """
    values = tf.nest.flatten(temperature)
    for value in values:
        validate(temperature=value)
    num_leaves = len(tf.nest.flatten(position))
    if len(values) not in (1, num_leaves):
        raise ValueError(
            f"temperature must be one number, or one for each of the {num_leaves} leaves of the "
            f"position, got {len(values)}."
        )
    return tf.nest.pack_sequence_as(position, values if len(values) > 1 else values * num_leaves)


def leaf_gradients(
    function: Callable[[Position], tf.Tensor], position: Position
) -> tuple[tf.Tensor, list[Any]]:
    """Return the value of a function, and its gradient by each leaf, None if unconnected."""
    flat = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(position)]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(flat)
        value = tf.convert_to_tensor(function(tf.nest.pack_sequence_as(position, flat)))
    return value, tape.gradient(value, flat)
