"""Priors over inducing inputs: proper densities, so that they can be sampled."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingPoints, InducingVariables

from ..core.arguments import as_numbers
from ..core.scales import varies

__all__ = ["as_inducing_points", "as_inducing_variables", "bounded", "uniform"]


def uniform(
    Z: TensorType, low: TensorType | None = None, high: TensorType | None = None
) -> InducingPoints:
    """Return GPflow inducing points with a uniform prior over the box from ``low`` to ``high``.

    A sigmoid transform keeps the points inside the box.

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


class _PartlyHeld(InducingPoints):
    """Inducing points with fixed columns, such as ids that a kernel reads."""

    def __init__(self, Z: np.ndarray, moved: Parameter | None, columns: list[int]):
        """
        :param moved: parameter of the free ``columns`` [M, some of D]; None if all are fixed.
        """
        InducingVariables.__init__(self, name=None)
        self.moved, self._columns = moved, columns
        held, whole = np.delete(Z, columns, axis=1), np.round(np.delete(Z, columns, axis=1))
        self._held = np.where(np.abs(held - whole) < 1e-6, whole, held)  # a sigmoid rounds them

    @property
    def Z(self) -> tf.Tensor:
        """All columns [M, D]."""
        held = tf.convert_to_tensor(self._held)
        width = held.shape[-1] + len(self._columns)
        order = np.argsort([*self._columns, *np.delete(np.arange(width), self._columns)])
        parts = [held] if self.moved is None else [self.moved, held]
        return tf.gather(tf.concat(parts, -1), order, axis=-1)


def bounded(points: InducingPoints, ids: Sequence[int] = ()) -> InducingPoints:
    """Return inducing points that can be sampled: with a :func:`uniform` prior, and fixed ids.

    Points with a prior keep it, and points that are not trainable stay fixed.

    :param points: GPflow's ``InducingPoints``; subclasses are returned unchanged.
    :param ids: columns of ids, which stay fixed under any prior.
    :raises ValueError: for another prior than a :func:`uniform` one if there are ids, because it
        is over all columns.
    """
    if type(points) is not InducingPoints:
        return points
    prior = points.Z.prior
    is_box = isinstance(prior, tfp.distributions.Uniform)
    if not points.Z.trainable and not (ids and is_box):
        return points
    if not ids:
        return uniform(points.Z) if prior is None else points
    Z = points.Z.numpy()
    columns = [c for c in range(Z.shape[1]) if c not in ids]
    if not columns:
        return _PartlyHeld(Z, None, columns)
    if prior is None:
        return _PartlyHeld(Z, uniform(Z[:, columns]).Z, columns)
    if not is_box:
        raise ValueError(
            f"Inducing inputs have a {type(prior).__name__} prior, by which column(s) {list(ids)} "
            "would be sampled too, and a kernel reads those as ids: pass an array, which gets a "
            "prior over its other columns, or hold the points with "
            "gpflow.set_trainable(inducing_variable, False)."
        )
    low, high = (np.broadcast_to(v, Z.shape[1:])[columns] for v in (prior.low, prior.high))
    moved = uniform(Z[:, columns], low, high).Z
    gpflow.set_trainable(moved, points.Z.trainable)
    return _PartlyHeld(Z, moved, columns)


def _checked(Z: TensorType) -> np.ndarray:
    """Return inducing inputs as a finite array [M, D], or raise an error."""
    Z = as_numbers(Z, "Z", gpflow.default_float())
    if Z.ndim != 2 or not Z.size:
        raise ValueError(f"inducing inputs must have shape [M, D], got {Z.shape}, not empty.")
    if not np.isfinite(Z).all():
        raise ValueError("inducing inputs hold NaN or infinity; check the array Z.")
    return Z


def as_inducing_variables(inducing_variable: InducingVariables | TensorType) -> InducingVariables:
    """Return GPflow inducing variables unchanged, or make points without a prior from [M, D]."""
    if isinstance(inducing_variable, InducingVariables):
        return inducing_variable
    return InducingPoints(_checked(inducing_variable))


def as_inducing_points(inducing_variable: InducingPoints | TensorType) -> InducingPoints:
    """Return GPflow inducing points unchanged, or make points without a prior from [M, D].

    :raises TypeError: for other inducing variables, and for a class in the place of an object.
    """
    found = as_inducing_variables(inducing_variable)
    if not isinstance(found, InducingPoints):
        raise TypeError(
            "the sparse latent prior takes InducingPoints or an array [M, D], got "
            f"{type(found).__name__}."
        )
    return found
