r"""Markov blankets of the codes of a minibatch under a nearest-neighbour prior.

Vecchia's density (:class:`~gpflow_bae.latent_priors.NearestNeighbourGP`) is a product of
conditionals, p(latents) = prod_n p(latent_n | latents_{N(n)}). A code is in the conditional of its
own point and in those of its children, the points that have it as a neighbour. So a step on a
minibatch b of B of N points, with all other codes at the chain's last values, takes

.. math::
    g_{parameters} &= \frac{N}{B} \sum_{n \in b} \nabla [\log p(latent_n | latents_{N(n)})
        + \log p(y_n | latent_n)] + \nabla \log p(parameters) \\
    g_{codes} &= \nabla \Big[ \sum_{n \in b \,\cup\, children(b)} \log p(latent_n | latents_{N(n)})
        + \sum_{n \in b} \log p(y_n | latent_n) \Big]

The first has the gradient of all data as its mean over minibatches. The second is the gradient of
the exact conditional of the batch's codes: each conditional with one of these codes occurs once,
without N/B; neighbours in b have their current codes, and others those of the chain.

A step uses no other points, so its cost is of the order of B (1 + children) m^3 for any number of
points (apart from writing the batch's codes to those of all points). A point has m children on
average. If a random batch is a large part of all points, its children are nearly all points, and
full batches then cost as little.

With fixed parameters a chain with one batch per round has the bias of its sampler only. Momenta of
points stay constant while other points have batches; with several batches per round this adds a
bias of the order of the step size squared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ...base import Conditionals
from ...latent_priors.neighbours import children_of
from ..settings import AmortizedSettings

__all__ = ["Surroundings", "surroundings_of"]


def surroundings_of(
    model: Any, data: Any, settings: AmortizedSettings, fixed_shapes: bool
) -> Surroundings | None:
    """Return the tables of a run whose minibatches of points need codes of others, else None.

    :param fixed_shapes: see :class:`Surroundings`.
    :raises ValueError: if codes are not carried, because those of neighbours are then unknown.
    """
    size, prior = settings.batch_size, model.latent_prior
    if size is None or size == data.num_items:
        return None
    if data.neighbours is None or prior.splits_over_points:
        return None
    if settings.codes != "carried":
        raise ValueError(
            f"Minibatches of points (batch_size={size}) under {type(prior).__name__} bring the "
            f'codes of neighbours as the chain left them, and codes="{settings.codes}" leaves '
            'none: set codes="carried", or batch_size=None.'
        )
    return Surroundings(data.neighbours, size, fixed_shapes)


class Surroundings:
    """Tables of neighbours and children, which give the conditionals of a minibatch's codes."""

    def __init__(self, neighbours: tf.Tensor, batch_size: int, fixed_shapes: bool = False):
        """
        :param neighbours: indices [N, m] of each point's neighbours, -1 for none.
        :param batch_size: number of points B of a minibatch.
        :param fixed_shapes: always return as many conditionals as a batch of that size can have,
            because XLA needs static shapes.
        """
        table = np.asarray(neighbours)
        splits, children = children_of(table)
        self._table = tf.constant(table, tf.int32)
        self._splits, self._children = tf.constant(splits), tf.constant(children)
        self._pairs = self._most = None
        if fixed_shapes:
            self._pairs = int(np.sort(np.diff(splits))[-batch_size:].sum())
            self._most = min(self._pairs, len(table) - batch_size)

    @check_shapes("indices: [B]", "X: [1, N, D]", "codes: [1, N, L]")
    def conditionals(self, indices: tf.Tensor, X: tf.Tensor, codes: tf.Tensor) -> Conditionals:
        """Return the conditionals of points ``indices`` and of their children outside the batch.

        :param X: inputs of all points.
        :param codes: codes of all points; those outside the batch are constants.
        """
        indices = tf.cast(indices, tf.int32)
        others, weights = self._children_outside(indices)
        points = tf.concat([indices, others], axis=0)
        rows = tf.concat([tf.gather(self._table, points), points[:, None]], axis=1)  # itself last
        present, known = rows >= 0, tf.maximum(rows, 0)
        ones = tf.ones_like(indices, codes.dtype)
        return Conditionals(
            X=tf.gather(X, known, axis=1),
            codes=tf.stop_gradient(tf.gather(codes, known, axis=1)),
            places=_places_in(indices, rows),
            present=present,
            weights=tf.concat([ones, tf.cast(weights, codes.dtype)], axis=0),
        )

    def _children_outside(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch's children outside it, each once, and which are valid (both [E])."""
        number = indices.shape[0]
        starts = tf.gather(self._splits, indices)
        ends = tf.cumsum(tf.gather(self._splits, indices + 1) - starts)  # of all pairs, in order
        pairs = tf.range(ends[-1] if self._pairs is None else self._pairs)
        parent = tf.minimum(tf.searchsorted(ends, pairs, side="right"), number - 1)
        within = pairs - tf.gather(tf.concat([[0], ends], axis=0), parent)
        last = self._children.shape[0] - 1
        child = tf.minimum(tf.gather(starts, parent) + within, last)
        child = tf.gather(self._children, child)
        # A child with several parents in the batch is kept for the first of them only.
        parents = _places_in(indices, tf.gather(self._table, child))
        first = tf.reduce_min(tf.where(parents < 0, number, parents), axis=1)
        outside = _places_in(indices, child) < 0
        wanted = (first == parent) & outside & (pairs < ends[-1])
        if self._most is None:
            child = tf.boolean_mask(child, wanted)
            return child, tf.ones_like(child, tf.bool)
        order = tf.argsort(tf.cast(~wanted, tf.int32), stable=True)[: self._most]
        return tf.gather(child, order), tf.gather(wanted, order)


def _places_in(indices: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Return the position of each of ``points`` in ``indices [B]``, -1 if it is absent."""
    order = tf.argsort(indices)
    ascending = tf.gather(indices, order)
    flat = tf.reshape(points, [-1])
    at = tf.minimum(tf.searchsorted(ascending, flat), tf.shape(indices)[0] - 1)
    found = tf.where(tf.gather(ascending, at) == flat, tf.gather(order, at), -1)
    return tf.reshape(found, tf.shape(points))
