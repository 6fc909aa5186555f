"""Functions of several structures at once: what ``tf.nest.map_structure`` does not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.types import Position, Scalar, validate

__all__ = ["leaf_gradients", "leaf_temperatures", "map_leaves", "value_and_gradient", "when"]


def map_leaves(
    function: Callable[..., tuple[tf.Tensor, ...]], *structures: Position
) -> tuple[Position, ...]:
    """Apply a function of leaves that returns several leaves: as many structures, like the first.

    :param function: takes a leaf of each structure.
    :param structures: structures alike, with at least one leaf.
    """
    leaves = [function(*parts) for parts in zip(*map(tf.nest.flatten, structures), strict=True)]
    return tuple(
        tf.nest.pack_sequence_as(structures[0], list(part)) for part in zip(*leaves, strict=True)
    )


def when(condition: bool | TensorType, changed: Callable[[], Any], otherwise: Any) -> Any:
    """``changed()`` or ``otherwise``: a branch of the graph where the condition is a tensor.

    So nothing is retraced when a sampler ceases to adapt.
    """
    if tf.is_tensor(condition):
        return tf.cond(condition, changed, lambda: otherwise)
    return changed() if condition else otherwise


def leaf_temperatures(temperature: Scalar | Position, position: Position) -> Position:
    """A temperature for each leaf: a structure like ``position`` with scalars.

    :param temperature: such a structure, or one scalar for all leaves.
    :raises ValueError: if one is out of its range, or there are not as many as leaves.
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
    """The value of a function, and its gradient by each leaf: None where it has none."""
    flat = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(position)]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(flat)
        value = tf.convert_to_tensor(function(tf.nest.pack_sequence_as(position, flat)))
    return value, tape.gradient(value, flat)


def value_and_gradient(
    function: Callable[[Position], tf.Tensor],
    position: Position,
    name: str,
    leaves: str = "leaves",
) -> tuple[tf.Tensor, Position]:
    """A log density of each chain, and its gradient, a structure like ``position``.

    :param function: takes a position, returns one number per chain.
    :param position: where.
    :param name: what the error calls the function.
    :param leaves: what the error calls the leaves.
    :raises ValueError: if the function has no gradient with respect to one of the leaves.
    """
    value, gradients = leaf_gradients(function, position)
    without = [i for i, gradient in enumerate(gradients) if gradient is None]
    if without:
        raise ValueError(
            f"{name} has no gradient with respect to {leaves} {without} of the state. It must "
            "depend on every one of them through differentiable TensorFlow operations."
        )
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return value, tf.nest.pack_sequence_as(position, dense)
