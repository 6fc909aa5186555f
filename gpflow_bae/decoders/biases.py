"""The mean of a table's cells that needs no process: how high columns are, and rows."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import positive, to_default_float

from ..core.arguments import check_arguments, check_positive

__all__ = ["Biases"]


class Biases(MeanFunction):
    r"""m_p(x) = b_p + s x_d: a bias of each column, and one of each row, which is a code.

    In a table of ratings b_p is how much film p is liked, and s x_d how friendly a user is. The
    row's bias is the latent dimension d: inferred with the other codes, its prior N(0, s^2) and
    its uncertainty come with them, for new rows too. A kernel that shall leave it alone has
    ``active_dims`` without d. (Biases of users and items are those of Koren, Bell and Volinsky
    2009.)

    A mean function of :class:`~gpflow_bae.decoders.GPDecoder`, and any GPflow model's with P
    outputs.
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
        :param output_dim: P, the columns.
        :param row_dimension: d, from 0 to L - 1; None for no bias of rows.
        :param column_scale: standard deviation of the normal prior of each b_p, which keeps columns
            that are rarely seen near the others. In units of f.
        :param row_scale: s at the start; it is fitted.
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
        """The biases of cells.

        :param X: codes [..., B, L].
        :param columns: None for all, [E] for the same ones at every code, [B, E] for each code's.
        :return: [..., B, P or E].
        :raises ValueError: for codes that have no dimension d.
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
