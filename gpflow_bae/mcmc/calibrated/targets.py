r"""Targets of the calibrated samplers, with a tempered and an untempered part.

The samplers with an accept-reject step need values as well as gradients, and parallel tempering
needs them at every temperature. An :class:`Evaluation` contains the two parts separately, so that

.. math:: \log \pi_\beta(\theta) = \beta \log p(Y | \theta) + \log p(\theta)

and its gradient are known for any inverse temperature :math:`\beta` without another evaluation,
for example when two replicas exchange their temperatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.structures import leaf_gradients
from gpflow_bae.mcmc.types import Position, cast_scalar

__all__ = [
    "Evaluation",
    "TargetFn",
    "chain_broadcast",
    "chain_sum",
    "gradient",
    "log_density",
    "target",
]


class Evaluation(NamedTuple):
    """Log densities and gradients of a target at one position of each chain."""

    tempered: tf.Tensor  # [chains...], log likelihood
    untempered: tf.Tensor  # [chains...], log prior
    tempered_gradient: Position
    untempered_gradient: Position


TargetFn: TypeAlias = Callable[[Position], Evaluation]
"""A function that evaluates a position whose leaves have the chains as leading dimensions."""


def target(
    log_likelihood_fn: Callable[[Position], tf.Tensor],
    log_prior_fn: Callable[[Position], tf.Tensor] | None = None,
    *,
    with_gradient: bool = True,
) -> TargetFn:
    """Make a target from two log densities, differentiated by TensorFlow.

    :param log_likelihood_fn: tempered function of a position, one number per chain.
    :param log_prior_fn: untempered function of a position; None to temper the whole density.
    :param with_gradient: False for a sampler without gradients, which are then ().
    :raises ValueError: when traced, if the sum of both has no gradient with respect to a leaf.
    """

    def values_only(position: Position) -> Evaluation:
        tempered = tf.convert_to_tensor(log_likelihood_fn(position))
        untempered = tf.zeros_like(tempered) if log_prior_fn is None else log_prior_fn(position)
        return Evaluation(tempered, tf.cast(untempered, tempered.dtype), (), ())

    def evaluate(position: Position) -> Evaluation:
        leaves = tf.nest.flatten(position)
        tempered, of_likelihood = leaf_gradients(log_likelihood_fn, position)
        untempered, of_prior = tf.zeros_like(tempered), [None] * len(leaves)
        if log_prior_fn is not None:
            untempered, of_prior = leaf_gradients(
                lambda at: tf.cast(log_prior_fn(at), tempered.dtype), position
            )
        pairs = zip(of_likelihood, of_prior, strict=True)
        without = [i for i, (a, b) in enumerate(pairs) if a is None and b is None]
        if without:
            raise ValueError(
                f"The target has no gradient with respect to leaves {without} of the position; it "
                "must depend on every leaf through differentiable TensorFlow operations."
            )

        def filled(gradients: list[tf.Tensor | None]) -> Position:
            dense = [
                tf.zeros_like(leaf) if g is None else tf.convert_to_tensor(g)
                for g, leaf in zip(gradients, leaves, strict=True)
            ]
            return tf.nest.pack_sequence_as(position, dense)

        return Evaluation(tempered, untempered, filled(of_likelihood), filled(of_prior))

    return evaluate if with_gradient else values_only


def chain_broadcast(values: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    """Reshape one number per chain, [chains...], with trailing ones to broadcast with ``leaf``."""
    values = tf.cast(values, leaf.dtype)
    extra = leaf.shape.rank - values.shape.rank
    return tf.reshape(values, tf.concat([tf.shape(values), tf.ones([extra], tf.int32)], 0))


def chain_sum(position: Position, chains: tf.Tensor) -> tf.Tensor:
    """Sum over all scalars of each chain, with the shape and type of ``chains``."""

    def one_leaf(leaf: tf.Tensor) -> tf.Tensor:
        axes = list(range(chains.shape.rank, leaf.shape.rank))
        return tf.cast(tf.reduce_sum(leaf, axes), chains.dtype)

    return tf.add_n([one_leaf(leaf) for leaf in tf.nest.flatten(position)])


def log_density(evaluation: Evaluation, inverse_temperature: TensorType) -> tf.Tensor:
    """Return the log density at ``inverse_temperature`` (scalar or one per chain): [chains...]."""
    beta = cast_scalar(inverse_temperature, evaluation.tempered.dtype)
    return beta * evaluation.tempered + evaluation.untempered


def gradient(evaluation: Evaluation, inverse_temperature: TensorType) -> Position:
    """Return the gradient of :func:`log_density`, a structure like the position."""
    chains = tf.broadcast_to(
        cast_scalar(inverse_temperature, evaluation.tempered.dtype), tf.shape(evaluation.tempered)
    )
    return tf.nest.map_structure(
        lambda a, b: chain_broadcast(chains, a) * a + b,
        evaluation.tempered_gradient,
        evaluation.untempered_gradient,
    )
