"""A kernel of inputs that an input model completes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import covariances
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, MultioutputKernel

from ..core.annotations import check_arguments
from ..core.arguments import kind_of
from ..inducing_variables import ObjectViewInducingPoints
from .base import InputModel

__all__ = ["CompletedInputs"]


class CompletedInputs(Kernel):
    """A GPflow kernel of inputs that an :class:`InputModel` completes.

    Inducing points are complete inputs of the inner kernel.
    """

    @check_arguments()
    def __init__(self, kernel: Kernel, inputs: InputModel, name: str | None = None):
        """
        :param kernel: kernel of completed inputs; another CompletedInputs, for example for ids of
            two kinds, completes them after this one.
        :param inputs: the input model, one for all kernels of a model. Of nested ones only the
            outermost may have distributions or need observations.
        :raises TypeError: if ``kernel`` is not a GPflow kernel of one output, or ``inputs`` not an
            input model.
        :raises ValueError: for an inner input model with distributions, or that needs
            observations.
        """
        super().__init__(name=name)
        if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
            raise TypeError(
                f"kernel must be a GPflow kernel of one output, got {kind_of(kernel)}; of "
                "several channels each has a CompletedInputs, with the same inputs."
            )
        if not isinstance(inputs, InputModel):
            raise TypeError(
                "inputs must be one of gpflow_bae.inputs, such as MissingInputs(X), got "
                f"{kind_of(inputs)}."
            )
        within = kernel.inputs if isinstance(kernel, CompletedInputs) else None
        if within is not None and (within.draws or within.needs_observations):
            raise ValueError(
                "kernel is CompletedInputs already, over inputs with distributions or made of "
                "observations, which a model asks the outermost alone for: let those be the "
                "outermost, and what is within have values."
            )
        self.kernel, self.inputs = kernel, inputs

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        X2 = None if X2 is None else self.inputs.complete(X2)
        return self.kernel(self.inputs.complete(X), X2)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.kernel(self.inputs.complete(X), full_cov=False)


def _Kuu(points: Any, kernel: CompletedInputs, *, jitter: float = 0.0) -> tf.Tensor:
    return covariances.Kuu(points, kernel.kernel, jitter=jitter)


def _Kuf(points: Any, kernel: CompletedInputs, Xnew: TensorType) -> tf.Tensor:
    return covariances.Kuf(points, kernel.kernel, kernel.inputs.complete(Xnew))


for _points in (InducingPoints, ObjectViewInducingPoints):  # both, or dispatch would be ambiguous
    covariances.Kuu.register(_points, CompletedInputs)(_Kuu)
    covariances.Kuf.register(_points, CompletedInputs, object)(_Kuf)
