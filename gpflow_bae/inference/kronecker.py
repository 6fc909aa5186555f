r"""Coordinates of single parameters from the Fisher information, by Kronecker factors.

For a parameter W, a matrix with its last axis as columns, whose gradients G have the covariance F,
the eigenvectors of E[G G^T] and E[G^T G] are about those of F, and the variances of G in their
product basis its eigenvalues (George et al. 2018, "Fast approximate natural gradient descent in a
Kronecker-factored eigenbasis", algorithm 1). So in coordinates u with::

    W = left ((F + prior precision + damping)^-1/2 * u) right^T

the posterior is about a standard normal, as far as one parameter alone goes: what one says of
another is left out. Vectors and numbers are scaled one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..parameter_set import ParameterSet
from .loops import repeat

__all__ = ["Factor", "fisher_factors", "matrix_sides", "prior_precision"]

_LARGEST_SIDE = 2048  # of a matrix whose eigenvectors are computed


class Factor(NamedTuple):
    """A parameter in other coordinates: value = left (scale * u) right^T."""

    scale: tf.Tensor  # of the parameter's shape, or one that broadcasts to it
    bases: tuple[tf.Tensor, ...] = ()  # left [R, R] and right [C, C], orthogonal; () for none

    def to_value(self, u: tf.Tensor) -> tf.Tensor:
        """The value at coordinates [chains..., shape...]."""
        return self._rotated(self.scale * u, inverse=False)

    def from_value(self, value: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`to_value`."""
        return self._rotated(value, inverse=True) / self.scale

    def gradient(self, by_value: tf.Tensor) -> tf.Tensor:
        """The gradient by coordinates, given that by the value."""
        return self.scale * self._rotated(by_value, inverse=True)

    def _rotated(self, tensor: tf.Tensor, *, inverse: bool) -> tf.Tensor:
        if not self.bases:
            return tensor
        left, right = self.bases
        shape = tf.shape(tensor)
        chains = shape[: tensor.shape.rank - self.scale.shape.rank]
        matrix = tf.reshape(tensor, tf.concat([chains, [left.shape[0], right.shape[0]]], 0))
        product = tf.linalg.matmul(left, matrix, transpose_a=inverse)
        return tf.reshape(tf.linalg.matmul(product, right, transpose_b=not inverse), shape)


def fisher_factors(
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    seeds: tf.Tensor,
    precision: Sequence[tf.Tensor],
    relative_damping: float = 0.0,
) -> tuple[Factor, ...]:
    """A :class:`Factor` for each parameter.

    :param draw: seed [2] -> a gradient of the log likelihood by each parameter, with mean 0 and the
        Fisher information as its covariance. It is called twice with each seed.
    :param seeds: [S, 2].
    :param precision: of the prior, by parameter and alike; a matrix takes its mean.
    :param relative_damping: added to the precision, as a share of the parameter's mean Fisher
        information: no direction is scaled by more than this allows.
    """
    number = seeds.shape[0]
    sides = [matrix_sides(p.shape) for p in precision]

    def outer_products(i: tf.Tensor, sums: list[Any]) -> list[Any]:
        return [
            (
                left + tf.linalg.matmul(g, g, transpose_b=True),
                right + tf.linalg.matmul(g, g, transpose_a=True),
            )
            for (left, right), g in zip(sums, matrices(draw(seeds[i])), strict=True)
        ]

    def matrices(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        pairs = zip(gradients, sides, strict=True)
        return [tf.reshape(g, side) for g, side in pairs if side is not None]

    nothing = [
        tuple(tf.zeros([n, n], p.dtype) for n in side)
        for p, side in zip(precision, sides, strict=True)
        if side is not None
    ]
    found = iter(repeat(number, outer_products, nothing) if nothing else [])
    rotations = [
        Factor(
            tf.ones_like(p),
            () if side is None else tuple(tf.linalg.eigh(moment)[1] for moment in next(found)),
        )
        for p, side in zip(precision, sides, strict=True)
    ]

    # A second pass over the same draws measures the variance along each product of eigenvectors.
    def squares_of(i: tf.Tensor, sums: list[tf.Tensor]) -> list[tf.Tensor]:
        return [
            total + tf.square(rotation.gradient(g))
            for total, rotation, g in zip(sums, rotations, draw(seeds[i]), strict=True)
        ]

    squares = repeat(number, squares_of, [tf.zeros_like(p) for p in precision])
    factors = []
    for total, rotation, prior in zip(squares, rotations, precision, strict=True):
        fisher = total / number
        # Rotated, one element's prior precision is no longer that of one coordinate; priors are the
        # same within a tensor in every case of use, and their mean stands for them.
        prior = tf.reduce_mean(prior) if rotation.bases else prior
        damping = relative_damping * tf.reduce_mean(fisher)
        factors.append(rotation._replace(scale=tf.math.rsqrt(fisher + prior + damping)))
    return tuple(factors)


def matrix_sides(shape: tf.TensorShape) -> tuple[int, int] | None:
    """Rows and columns of a parameter as a matrix; None for one that is none, or is too large."""
    if shape.rank < 2:
        return None
    columns = int(shape[-1])
    rows = int(shape.num_elements()) // columns
    return (rows, columns) if max(rows, columns) <= _LARGEST_SIDE else None


def prior_precision(
    sampled: ParameterSet, values: Sequence[tf.Tensor], least: float = 1e-8
) -> tuple[tf.Tensor, ...]:
    """Minus the second derivative of the log prior, which factorises over scalars.

    :param values: unconstrained, in the order of ``sampled.paths``.
    :param least: what stands where it is less, such as where a log density is convex.
    """
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(values)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(values)
            log_prior = sampled.log_prior(values)
        slopes = inner.gradient(
            log_prior, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        total = tf.add_n([tf.cast(tf.reduce_sum(s), tf.float64) for s in slopes])
    curvature = outer.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return tuple(tf.maximum(-c, least) for c in curvature)
