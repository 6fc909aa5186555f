"""A mean function of row and column biases, for GPLVMs of tables."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import positive, to_default_float

from ..core.annotations import check_arguments
from ..core.arguments import check_positive

__all__ = ["Biases"]


class Biases(MeanFunction):
    r"""A bias of each column and one of each row: m_p(x) = b_p + s x_d, where x_d is a code.

    In a table of ratings b_p is the mean rating of film p, and s x_d the deviation of a user. The
    row's bias is the latent dimension d: it is inferred with the other codes, with the prior
    N(0, s^2) and a posterior, also for new rows. To exclude it from a kernel, use ``active_dims``
    without d. (Biases of users and items: Koren, Bell and Volinsky 2009.)

    It is a mean function for :class:`~gpflow_bae.decoders.GPDecoder`, and for any GPflow model
    with P outputs.
    """

    @check_arguments(output_dim=1, row_dimension=0)
    def __init__(
        self,
        output_dim: int,
        row_dimension: int | None = None,
        column_scale: float = 1.0,
        row_scale: float = 1.0,
    ):
        """
        :param output_dim: number of columns P.
        :param row_dimension: d, from 0 to L - 1; None for no bias of rows.
        :param column_scale: standard deviation of the normal prior of each b_p, in units of f; it
            shrinks the biases of rarely observed columns.
        :param row_scale: initial value of s, which is trainable.
        :raises ValueError: for scales that are not positive.
        """
        super().__init__()
        check_positive(column_scale=column_scale, row_scale=row_scale)
        self.row_dimension = row_dimension
        dtype = gpflow.default_float()
        scale = np.array(column_scale, dtype)
        self.columns = Parameter(
            np.zeros(output_dim),
            prior=tfp.distributions.Normal(np.zeros_like(scale), scale),
            dtype=dtype,
        )
        self.row_scale = (
            None
            if row_dimension is None
            else Parameter(row_scale, transform=positive(), dtype=dtype)
        )

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        return self.of_columns(X)

    def of_columns(self, X: TensorType, columns: TensorType | None = None) -> tf.Tensor:
        """Return the biases of cells.

        :param X: codes [..., B, L].
        :param columns: column indices, [E] for all codes or [B, E] for each; None for all columns.
        :return: [..., B, P or E].
        :raises ValueError: if codes have no dimension d.
        """
        X = to_default_float(X)
        of_columns = tf.convert_to_tensor(self.columns)
        if columns is not None:
            of_columns = tf.gather(of_columns, columns)
        if self.row_scale is None:
            shape = tf.concat([tf.shape(X)[:-1], tf.shape(of_columns)[-1:]], 0)
            return tf.broadcast_to(of_columns, shape)
        if X.shape[-1] <= self.row_dimension:
            raise ValueError(
                f"row_dimension is {self.row_dimension}, and codes have {X.shape[-1]} dimensions: "
                f"expected one from 0 to {X.shape[-1] - 1}."
            )
        return self.row_scale * X[..., self.row_dimension, None] + of_columns
