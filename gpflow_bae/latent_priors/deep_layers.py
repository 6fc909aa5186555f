"""The layers of a deep sparse GP, with their mean functions and inducing inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables

from ..core.arguments import as_numbers
from ..inducing_variables import as_inducing_points, uniform
from .kernel_prior import KernelLike, check_known_inputs
from .sparse_gp import SparseGP

__all__ = ["HiddenLayer", "InducingLike", "make_layers"]

InducingLike: TypeAlias = InducingPoints | TensorType


class HiddenLayer(SparseGP):
    """A sparse GP with a linear mean function and no noise; its outputs are the next inputs."""

    def __init__(
        self, kernel: KernelLike, inducing_variable: InducingLike, width: int, weights: np.ndarray
    ):
        super().__init__(kernel, inducing_variable, width, None, inducing_outputs="sampled")
        self.mean_weights = weights  # [D, width]

    @check_shapes("X: [batch..., N, D]")
    def given_inducing_outputs(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super().given_inducing_outputs(X)
        linear = tf.linalg.matmul(X, tf.constant(self.mean_weights, gpflow.default_float()))
        return mean + linear, variance


def make_layers(
    kernels: Sequence[KernelLike],
    inducing_variables: Sequence[InducingLike] | InducingLike,
    latent_dim: int,
    hidden_dims: Sequence[int] | None,
    code_noise_variance: float,
    inducing_outputs: Literal["integrated", "sampled"],
) -> tuple[list[HiddenLayer], SparseGP]:
    """Make the hidden layers and the last layer; arguments and errors as in ``DeepSparseGP``."""
    points = _one_per_layer(inducing_variables, len(kernels))
    if len(kernels) < 1 or len(points) != len(kernels):
        raise ValueError(
            "kernels and inducing_variables must have one entry for each layer, at least one, "
            f"got {len(kernels)} and {len(points)}."
        )
    Z = _locations(points[0])
    widths = [Z.shape[1]] * (len(kernels) - 1) if hidden_dims is None else [*hidden_dims]
    if len(widths) != len(kernels) - 1 or any(width < 1 for width in widths):
        raise ValueError(
            f"hidden_dims must be {len(kernels) - 1} positive widths, one fewer than there are "
            f"kernels, got {widths}."
        )
    hidden_layers: list[HiddenLayer] = []
    width_in, reach = Z.shape[1], 0.0
    for i, width in enumerate(widths):
        Z = Z if points[i] is None else _locations(points[i])
        _check_layer(i, Z, width_in, kernels[i], width)
        layer = HiddenLayer(
            kernels[i], _inducing_points(points[i], Z, reach), width, _mean_weights(Z, width)
        )
        hidden_layers.append(layer)
        # Identity and projection keep the prior variance of the layers below.
        variances = layer._variances(tf.constant(Z, gpflow.default_float()))
        reach = float(np.hypot(reach, 3.0 * np.sqrt(np.max(variances))))
        Z, width_in = Z @ layer.mean_weights, width
    Z = Z if points[-1] is None else _locations(points[-1])
    _check_layer(len(widths), Z, width_in, kernels[-1], latent_dim)
    last_layer = SparseGP(
        kernels[-1],
        _inducing_points(points[-1], Z, reach),
        latent_dim,
        code_noise_variance,
        inducing_outputs,
    )
    return hidden_layers, last_layer


def _one_per_layer(
    inducing_variables: Sequence[InducingLike] | InducingLike, num_layers: int
) -> list[InducingLike | None]:
    """Return one entry per layer, None for inducing inputs mapped from the layer below."""
    if isinstance(inducing_variables, (list, tuple)):
        return list(inducing_variables)
    return [inducing_variables, *[None] * (num_layers - 1)]


def _locations(inducing_variable: InducingLike) -> np.ndarray:
    """Return inducing inputs [M, D] as an array."""
    if isinstance(inducing_variable, InducingVariables):
        inducing_variable = as_inducing_points(inducing_variable).Z
    Z = as_numbers(inducing_variable, "inducing_variable", gpflow.default_float())
    if Z.ndim != 2:
        raise ValueError(f"inducing inputs must have shape [M, D], got {Z.shape}.")
    return Z


def _inducing_points(given: InducingLike | None, Z: np.ndarray, reach: float) -> InducingPoints:
    """Return GPflow's points, or :func:`uniform` points at Z with a box wider by ``reach``."""
    if isinstance(given, InducingVariables):
        return as_inducing_points(given)
    box = uniform(Z).Z.prior
    return uniform(Z, box.low - reach, box.high + reach)


def _check_layer(layer: int, Z: np.ndarray, width_in: int, kernel: KernelLike, width: int) -> None:
    """Raise an error for inducing inputs and kernels that do not fit a layer's dimensions."""
    if Z.shape[1] != width_in:
        raise ValueError(
            f"inducing_variables[{layer}] must have the {width_in} columns of the inputs of layer "
            f"{layer}, got shape {Z.shape}; see hidden_dims."
        )
    single = isinstance(kernel, gpflow.kernels.Kernel)
    check_known_inputs([kernel] if single else list(kernel), "DeepSparseGP")
    if not single and len(kernel) not in (1, width):
        raise ValueError(
            f"kernels[{layer}] must be one kernel, or one for each of the {width} outputs of layer "
            f"{layer}, got {len(kernel)}."
        )


def _mean_weights(Z: np.ndarray, width: int) -> np.ndarray:
    """Return mean weights [D, width]: identity, zero padding, or principal components of Z."""
    dim = Z.shape[1]
    if width >= dim:
        return np.eye(dim, width)
    *_, directions = np.linalg.svd(Z - Z.mean(0), full_matrices=True)
    return directions[:width].T
