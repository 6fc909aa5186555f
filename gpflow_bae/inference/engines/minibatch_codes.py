"""Gather the codes of a minibatch in the sampler's state, and scatter them back."""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf

from ...mcmc import State
from ...mcmc.structures import when
from ..chain_state import Point

__all__ = ["gather_codes", "scatter_codes"]


def gather_codes(state: State, indices: tf.Tensor | None, axis: int) -> State:
    """Restrict the sampler's position and elements, such as momenta, to some items (None for all).

    :param axis: axis of the items.
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
    """Return ``state`` with the codes of all items: its own, and those of ``store`` for the others.

    TensorFlow copies the input of a round before it changes a part of it. With a million points
    this takes as long as several steps.

    :param adapted: elements that still equal those of ``store``, unless ``adapt`` is true.
    """
    if indices is None:
        return state
    of_points = axis == 1  # the items are the points of a single task
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
