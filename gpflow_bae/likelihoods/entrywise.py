"""GPflow's expectations and predictions of single entries, of which GPflow itself returns sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .by_column import ByColumn

__all__ = ["entrywise"]


def entrywise(
    likelihood: gpflow.likelihoods.ScalarLikelihood,
    method: str,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *values: tf.Tensor,
    columns: TensorType | None = None,
) -> Any:
    """Apply a method of a scalar GPflow likelihood to each entry; GPflow sums over outputs.

    :param likelihood: the likelihood of every entry, or a :class:`ByColumn`.
    :param method: ``"variational_expectations"``, ``"predict_log_density"`` or
        ``"predict_mean_and_var"``.
    :param mean, variance: moments of f, [...].
    :param values: further arguments, such as observations, that broadcast to [...].
    :param columns: columns of the entries, which broadcast to [...]; None if the last axis is of
        all columns in their order.
    :return: a tensor [...], or as many as the method returns.
    """
    shape = tf.shape(mean)
    given = [tf.broadcast_to(v, shape) for v in (mean, variance, *values)]
    if not isinstance(likelihood, ByColumn):
        return _of_one_kind(likelihood, method, given)
    if columns is None:
        split = zip(likelihood.parts, *map(likelihood.split, given), strict=True)
        found = [_of_one_kind(part._scalar, method, own) for part, *own in split]
        return tf.nest.map_structure(lambda *results: likelihood.join(results), *found)
    # Every part for all entries, of which its own are kept.
    kinds = np.zeros(likelihood.num_outputs, np.int32)
    for kind, of_kind in enumerate(likelihood.columns):
        kinds[list(of_kind)] = kind
    kind_of_entry = tf.broadcast_to(tf.gather(kinds, columns), shape)
    found = []
    for kind, part in enumerate(likelihood.parts):
        own = kind_of_entry == kind
        safe = [tf.where(own, v, tf.ones_like(v)) for v in given]  # one is in every support
        results = _of_one_kind(part._scalar, method, safe)
        found.append(
            tf.nest.map_structure(lambda v, own=own: tf.where(own, v, tf.zeros_like(v)), results)
        )
    return tf.nest.map_structure(lambda *results: tf.add_n(results), *found)


def _of_one_kind(likelihood: Any, method: str, given: Sequence[tf.Tensor]) -> Any:
    """Return the results [...] of a likelihood of one output for values [...]."""
    no_inputs = tf.zeros(tf.concat([tf.shape(given[0]), [0]], 0), given[0].dtype)
    result = getattr(likelihood, method)(no_inputs, *(v[..., None] for v in given))
    if isinstance(result, tuple):  # moments keep the axis that densities are summed over
        return tuple(part[..., 0] for part in result)
    return result
