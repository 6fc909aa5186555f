"""Inducing points for the object-view kernel, in the space of its embedded inputs."""

from __future__ import annotations

from typing import Literal, NoReturn

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow import covariances
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, MultioutputKernel
from scipy import stats
from tensorflow_probability import distributions as tfd

from ..core.annotations import check_arguments
from ..core.arguments import as_numbers
from ..core.scales import spread, varies
from ..kernels import ObjectView

__all__ = ["ObjectViewInducingPoints", "object_view_points"]


class ObjectViewInducingPoints(InducingPoints):
    """Inducing points (view, object vector) for the kernel :class:`gpflow_bae.kernels.ObjectView`.

    The object vector of an inducing point is free, not that of an object, so that it can be
    optimised or sampled (Jazbec et al. 2021, appendix C.1).
    """

    def __init__(
        self,
        Z: TensorType,
        prior: tfd.Distribution | Literal["normal"] | None = "normal",
        name: str | None = None,
    ):
        """
        :param Z: initial inducing points [M, D + H]: the view (as in the inputs), then the object
            vector. A ``Parameter`` is used directly, with its prior if it has one.
        :param prior: prior of Z, a distribution that broadcasts to [M, D + H]; None if Z is
            optimised or fixed. "normal" is, in each column, a Normal around the mean of the
            initial values with twice their standard deviation (1 if they are all equal). The
            uniform prior of other inducing points does not suit angles, which may leave their
            range, and object vectors, which are learnt and have no range.
        :raises ValueError: if ``Z`` is not finite or not a matrix of two columns or more.
        """
        values = as_numbers(Z, "Z", gpflow.default_float())
        if values.ndim != 2 or len(values) < 1 or values.shape[1] < 2:
            raise ValueError(
                "Z must have shape [M, D + H], with columns [view..., object vector], got "
                f"{values.shape}; see object_view_points, or embed inputs with kernel.embed(X)."
            )
        if not np.isfinite(values).all():
            raise ValueError("Z holds NaN or infinity; check the array.")
        if isinstance(prior, str) and prior != "normal":
            raise ValueError(
                f'prior must be "normal", a tfp distribution, or None for no prior, got {prior!r}.'
            )
        points = Z if isinstance(Z, Parameter) else Parameter(values)
        if isinstance(prior, str):
            prior = _default_prior(values) if points.prior is None else points.prior
        if prior is not None:
            points.prior = prior
        super().__init__(points, name=name)

    @property
    def shape(self) -> Shape:
        """[M, None, 1]; the width is None, because GPflow would compare it with that of inputs."""
        return (int(self.Z.shape[0]), None, 1)


def _default_prior(values: np.ndarray) -> tfd.Normal:
    """Return a normal per column around the mean, with twice the standard deviation or 1."""
    scale = np.where(varies(values), 2.0 * spread(values), 1.0)
    return tfd.Normal(*(gpflow.utilities.to_default_float(v) for v in (values.mean(0), scale)))


@check_arguments(num_per_view=1, seed=0)
@check_shapes(
    "views: [V]",
    "object_vectors: [num_objects, H]",
    "return: [M, E]",
)
def object_view_points(
    views: TensorType, object_vectors: TensorType, num_per_view: int, seed: int = 0
) -> np.ndarray:
    """Return initial inducing points [V * num_per_view, 1 + H], with random vectors at each view.

    Each coordinate of an object vector is drawn independently, from a Gaussian kernel density
    estimate of that coordinate over the objects (Jazbec et al. 2021, algorithm 1, where the draws
    are those of the empirical distribution).

    :param views: the views [V], in the units of the inputs (radians for angles); the points are
        sorted by view.
    :param object_vectors: object vectors [num_objects, H]. A coordinate in which all objects are
        equal stays at that value.
    :param num_per_view: object vectors to draw at each view; those of view i have the seed
        ``seed + i``.
    :raises ValueError: if ``num_per_view`` is less than 1, ``views`` are empty, or an array is not
        finite.
    """
    views, vectors = (
        as_numbers(v, name) for v, name in ((views, "views"), (object_vectors, "object_vectors"))
    )
    if num_per_view < 1:
        raise ValueError(f"num_per_view must be at least 1, got {num_per_view}.")
    if 0 in views.shape or 0 in vectors.shape:
        raise ValueError(
            "views [V] and object_vectors [num_objects, H] must not be empty, got shapes "
            f"{views.shape} and {vectors.shape}."
        )
    for argument, values in (("views", views), ("object_vectors", vectors)):
        if not np.isfinite(values).all():
            raise ValueError(f"{argument} hold NaN or infinity; check the array.")
    # A constant coordinate has no kernel density estimate, and stays constant.
    densities = [stats.gaussian_kde(c) if varies(c) else c[0] for c in vectors.T]
    blocks = []
    for i, view in enumerate(views):
        # One generator for all coordinates of a view: with equal seeds they would share the noise
        # and the chosen object, and not be independent.
        random = np.random.default_rng(seed + i)
        drawn = [
            density.resample(num_per_view, seed=random)[0]
            if isinstance(density, stats.gaussian_kde)
            else np.full(num_per_view, density)
            for density in densities
        ]
        blocks.append(np.column_stack([np.full(num_per_view, view), *drawn]))
    return np.concatenate(blocks).astype(gpflow.default_float())


@covariances.Kuu.register(ObjectViewInducingPoints, ObjectView)
@check_shapes("inducing_variable: [M, ., 1]", "return: [M, M]")
def _Kuu_object_view(
    inducing_variable: ObjectViewInducingPoints, kernel: ObjectView, *, jitter: float = 0.0
) -> tf.Tensor:
    Kzz = kernel.K_embedded(inducing_variable.Z)
    return Kzz + jitter * tf.eye(inducing_variable.num_inducing, dtype=Kzz.dtype)


@covariances.Kuf.register(ObjectViewInducingPoints, ObjectView, object)
@check_shapes("inducing_variable: [M, ., 1]", "Xnew: [batch..., N, C]", "return: [M, batch..., N]")
def _Kuf_object_view(
    inducing_variable: ObjectViewInducingPoints, kernel: ObjectView, Xnew: TensorType
) -> tf.Tensor:
    Xnew, _ = kernel.slice(Xnew, None)
    return kernel.K_between(inducing_variable.Z, Xnew)


# GPflow's covariances would treat inducing points as inputs X here, without an error if the numbers
# of columns agree.


def _refuse_kernel(
    inducing_variable: ObjectViewInducingPoints, kernel: Kernel, *args: TensorType, **kwargs: float
) -> NoReturn:
    raise TypeError(
        f"ObjectViewInducingPoints need the kernel ObjectView, got {type(kernel).__name__}; "
        "combine kernels inside it (view_kernel, object_kernel)."
    )


def _refuse_points(
    inducing_variable: InducingPoints, kernel: ObjectView, *args: TensorType, **kwargs: float
) -> NoReturn:
    raise TypeError(
        f"The kernel ObjectView needs ObjectViewInducingPoints, got "
        f"{type(inducing_variable).__name__}: an object id cannot move. Pass "
        "ObjectViewInducingPoints(kernel.embed(Z)) for inputs Z, or see object_view_points."
    )


for _kernel_type in (Kernel, MultioutputKernel):  # both, or dispatch would be ambiguous
    covariances.Kuu.register(ObjectViewInducingPoints, _kernel_type)(_refuse_kernel)
    covariances.Kuf.register(ObjectViewInducingPoints, _kernel_type, object)(_refuse_kernel)
covariances.Kuu.register(InducingPoints, ObjectView)(_refuse_points)
covariances.Kuf.register(InducingPoints, ObjectView, object)(_refuse_points)
