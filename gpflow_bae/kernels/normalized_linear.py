"""The linear kernel of normalised inputs: cosine similarity."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

from ..core.arguments import as_numbers, check_integer

__all__ = ["NormalizedLinear"]


class NormalizedLinear(Kernel):
    r"""The linear kernel of inputs scaled to unit length: the cosine of the angle between them.

    .. math:: k(x, x') = \sigma^2 \frac{\langle x, x' \rangle}{|x| \, |x'|}

    Over learnt object vectors (:class:`gpflow_bae.kernels.ObjectView`) it makes the variance
    identifiable. An input of length 0 has no direction: its variance and covariances are 0, and
    gradients there are finite.
    """

    @check_shapes("variance: []")
    def __init__(
        self,
        variance: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
        name: str | None = None,
    ):
        """
        :param variance: initial value of the variance parameter :math:`\\sigma^2`.
        :param active_dims: a slice or list of the columns of X that the kernel uses.
        """
        if active_dims is not None and not isinstance(active_dims, slice):
            if isinstance(active_dims, str) or not np.iterable(active_dims):
                raise TypeError(f"active_dims must be a slice or a list, got {active_dims!r}.")
            for column in active_dims:
                check_integer("active_dims", column, 0)
        variance = as_numbers(variance, "variance")
        if not 0 < variance < np.inf:
            raise ValueError(f"variance must be positive and finite, got {variance}.")
        super().__init__(active_dims=active_dims, name=name)
        self.variance = Parameter(variance, transform=positive())

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X = _unit_vectors(X)
        if X2 is None:
            return self.variance * tf.linalg.matmul(X, X, transpose_b=True)
        return self.variance * tf.tensordot(X, _unit_vectors(X2), [[-1], [-1]])

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        squares = tf.reduce_sum(tf.square(X), axis=-1)
        variance = tf.fill(tf.shape(squares), tf.convert_to_tensor(self.variance))
        return tf.where(squares > 0.0, variance, tf.zeros_like(variance))


def _unit_vectors(X: TensorType) -> tf.Tensor:
    """Scale the rows of ``X [..., N, D]`` to unit length; zero rows stay zero."""
    squares = tf.reduce_sum(tf.square(X), axis=-1, keepdims=True)
    # The root is never of 0, because the unused branch must have a finite gradient too.
    return X * tf.math.rsqrt(tf.where(squares > 0.0, squares, tf.ones_like(squares)))
