r"""Preconditioning by priors: weights by prior standard deviations, codes of a task by their GP.

The codes Z [N, L] of a task have the prior covariance F F^T, F = blockdiag over channels of
Cholesky factors, and their likelihood is about a Gaussian with the precision
D = blockdiag over points of D_n [L, L]. With C C^T = I + F^T D F::

    Z = F u              white under the prior,
    Z = F C^-T u         white under the posterior: its precision is F^-T (I + F^T D F) F^-1.

Under a smooth GP every frame of a video informs all the others, so that along some directions the
posterior is stiffer than the prior by orders of magnitude, and along the rest it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from ...core.linalg import cholesky
from ...core.parameter_set import ParameterSet
from ...data import Observations
from ...models import BayesianAutoencoder, TemperedBAE
from .linear_map import CodeMap, KroneckerMap

__all__ = ["code_map", "has_code_covariance", "prior_precision", "prior_scales"]


def has_code_covariance(model: BayesianAutoencoder | TemperedBAE, data: Observations) -> bool:
    """Return whether codes have a prior covariance by which they can be whitened."""
    if isinstance(model, TemperedBAE) or model.whitened_codes or data.X is None:
        return False
    prior = model.latent_prior
    # A density that is estimated from draws has no covariance of its own.
    return bool(prior.kernels) and prior.whitened_inducing is None and not prior.draws


def prior_scales(
    model: BayesianAutoencoder, parameters: Sequence[tf.Tensor]
) -> tuple[KroneckerMap, ...]:
    """Return maps that scale parameters by the standard deviations of their priors.

    Only parameters with a normal prior and no transform are scaled.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    """
    maps = []
    for parameter, value in zip(model.sampled.parameters, parameters, strict=True):
        prior, transform = parameter.prior, parameter.transform
        plain = transform is None or isinstance(transform, tfp.bijectors.Identity)
        is_normal = isinstance(prior, tfp.distributions.Normal) and plain
        maps.append(KroneckerMap(tf.cast(prior.scale if is_normal else 1.0, value.dtype)))
    return tuple(maps)


def prior_precision(
    sampled: ParameterSet, values: Sequence[tf.Tensor], least: float = 1e-8
) -> tuple[tf.Tensor, ...]:
    """Return minus the second derivative of the log prior, which factorises over scalars.

    :param values: unconstrained, in the order of ``sampled.paths``.
    :param least: lower limit, such as for a log density that is convex at these values.
    """
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(values)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(values)
            log_prior = sampled.log_prior(values)
        slopes = inner.gradient(
            log_prior, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        total = tf.add_n([tf.cast(tf.reduce_sum(s), tf.float64) for s in slopes])
    curvature = outer.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return tuple(tf.maximum(-c, least) for c in curvature)


def code_map(
    model: BayesianAutoencoder, parameters: Any, X: tf.Tensor, information: Any = ()
) -> CodeMap | None:
    """Return the map of the codes of tasks; None for a prior without a covariance of codes.

    :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
    :param X: inputs [T, N, D] of the tasks.
    :param information: Fisher information [T, N, L, L] on each code, positive semi-definite; () to
        whiten by the prior alone.
    """
    covariance = model.bind(parameters).latent_prior.code_covariance(X)
    if covariance is None:
        return None
    factors = cholesky(covariance, "the prior covariance of the codes")  # [T, C, N, N]
    if tf.is_tensor(information):
        return _informed(factors, information)
    identity = tf.eye(tf.shape(factors)[-1], dtype=factors.dtype)
    inverted = tf.linalg.triangular_solve(factors, tf.broadcast_to(identity, tf.shape(factors)))
    return CodeMap(factors, tf.ensure_shape(inverted, factors.shape))


def _informed(factors: tf.Tensor, information: tf.Tensor) -> CodeMap:
    T, N, L, _ = tf.unstack(tf.shape(information))
    factors = tf.broadcast_to(factors, [T, L, N, N])
    # F[n, l, m, k] = factors[l, n, m] where l = k.
    blocks = tf.linalg.diag(tf.transpose(factors, [0, 2, 3, 1]))  # [T, N, N, L, L]
    F = tf.transpose(blocks, [0, 1, 3, 2, 4])  # [T, N, L, N, L]
    informed = tf.linalg.matmul(information, tf.reshape(F, [T, N, L, N * L]))
    F = tf.reshape(F, [T, N * L, N * L])
    informed = tf.reshape(informed, [T, N * L, N * L])
    identity = tf.eye(N * L, batch_shape=[T], dtype=F.dtype)
    precision = identity + tf.linalg.matmul(F, informed, transpose_a=True)
    C = cholesky(precision, "the posterior precision of the codes in units of their prior")
    transposed = tf.linalg.triangular_solve(C, tf.linalg.matrix_transpose(F))
    inverse = tf.linalg.matmul(C, tf.linalg.triangular_solve(F, identity), transpose_a=True)
    return CodeMap(tf.linalg.matrix_transpose(transposed)[:, None], inverse[:, None])
