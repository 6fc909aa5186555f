r"""Coordinates of single parameters from the Fisher information, by Kronecker factors.

For a parameter W, a matrix with its last axis as columns, whose gradients G have the covariance F,
the eigenvectors of E[G G^T] and E[G^T G] are about those of F, and the variances of G in their
product basis its eigenvalues (George et al. 2018, "Fast approximate natural gradient descent in a
Kronecker-factored eigenbasis", algorithm 1). So in coordinates u with::

    W = left ((F + prior precision + damping)^-1/2 * u) right^T

the posterior is about a standard normal, as far as one parameter alone goes: what one says of
another is left out. What has no more than a thousand numbers is taken as one column, so that the
basis is that of F itself. A side of more than a thousand has none: its rotation would cost more
than the layer, and where it is the pixels of an image, whose noise is independent, E[G^T G] is
diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..parameter_set import ParameterSet
from .loops import repeat

__all__ = [
    "Factor",
    "basis_sizes",
    "fisher_factors",
    "prior_precision",
    "rescaled",
    "squares_along",
]

_LARGEST_SIDE = 1000  # that has a basis
_SEED = 0x5CA1E  # of the draws of a scale, folded into those of a basis


class Factor(NamedTuple):
    """A parameter in other coordinates: value = left (scale * u) right^T."""

    scale: tf.Tensor  # of the parameter's shape, or one that broadcasts to it
    left: tuple[tf.Tensor, ...] = ()  # one orthogonal matrix [R, R], or none
    right: tuple[tf.Tensor, ...] = ()  # [C, C]

    def to_value(self, u: tf.Tensor) -> tf.Tensor:
        """The value at coordinates [chains..., shape...]."""
        return self.rotated(self.scale * u, inverse=False)

    def from_value(self, value: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`to_value`."""
        return self.rotated(value, inverse=True) / self.scale

    def gradient(self, by_value: tf.Tensor) -> tf.Tensor:
        """The gradient by coordinates, given that by the value."""
        return self.scale * self.rotated(by_value, inverse=True)

    def rotated(self, tensor: tf.Tensor, *, inverse: bool) -> tf.Tensor:
        """Without the scale: left tensor right^T, or left^T tensor right."""
        if not self.left and not self.right:
            return tensor
        shape = tf.shape(tensor)
        chains = shape[: tensor.shape.rank - self.scale.shape.rank]
        sides = _matrix_sides(self.scale.shape)
        matrix = tf.reshape(tensor, tf.concat([chains, sides], 0))
        for left in self.left:
            matrix = tf.linalg.matmul(left, matrix, transpose_a=inverse)
        for right in self.right:
            matrix = tf.linalg.matmul(matrix, right, transpose_b=not inverse)
        return tf.reshape(matrix, shape)


def fisher_factors(
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    seeds: tf.Tensor,
    precision: Sequence[tf.Tensor],
    relative_damping: float = 0.0,
) -> tuple[Factor, ...]:
    """A :class:`Factor` for each parameter.

    :param draw: seed [2] -> a gradient of the log likelihood by each parameter, with mean 0 and the
        Fisher information as its covariance.
    :param seeds: [S, 2], of S draws for the bases; the scales along them take S draws of their own,
        since those that chose a direction say too little of it.
    :param precision: of the prior, by parameter and alike; a matrix takes its mean.
    :param relative_damping: added to the precision, as a share of the parameter's mean Fisher
        information: no direction is scaled by more than this allows.
    """
    number = seeds.shape[0]
    sizes = [basis_sizes(p.shape) for p in precision]

    def outer_products(i: tf.Tensor, sums: list[Any]) -> list[Any]:
        found = []
        for (left, right), g in zip(sums, draw(seeds[i]), strict=True):
            matrix = tf.reshape(g, _matrix_sides(g.shape)) if left or right else g
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
        if _is_column(p.shape):  # the basis of the posterior precision itself
            left = tuple(m + number * tf.linalg.diag(tf.reshape(p, [-1])) for m in left)
        bases = tf.nest.map_structure(lambda m: tf.linalg.eigh(m)[1], (left, right))
        rotations.append(Factor(tf.ones_like(p), *bases))

    found = squares_along(
        rotations,
        lambda seed: draw(tf.random.fold_in(seed, _SEED, alg="philox")),
        seeds,
        [tf.zeros_like(p) for p in precision],
    )
    return rescaled(rotations, [total / number for total in found], precision, relative_damping)


def squares_along(
    factors: Sequence[Factor],
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    seeds: tf.Tensor,
    start: Sequence[tf.Tensor],
) -> tuple[tf.Tensor, ...]:
    """Squares of draws along the bases of factors, summed; arguments as above.

    :param start: what is added to, by parameter.
    """

    def add(i: tf.Tensor, sums: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        triples = zip(sums, factors, draw(seeds[i]), strict=True)
        return tuple(total + tf.square(f.rotated(g, inverse=True)) for total, f, g in triples)

    return repeat(seeds.shape[0], add, tuple(start))


def rescaled(
    factors: Sequence[Factor],
    fisher: Sequence[tf.Tensor],
    precision: Sequence[tf.Tensor],
    relative_damping: float = 0.0,
) -> tuple[Factor, ...]:
    """The same bases, with scales for an information along them; arguments as above."""
    found = []
    for factor, information, prior in zip(factors, fisher, precision, strict=True):
        damping = relative_damping * tf.reduce_mean(information)
        scale = tf.math.rsqrt(information + _along(factor, prior) + damping)
        found.append(factor._replace(scale=scale))
    return tuple(found)


def _along(rotation: Factor, precision: tf.Tensor) -> tf.Tensor:
    """The precision of the prior along each coordinate."""
    if not rotation.left and not rotation.right:
        return precision
    if not _is_column(precision.shape):
        # Priors are the same within a matrix in every case of use, and their mean stands for them.
        return tf.reduce_mean(precision)
    (left,) = rotation.left
    along = tf.linalg.matvec(tf.square(left), tf.reshape(precision, [-1]), transpose_a=True)
    return tf.reshape(along, tf.shape(precision))


def _is_column(shape: tf.TensorShape) -> bool:
    """Whether a parameter is taken as one column."""
    return shape.rank < 2 or int(shape.num_elements()) <= _LARGEST_SIDE


def _matrix_sides(shape: tf.TensorShape) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix."""
    columns = 1 if _is_column(shape) else int(shape[-1])
    return int(shape.num_elements()) // columns, columns


def basis_sizes(shape: tf.TensorShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the bases of a parameter's :class:`Factor`, left and right; () for a side without."""
    left, right = ((n,) if 1 < n <= _LARGEST_SIDE else () for n in _matrix_sides(shape))
    return left, right


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
