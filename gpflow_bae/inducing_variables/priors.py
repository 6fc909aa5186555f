"""Priors over inducing inputs: proper densities, so that they can be sampled."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables

from ..arguments import as_numbers, varies

__all__ = ["as_inducing_points", "as_inducing_variables", "uniform"]


def uniform(
    Z: TensorType, low: TensorType | None = None, high: TensorType | None = None
) -> InducingPoints:
    """GPflow inducing points with a uniform prior over the box from ``low`` to ``high``.

    The points live on the box through a sigmoid, so a sampler can never leave it.

    :param Z: initial inducing inputs [M, D].
    :param low, high: corners of the box [D], in the units of the inputs; by default the range of
        ``Z`` widened on each side by its mean spacing along that input, range / (M - 1).
    :raises ValueError: if ``Z`` is not finite, not a matrix, or not strictly inside the box.
    """
    Z = _checked(Z)
    span = np.ptp(Z, axis=0)
    margin = np.where(varies(Z), span, 1.0) / max(len(Z) - 1, 1)
    low = Z.min(axis=0) - margin if low is None else as_numbers(low, "low", Z.dtype)
    high = Z.max(axis=0) + margin if high is None else as_numbers(high, "high", Z.dtype)
    for name, corner in (("low", low), ("high", high)):
        if corner.shape not in ((), (1,), Z.shape[1:]) or not np.isfinite(corner).all():
            raise ValueError(
                f"{name} must be finite, a number or one for each of the D = {Z.shape[1]} inputs, "
                f"got {corner.tolist()}."
            )
    low, high = (np.broadcast_to(corner, Z.shape[1:]) for corner in (low, high))
    if not ((Z > low) & (Z < high)).all():
        raise ValueError(
            f"inducing inputs must lie strictly inside the box of their uniform prior, from "
            f"{low.tolist()} to {high.tolist()}; they span {Z.min(0).tolist()} to "
            f"{Z.max(0).tolist()}. Widen low and high."
        )
    prior = tfp.distributions.Uniform(low, high, validate_args=False)
    transform = tfp.bijectors.Sigmoid(tf.constant(low), tf.constant(high))
    points = InducingPoints(Z)
    points.Z = Parameter(Z, transform=transform, prior=prior)
    return points


def _checked(Z: TensorType) -> np.ndarray:
    """Inducing inputs [M, D], finite."""
    Z = as_numbers(Z, "Z", gpflow.default_float())
    if Z.ndim != 2 or not Z.size:
        raise ValueError(f"inducing inputs must have shape [M, D], got {Z.shape}, not empty.")
    if not np.isfinite(Z).all():
        raise ValueError("inducing inputs hold NaN or infinity; check the array Z.")
    return Z


def as_inducing_variables(inducing_variable: InducingVariables | TensorType) -> InducingVariables:
    """GPflow inducing variables as they are; an array [M, D] becomes points without a prior."""
    if isinstance(inducing_variable, InducingVariables):
        return inducing_variable
    return InducingPoints(_checked(inducing_variable))


def as_inducing_points(inducing_variable: InducingPoints | TensorType) -> InducingPoints:
    """GPflow inducing points as they are; an array gets the :func:`uniform` prior."""
    if isinstance(inducing_variable, InducingPoints):
        return inducing_variable
    if isinstance(inducing_variable, InducingVariables):
        raise TypeError(
            "the sparse latent prior takes InducingPoints or an array [M, D], got "
            f"{type(inducing_variable).__name__}."
        )
    return uniform(inducing_variable)
