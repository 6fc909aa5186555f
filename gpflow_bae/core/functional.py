"""Functional calls of GPflow modules, with tensors in the place of their parameters.

A sampler holds its parameters as plain tensors in unconstrained space. These functions return a
module that computes with such tensors, without assignment to variables, so that chains
can be batched and the whole round can be compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType

__all__ = [
    "constrain",
    "flatten",
    "functional_copy",
    "log_prior_density",
    "log_prior_of_mode",
    "unconstrained_values",
    "unflatten",
]

ModuleT = TypeVar("ModuleT", bound=tf.Module)


def functional_copy(module: ModuleT, values: Mapping[str, TensorType]) -> ModuleT:
    """Return a copy of ``module`` with some parameters replaced by tensors.

    The copy shares all other parameters with ``module``. It can be made inside a
    ``tf.function``: like ``gpflow.utilities.freeze`` this is a deep copy with a memo, and runs only
    during tracing.

    :param values: parameter path, as in ``gpflow.utilities.parameter_dict(module)``, to the
        **constrained** value that replaces it.
    :raises KeyError: if a path does not exist in the module.
    """
    parameters = gpflow.utilities.parameter_dict(module)
    unknown = sorted(set(values) - set(parameters))
    if unknown:
        raise KeyError(
            f"values names {unknown}, which the module does not have; its parameters are "
            f"{sorted(parameters)}."
        )
    memo: dict[int, Any] = {id(parameter): parameter for parameter in parameters.values()}
    for path, value in values.items():
        memo[id(parameters[path])] = tf.convert_to_tensor(value)
    return copy.deepcopy(module, memo)


def unconstrained_values(parameters: Sequence[Parameter]) -> tuple[tf.Tensor, ...]:
    """Return the current unconstrained value of each parameter as a plain tensor."""
    return tuple(tf.identity(p.unconstrained_variable) for p in parameters)


def constrain(
    parameters: Sequence[Parameter], values: Sequence[TensorType]
) -> tuple[tf.Tensor, ...]:
    """Transform unconstrained ``values`` by each parameter's transform."""
    # TFP's bijectors cache by tensor. Without a copy, a second gradient tape over the same eager
    # tensors would receive the first one's results, as constants.
    return tuple(
        tf.convert_to_tensor(v) if p.transform is None else p.transform.forward(tf.identity(v))
        for p, v in zip(parameters, values, strict=True)
    )


def log_prior_density(
    parameters: Sequence[Parameter], values: Sequence[TensorType], *, chain_ndims: int = 0
) -> tf.Tensor:
    """Return the log prior density of unconstrained ``values``, including log-Jacobians.

    Each term is summed in its parameter's own precision and then cast to ``default_float()``,
    because network weights are float32 and hyperparameters are not.

    :param values: one tensor per parameter, of the parameter's unconstrained shape, with
        ``chain_ndims`` leading chain dimensions.
    :return: the log density, of the chain shape, in ``default_float()``.
    :raises ValueError: if a parameter has no prior.
    """
    total: tf.Tensor | float = 0.0
    together: dict[tf.DType, list[tuple[_PositiveScalar, tf.Tensor]]] = {}
    for parameter, value in zip(parameters, values, strict=True):
        value = tf.identity(value)  # as in constrain
        if parameter.prior is None:
            raise ValueError(
                f"Parameter {parameter.name} of shape {tuple(parameter.shape)} is sampled but has "
                "no prior; set `parameter.prior` to a tfp distribution, or keep it fixed with "
                "gpflow.set_trainable(parameter, False)."
            )
        if (scalar := _positive_scalar(parameter)) is not None:
            together.setdefault(value.dtype, []).append((scalar, value))
            continue
        prior = parameter.prior
        transform = parameter.transform
        on_unconstrained = parameter.prior_on == gpflow.base.PriorOn.UNCONSTRAINED
        point = value if transform is None or on_unconstrained else transform.forward(value)
        point = tf.cast(point, prior.dtype)  # a network may be in double precision, its priors not
        identity = transform is None or isinstance(transform, tfp.bijectors.Identity)
        if identity and _is_scalar_normal(prior):
            log_prob = _scalar_normal_sum(prior, point, chain_ndims)
            total += tf.cast(log_prob, gpflow.default_float())
            continue
        # A scalar prior broadcasts over the parameter; a joint prior returns the sum.
        log_prob = prior.log_prob(point)
        log_prob = tf.reduce_sum(log_prob, list(range(chain_ndims, log_prob.shape.rank)))
        if transform is not None and not on_unconstrained:
            event_ndims = value.shape.rank - chain_ndims
            log_prob += transform.forward_log_det_jacobian(value, event_ndims=event_ndims)
        total += tf.cast(log_prob, gpflow.default_float())
    for members in together.values():
        total += tf.cast(_positive_scalars_sum(members), gpflow.default_float())
    return tf.convert_to_tensor(total, dtype=gpflow.default_float())


def log_prior_of_mode(parameters: Sequence[Parameter]) -> tf.Tensor:
    """Return the log prior density for a MAP fit, which omits uniform priors.

    A uniform prior would contribute only the log-Jacobian of its bounds, which pulls values towards
    the middle. Other priors are as in :func:`log_prior_density`, at the current values.
    """
    kept = [p for p in parameters if not isinstance(p.prior, tfp.distributions.Uniform)]
    return log_prior_density(kept, [p.unconstrained_variable for p in kept])


def _is_scalar_normal(prior: Any) -> bool:
    return isinstance(prior, tfp.distributions.Normal) and prior.batch_shape.rank == 0


def _scalar_normal_sum(
    prior: tfp.distributions.Normal, point: tf.Tensor, chain_ndims: int
) -> tf.Tensor:
    """Return the log density as one sum of squares, with a cheap gradient for large tensors."""
    standardised = (point - prior.loc) / prior.scale
    constant = 0.5 * np.log(2.0 * np.pi) + tf.math.log(prior.scale)
    if chain_ndims == 0:
        squares = 2.0 * tf.nn.l2_loss(standardised)  # fused
    else:
        axes = list(range(chain_ndims, point.shape.rank))
        squares = tf.reduce_sum(tf.square(standardised), axes)
    size = tf.reduce_prod(tf.shape(point)[chain_ndims:])
    return -0.5 * squares - constant * tf.cast(size, point.dtype)


class _PositiveScalar(NamedTuple):
    """A parameter softplus(value) + lower of one number, under LogNormal(location, scale)."""

    lower: Any
    location: Any
    scale: Any


def _positive_scalar(parameter: Parameter) -> _PositiveScalar | None:
    """Return what such a parameter is, the default of kernels and likelihoods; else None."""
    prior, transform = parameter.prior, parameter.transform
    is_scalar = parameter.shape.rank == 0 and parameter.prior_on == gpflow.base.PriorOn.CONSTRAINED
    if not is_scalar or type(prior) is not tfp.distributions.LogNormal or prior.batch_shape.rank:
        return None
    lower: Any = 0.0
    if isinstance(transform, tfp.bijectors.Chain) and len(transform.bijectors) == 2:
        shift, transform = transform.bijectors
        if type(shift) is not tfp.bijectors.Shift:
            return None
        lower = shift.shift
    plain = type(transform) is tfp.bijectors.Softplus
    if not plain or transform.hinge_softness is not None or transform.low is not None:
        return None
    return _PositiveScalar(lower, prior.loc, prior.scale)


def _positive_scalars_sum(members: Sequence[tuple[_PositiveScalar, tf.Tensor]]) -> tf.Tensor:
    """Return the sum of log densities of unconstrained values [chains...] of one dtype.

    One by one, with TFP's functions, they would be most of the operations of a small model.
    """
    scalars, values = zip(*members, strict=True)
    stacked = tf.stack(values, -1)
    lower, location, scale = (
        tf.stack([tf.cast(part, stacked.dtype) for part in parts])
        for parts in zip(*scalars, strict=True)
    )
    log = tf.math.log(tf.math.softplus(stacked) + lower)
    constant = 0.5 * np.log(2.0 * np.pi) + tf.math.log(scale)
    log_normal = -0.5 * tf.square((log - location) / scale) - constant - log
    log_jacobian = -tf.math.softplus(-stacked)  # the logarithm of softplus'
    return tf.reduce_sum(log_normal + log_jacobian, -1)


def flatten(values: Sequence[TensorType], dtype: tf.DType | None = None) -> tf.Tensor:
    """Concatenate tensors into one vector, in ``dtype`` (``default_float()`` if None)."""
    dtype = gpflow.default_float() if dtype is None else dtype
    return tf.concat([tf.reshape(tf.cast(v, dtype), [-1]) for v in values], 0)


def unflatten(vector: TensorType, like: Sequence[TensorType]) -> tuple[tf.Tensor, ...]:
    """Split a vector into tensors of shapes and types of ``like``; inverse of :func:`flatten`."""
    sizes = [int(np.prod(v.shape)) for v in like]
    pieces = tf.split(vector, sizes)
    return tuple(
        tf.cast(tf.reshape(piece, v.shape), v.dtype) for piece, v in zip(pieces, like, strict=True)
    )
