"""A kernel of categories, with covariances within each only."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel

__all__ = ["Categorical"]


class Categorical(Kernel):
    """A kernel that is 1 if two inputs are equal in all active columns, and 0 otherwise.

    A product with it has independent functions for each category, such as the slice of a
    cell, which share the other kernel's parameters. (GPflow's Coregion has a parameter for each
    pair, and takes no leading batch of tasks.)
    """

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        if X2 is None:
            same = tf.equal(X[..., :, None, :], X[..., None, :, :])
        else:
            X2 = tf.convert_to_tensor(X2)
            lead = tf.concat([tf.shape(X)[:-1], tf.ones_like(tf.shape(X2)[:-1])], 0)
            same = tf.equal(tf.reshape(X, tf.concat([lead, tf.shape(X)[-1:]], 0)), X2)
        return tf.cast(tf.reduce_all(same, -1), X.dtype)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return tf.ones_like(tf.convert_to_tensor(X)[..., 0])
