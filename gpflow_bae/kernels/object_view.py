"""A kernel over objects and views, with a learnt vector per object."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel
from tensorflow_probability import distributions as tfd

from ..core.arguments import as_numbers, kind_of
from ..core.linalg import gather_rows

__all__ = ["ObjectView"]


class ObjectView(Kernel):
    r"""The product of a kernel over views and a kernel over learnt vectors of objects.

    An input is [object id, view...], and

    .. math:: k(x, x') = k_{view}(view, view') \, k_{object}(o_{id}, o_{id'})

    with one learnt vector :math:`o_{id} \in R^H` per object (the GP-LVM part of the inputs).
    Casale et al. (2018); Jazbec et al. (2021), appendix B.3, whose kernel is the default:

    .. math:: k = \sigma^2 \exp(-2 \sin^2(|a - a'| / 2) / l^2) \, \langle o_{id}, o_{id'} \rangle

    for angles a in radians (printed there without the half, which would give a period of pi).
    GPflow's ``Periodic`` has 0.5 in place of the 2 inside the
    exponential, so its lengthscale is l / 2; the initial value 1 is l = 2.

    (view, :math:`o_{id}`) is the embedding of an input. Covariances are computed from it
    (:meth:`embed`, :meth:`K_embedded`), and inducing points are embedded points: see
    :class:`gpflow_bae.inducing_variables.ObjectViewInducingPoints`.

    Object ids are checked in eager mode only. Inside a compiled function an id out of range
    is an error or a wrong row, depending on ``tf.gather`` on that device.
    """

    def __init__(
        self,
        object_vectors: TensorType,
        view_kernel: Kernel | None = None,
        object_kernel: Kernel | None = None,
        object_vectors_prior: tfd.Distribution | None = None,
        name: str | None = None,
    ):
        """
        :param object_vectors: initial object vectors [num_objects, H]. A ``Parameter`` is used
            directly, so that kernels can share one.
        :param view_kernel: kernel over the views [..., N, D]; by default ``Periodic`` of a
            ``SquaredExponential``, its period fixed at 2 pi. Its variance is the amplitude.
        :param object_kernel: kernel over object vectors [..., N, H]; by default ``Linear``, its
            variance fixed at 1. Fix the variance of another one too: it is not identifiable beside
            that of the view kernel.
        :param object_vectors_prior: prior of the object vectors, by default Normal(0, s) for each
            entry, s the root mean square of the initial ones (a ``Parameter`` with a prior keeps
            it).
        :raises TypeError: if a kernel is not a GPflow kernel of one output.
        :raises ValueError: if the object vectors are not a finite matrix, or all 0 while they need
            a default prior.
        """
        super().__init__(name=name)
        if view_kernel is None:
            view_kernel = gpflow.kernels.Periodic(
                gpflow.kernels.SquaredExponential(), period=2.0 * np.pi
            )
            gpflow.set_trainable(view_kernel.period, False)
        if object_kernel is None:
            object_kernel = gpflow.kernels.Linear()
            gpflow.set_trainable(object_kernel.variance, False)
        self.view_kernel = _kernel("view_kernel", view_kernel)
        self.object_kernel = _kernel("object_kernel", object_kernel)
        self.object_vectors = _object_vectors(object_vectors, object_vectors_prior)

    @property
    def num_objects(self) -> int:
        """Number of objects; ids run from 0 to ``num_objects - 1``."""
        return int(self.object_vectors.shape[0])

    @property
    def object_dim(self) -> int:
        """Width H of the object vectors."""
        return int(self.object_vectors.shape[1])

    @check_shapes("X: [batch..., N, C]", "return: [batch..., N, E]")
    def embed(self, X: TensorType) -> tf.Tensor:
        """Embed inputs [..., N, 1 + D] as (view, object vector) [..., N, D + H].

        The gradient with respect to object vectors is dense; that of ``X`` is zero for ids.

        :param X: object id (an integer) in column 0, the view in the others.
        :raises ValueError: if there is no view column, or, in eager mode, if ids are not integers
            from 0 to num_objects - 1.
        """
        return tf.concat(self._views_and_vectors(X), axis=-1)

    def _views_and_vectors(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return views and object vectors of inputs, not concatenated.

        If concatenated, views would have a gradient wherever object vectors have one, and the
        gradient of a view kernel takes as long as the kernel.
        """
        vectors = tf.convert_to_tensor(self.object_vectors)
        X = tf.convert_to_tensor(X, dtype=vectors.dtype)
        if X.shape[-1] is not None and X.shape[-1] < 2:
            raise ValueError(
                f"X needs columns [object id, view...], at least 2, got shape {tuple(X.shape)}; "
                "join the ids and the views along the last axis."
            )
        self._check_ids(X)
        # A cast truncates, and arithmetic on X may have left rounding errors.
        rows = gather_rows(vectors, tf.cast(tf.round(X[..., 0]), tf.int32))
        return X[..., 1:], rows

    def _check_ids(self, X: tf.Tensor) -> None:
        """Check that ids are rows of the object vectors, if their values are known."""
        values = tf.get_static_value(X)
        if values is None:
            return
        ids = values[..., 0]
        row_number = (ids == np.round(ids)) & (ids >= 0) & (ids < self.num_objects)
        if not row_number.all():
            raise ValueError(
                f"X holds the object id {ids[~row_number][0]:g} in column 0, but ids must be "
                f"whole numbers from 0 to {self.num_objects - 1}, the rows of object_vectors "
                f"{tuple(self.object_vectors.shape)}; X needs columns [object id, view...]."
            )

    @check_shapes(
        "A: [batch..., N, E]",
        "A2: [batch2..., N2, E]",
        "return: [batch..., N, batch2..., N2] if A2 is not None",
        "return: [batch..., N, N] if A2 is None",
    )
    def K_embedded(self, A: TensorType, A2: TensorType | None = None) -> tf.Tensor:
        """Return covariances of embedded points (view, object vector).

        :param A, A2: embedded points [..., N, D + H], see :meth:`embed`.
        :raises ValueError: if a point is no wider than an object vector.
        """
        return self._product(self._split(A), None if A2 is None else self._split(A2))

    @check_shapes(
        "A: [batch..., N, E]",
        "X: [batch2..., N2, C]",
        "return: [batch..., N, batch2..., N2]",
    )
    def K_between(self, A: TensorType, X: TensorType) -> tf.Tensor:
        """Return covariances of embedded points and inputs.

        :param A: embedded points [..., N, D + H], see :meth:`embed`.
        :param X: inputs [..., N2, 1 + D].
        :raises ValueError: if their views differ in width, or a point is no wider than an object
            vector.
        """
        points, inputs = self._split(A), self._views_and_vectors(X)
        if not points[0].shape[-1:].is_compatible_with(inputs[0].shape[-1:]):
            views, width = inputs[0].shape[-1], self.object_dim
            raise ValueError(
                f"Inducing points, or others that are embedded, have shape {tuple(A.shape)}, but "
                f"for X with {views} view column(s) and object vectors of width {width} they need "
                f"{views + width} columns [view..., object vector]."
            )
        # Inputs are one matrix of rows, as the linear kernel would transpose a batch of matrices.
        rows = [tf.reshape(v, tf.stack([-1, tf.shape(v)[-1]])) for v in inputs]
        found = self._product(points, (rows[0], rows[1]))
        return tf.reshape(found, tf.concat([tf.shape(found)[:-1], tf.shape(inputs[0])[:-1]], 0))

    def _product(
        self, first: tuple[tf.Tensor, tf.Tensor], second: tuple[tf.Tensor, tf.Tensor] | None = None
    ) -> tf.Tensor:
        """Return covariances of pairs (views, object vectors)."""
        (views, vectors), (views2, vectors2) = first, second or (None, None)
        return self.view_kernel(views, views2) * self.object_kernel(vectors, vectors2)

    def _variances(self, views: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        return self.view_kernel(views, full_cov=False) * self.object_kernel(vectors, full_cov=False)

    def _split(self, A: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Return views [..., N, D] and object vectors [..., N, H] of embedded points."""
        A = tf.convert_to_tensor(A)
        if A.shape[-1] is not None and A.shape[-1] <= self.object_dim:
            raise ValueError(
                "Embedded points need columns [view..., object vector], more than the "
                f"{self.object_dim} of an object vector, got shape {tuple(A.shape)}; join the "
                "views and the object vectors along the last axis, or embed inputs with "
                "kernel.embed(X)."
            )
        return A[..., : -self.object_dim], A[..., -self.object_dim :]

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self._product(
            self._views_and_vectors(X), None if X2 is None else self._views_and_vectors(X2)
        )

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self._variances(*self._views_and_vectors(X))


def _kernel(argument: str, kernel: Any) -> Kernel:
    """Return ``kernel`` if it is a GPflow kernel of a single output, else raise an error."""
    if not isinstance(kernel, Kernel) or isinstance(kernel, gpflow.kernels.MultioutputKernel):
        raise TypeError(
            f"{argument} must be a GPflow kernel of one output, got {kind_of(kernel)}; pass "
            "for example gpflow.kernels.SquaredExponential(), or None for the default."
        )
    return kernel


def _object_vectors(vectors: TensorType, prior: tfd.Distribution | None) -> Parameter:
    """Return the parameter of object vectors, with a proper prior."""
    values = as_numbers(vectors, "object_vectors", gpflow.default_float())
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"object_vectors must have shape [num_objects, H], got {values.shape}; give one row "
            "per object."
        )
    if not np.isfinite(values).all():
        raise ValueError("object_vectors hold NaN or infinity; check the array.")
    parameter = vectors if isinstance(vectors, Parameter) else Parameter(values)
    if prior is not None:
        parameter.prior = prior
    elif parameter.prior is None:
        scale = np.sqrt(np.mean(np.square(values)))
        if not scale > 0:
            raise ValueError(
                "object_vectors are all 0, so their size gives no scale for a prior (and a "
                "linear object_kernel no gradient); start from other values, or pass "
                "object_vectors_prior."
            )
        zero, scale = (gpflow.utilities.to_default_float(v) for v in (0.0, scale))
        parameter.prior = tfd.Normal(zero, scale)
    return parameter
