"""The sampler's state with the codes of a minibatch, and with those of all items again."""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from ...mcmc import State
from ...mcmc.structures import when
from ..chain_state import Point

__all__ = ["gather_codes", "scatter_codes"]


def gather_codes(state: State, indices: tf.Tensor | None, axis: int) -> State:
    """The sampler with the codes of some items only (None: all), and all that belongs to those.

    :param axis: of the items.
    """
    if indices is None:
        return state

    def gather(point: Point) -> Point:
        return point._replace(codes=tf.gather(point.codes, indices, axis=axis))

    return state._replace(
        position=gather(state.position),
        elements={name: gather(point) for name, point in state.elements.items()},
    )


def scatter_codes(
    store: State,
    state: State,
    indices: tf.Tensor | None,
    axis: int,
    adapted: Collection[str] = (),
    adapt: bool | tf.Tensor = True,
) -> State:
    """``state`` with the codes of all items: its own, and those of ``store`` for the others.

    TensorFlow copies what a round was given before it changes a part of it. With a million points
    that takes as long as some steps.

    :param adapted: elements that are those of ``store`` still, unless ``adapt`` is true.
    """
    if indices is None:
        return state
    of_points = axis == 1  # of the one task; its values are changed where they are
    where = tf.stack([tf.zeros_like(indices), indices], 1) if of_points else indices[:, None]

    def scatter(new: Point, old: Point, changed: bool | tf.Tensor = True) -> Point:
        codes = new.codes[0] if of_points else new.codes
        found = when(
            changed, lambda: tf.tensor_scatter_nd_update(old.codes, where, codes), old.codes
        )
        return new._replace(codes=found)

    return state._replace(
        position=scatter(state.position, store.position),
        elements={
            name: scatter(point, store.elements[name], adapt if name in adapted else True)
            for name, point in state.elements.items()
        },
    )
