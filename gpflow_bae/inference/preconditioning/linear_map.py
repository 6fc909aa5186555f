"""Linear maps value = A u from a sampler's preconditioned coordinates to the values of a model.

A is constant within a round of the sampler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ...mcmc import Target
from ...mcmc.calibrated.targets import Evaluation
from ..chain_state import Point

__all__ = ["CodeMap", "KroneckerMap", "PointMap", "is_column", "matrix_sides"]

LARGEST_SIDE = 1000  # longest side of a matrix with a basis


class KroneckerMap(NamedTuple):
    """A linear map of one parameter, value = left (scale * u) right^T.

    It is diagonal without bases, and dense for a parameter of one column.
    """

    scale: tf.Tensor  # of the parameter's shape, or one that broadcasts to it
    left: tuple[tf.Tensor, ...] = ()  # one orthogonal matrix [R, R], or none
    right: tuple[tf.Tensor, ...] = ()  # one orthogonal matrix [C, C], or none

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the value at coordinates [chains..., shape...]."""
        return self.rotated(self.scale * u, inverse=False)

    def inverse(self, value: tf.Tensor) -> tf.Tensor:
        """Return the coordinates of a value."""
        return self.rotated(value, inverse=True) / self.scale

    def pullback(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient by coordinates, given the gradient by the value."""
        return self.scale * self.rotated(slope, inverse=True)

    def rotated(self, tensor: tf.Tensor, *, inverse: bool) -> tf.Tensor:
        """Apply the bases without the scale: left tensor right^T, or left^T tensor right."""
        if not self.left and not self.right:
            return tensor
        shape = tf.shape(tensor)
        chains = shape[: tensor.shape.rank - self.scale.shape.rank]
        sides = matrix_sides(self.scale.shape)
        matrix = tf.reshape(tensor, tf.concat([chains, sides], 0))
        for left in self.left:
            matrix = tf.linalg.matmul(left, matrix, transpose_a=inverse)
        for right in self.right:
            matrix = tf.linalg.matmul(matrix, right, transpose_b=not inverse)
        return tf.reshape(matrix, shape)


class CodeMap(NamedTuple):
    """A linear map of codes [T, N, L], by one matrix for each channel of a task, or for all.

    Matrices are [T, 1, N, N] for shared channels, [T, L, N, N] for separate channels, or
    [T, 1, N L, N L] for all codes of a task, with points before channels.
    """

    matrix: tf.Tensor
    inverted: tf.Tensor

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the codes at coordinates."""
        return _product(self.matrix, u)

    def inverse(self, value: tf.Tensor) -> tf.Tensor:
        """Return the coordinates of codes."""
        return _product(self.inverted, value)

    def pullback(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient by coordinates, given the gradient by the codes."""
        return _product(self.matrix, slope, transpose=True)


def _product(matrix: tf.Tensor, codes: tf.Tensor, *, transpose: bool = False) -> tf.Tensor:
    if matrix.shape[-3] > 1:
        by_channel = tf.linalg.matrix_transpose(codes)  # [T, L, N]
        return tf.linalg.matrix_transpose(
            tf.linalg.matvec(matrix, by_channel, transpose_a=transpose)
        )
    shape = tf.shape(codes)
    columns = tf.reshape(codes, [shape[0], tf.shape(matrix)[-1], -1])
    return tf.reshape(tf.linalg.matmul(matrix[:, 0], columns, transpose_a=transpose), shape)


class PointMap(NamedTuple):
    """A linear map of a sampler's position, by a map for each parameter and one for codes."""

    parameters: tuple[KroneckerMap, ...]
    codes: CodeMap | None = None  # None if codes are not preconditioned

    def forward(self, u: Point) -> Point:
        """Return the model's values at coordinates."""
        return self._applied("forward", u)

    def inverse(self, value: Point) -> Point:
        """Return the coordinates of the model's values."""
        return self._applied("inverse", value)

    def pullback(self, slope: Point) -> Point:
        """Return the gradient by coordinates, given the gradient by the model's values."""
        return self._applied("pullback", slope)

    def _applied(self, name: str, point: Point) -> Point:
        pairs = zip(self.parameters, point.parameters, strict=True)
        parameters = tuple(getattr(part, name)(v) for part, v in pairs)
        codes = point.codes if self.codes is None else getattr(self.codes, name)(point.codes)
        return Point(parameters, codes)

    def target(self, target: Target) -> Target:
        """Return the target in coordinates; its log density omits the constant log Jacobian."""
        natural, density = target.gradient, target.evaluate
        assert natural is not None

        def gradient(point: Point, seed: Any) -> Point:
            return self.pullback(natural(self.forward(point), seed))

        if density is None:
            return Target(gradient)

        def evaluate(point: Point) -> Evaluation:
            found = density(self.forward(point))
            return found._replace(
                tempered_gradient=self.pullback(found.tempered_gradient),
                untempered_gradient=self.pullback(found.untempered_gradient),
            )

        return Target(gradient, evaluate)


def is_column(shape: tf.TensorShape) -> bool:
    """Return whether a parameter is treated as one column."""
    return shape.rank < 2 or int(shape.num_elements()) <= LARGEST_SIDE


def matrix_sides(shape: tf.TensorShape) -> tuple[int, int]:
    """Return the numbers of rows and columns of a parameter as a matrix."""
    columns = 1 if is_column(shape) else int(shape[-1])
    return int(shape.num_elements()) // columns, columns
