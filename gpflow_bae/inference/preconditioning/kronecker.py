r"""Kronecker-factored preconditioners of single parameters, from the Fisher information.

For a parameter W, a matrix with its last axis as columns, whose gradients G have the covariance F,
the eigenvectors of E[G G^T] and E[G^T G] are about those of F, and the variances of G in their
product basis its eigenvalues (George et al. 2018, "Fast approximate natural gradient descent in a
Kronecker-factored eigenbasis", algorithm 1). So in coordinates u with::

    W = left ((F + prior precision + damping)^-1/2 * u) right^T

the posterior of one parameter given the others is about a standard normal; correlations between
parameters are ignored. A parameter of at most a thousand elements is treated as one column, so that
its basis is that of F itself. A side longer than a thousand has no basis: its rotation would cost
more than the layer, and for the pixels of an image, whose noise is independent, E[G^T G] is
diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...mcmc.noise import fold_in
from ..loops import repeat
from .linear_map import LARGEST_SIDE, KroneckerMap, is_column, matrix_sides

__all__ = ["basis_sizes", "fisher_maps", "identity_map", "rescaled", "squares_along"]

_SEED = 0x5CA1E  # folded into the seeds of bases for the draws of scales


def fisher_maps(
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    seeds: tf.Tensor,
    precision: Sequence[tf.Tensor],
    relative_damping: float = 0.0,
) -> tuple[KroneckerMap, ...]:
    """Return a :class:`KroneckerMap` for each parameter.

    :param draw: maps a seed [2] to a random gradient by each parameter, with mean 0 and the Fisher
        information as its covariance.
    :param seeds: seeds [S, 2] of S draws for the bases; the scales along them use S separate draws,
        because those that determined a direction give a biased estimate of its scale.
    :param precision: prior precision by parameter, of its shape; matrices use its mean.
    :param relative_damping: added to the precision, as a share of the parameter's mean Fisher
        information, to limit scales.
    """
    number = seeds.shape[0]
    sizes = [basis_sizes(p.shape) for p in precision]

    def outer_products(i: tf.Tensor, sums: list[Any]) -> list[Any]:
        found = []
        for (left, right), g in zip(sums, draw(seeds[i]), strict=True):
            matrix = tf.reshape(g, matrix_sides(g.shape)) if left or right else g
            found.append(
                (
                    tuple(m + tf.linalg.matmul(matrix, matrix, transpose_b=True) for m in left),
                    tuple(m + tf.linalg.matmul(matrix, matrix, transpose_a=True) for m in right),
                )
            )
        return found

    nothing = [
        tf.nest.map_structure(lambda n, p=p: tf.zeros([n, n], p.dtype), size)
        for p, size in zip(precision, sizes, strict=True)
    ]
    moments = repeat(number, outer_products, nothing) if tf.nest.flatten(nothing) else nothing
    rotations = []
    for p, (left, right) in zip(precision, moments, strict=True):
        if is_column(p.shape):  # the basis of the posterior precision itself
            left = tuple(m + number * tf.linalg.diag(tf.reshape(p, [-1])) for m in left)
        bases = tf.nest.map_structure(lambda m: tf.linalg.eigh(m)[1], (left, right))
        rotations.append(KroneckerMap(tf.ones_like(p), *bases))

    found = squares_along(
        rotations,
        lambda seed: draw(fold_in(seed, _SEED)),
        seeds,
        [tf.zeros_like(p) for p in precision],
    )
    return rescaled(rotations, [total / number for total in found], precision, relative_damping)


def squares_along(
    factors: Sequence[KroneckerMap],
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    seeds: tf.Tensor,
    start: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, ...]:
    """Return ``start`` plus the sum of squared draws along the bases of ``factors``.

    Other arguments are as in :func:`fisher_maps`.
    """

    def add(i: tf.Tensor, sums: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        triples = zip(sums, factors, draw(seeds[i]), strict=True)
        return tuple(total + tf.square(f.rotated(g, inverse=True)) for total, f, g in triples)

    return repeat(seeds.shape[0], add, tuple(start))


def rescaled(
    factors: Sequence[KroneckerMap],
    fisher: Sequence[tf.Tensor],
    precision: Sequence[tf.Tensor],
    relative_damping: float = 0.0,
) -> tuple[KroneckerMap, ...]:
    """Return maps of the same bases, with scales for the information ``fisher`` along them."""
    found = []
    for factor, information, prior in zip(factors, fisher, precision, strict=True):
        damping = relative_damping * tf.reduce_mean(information)
        scale = tf.math.rsqrt(information + _along(factor, prior) + damping)
        found.append(factor._replace(scale=scale))
    return tuple(found)


def _along(rotation: KroneckerMap, precision: tf.Tensor) -> tf.Tensor:
    """Return the prior precision along each direction of the basis."""
    if not rotation.left and not rotation.right:
        return precision
    if not is_column(precision.shape):
        # All uses have one prior within a matrix, so the mean is exact.
        return tf.reduce_mean(precision)
    (left,) = rotation.left
    along = tf.linalg.matvec(tf.square(left), tf.reshape(precision, [-1]), transpose_a=True)
    return tf.reshape(along, tf.shape(precision))


def identity_map(value: tf.Tensor) -> KroneckerMap:
    """Return the identity, with bases of the shapes that a fitted map of this parameter has."""
    bases = tf.nest.map_structure(lambda n: tf.eye(n, dtype=value.dtype), basis_sizes(value.shape))
    return KroneckerMap(tf.ones_like(value), *bases)


def basis_sizes(shape: tf.TensorShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of a parameter's left and right bases; () for a side without a basis."""
    left, right = ((n,) if 1 < n <= LARGEST_SIDE else () for n in matrix_sides(shape))
    return left, right
