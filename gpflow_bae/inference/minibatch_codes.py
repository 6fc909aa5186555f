"""The sampler's state with the codes of a minibatch, and with those of all items again."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ..mcmc import State
from .chain_state import Point

__all__ = ["gather_codes", "scatter_codes"]


def gather_codes(state: State, indices: tf.Tensor | None, axis: int) -> State:
    """The sampler with the codes of some items only (None: all), and all that belongs to those.

    :param axis: of the items.
    """
    if indices is None:
        return state
    return _map_codes(state, lambda codes: tf.gather(codes, indices, axis=axis))


def scatter_codes(store: State, state: State, indices: tf.Tensor | None, axis: int) -> State:
    """``state`` with the codes of all items: its own, and those of ``store`` for the others."""
    if indices is None:
        return state
    of_points = axis == 1  # of the one task; its values are changed where they are
    where = tf.stack([tf.zeros_like(indices), indices], 1) if of_points else indices[:, None]

    def scatter(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        return tf.tensor_scatter_nd_update(old, where, new[0] if of_points else new)

    return _map_codes(state, scatter, store)


def _map_codes(state: State, function: Callable[..., tf.Tensor], *others: State) -> State:
    """``function`` of the codes and of every element that belongs to them."""

    def mapped(point: Point, *points: Point) -> Point:
        return point._replace(codes=function(point.codes, *(p.codes for p in points)))

    return state._replace(
        position=mapped(state.position, *(s.position for s in others)),
        elements={
            name: mapped(point, *(s.elements[name] for s in others))
            for name, point in state.elements.items()
        },
    )
