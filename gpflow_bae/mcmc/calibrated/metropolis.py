r"""The accept-reject step of the calibrated samplers (Metropolis 1953; Hastings 1970).

Detailed balance holds for :math:`\pi_\beta` with any proposal, if the log ratio of the reverse
and the forward proposal densities is exact. A proposal whose density is not finite is rejected and
counted: its log acceptance ratio is minus infinity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.noise import uniform
from gpflow_bae.mcmc.types import Position, Seed

__all__ = ["Counts", "State", "accept", "check_initial", "init", "no_counts"]


class Counts(NamedTuple):
    """Acceptance statistics of each chain, [chains...] each."""

    log_accept_ratio: tf.Tensor  # of the last proposal; -inf if its density was not finite
    is_accepted: tf.Tensor  # bool, whether the last proposal was accepted
    num_proposed: tf.Tensor  # int32
    num_accepted: tf.Tensor  # int32
    num_nonfinite: tf.Tensor  # int32, proposals rejected because their density was not finite

    @property
    def acceptance_rate(self) -> tf.Tensor:
        """Fraction of accepted proposals, [chains...]; NaN before the first."""
        return self.num_accepted / self.num_proposed


class State(NamedTuple):
    """Positions of the chains, and the target there, so that no evaluation is repeated."""

    position: Position
    evaluation: targets.Evaluation
    counts: Counts


def init(position: Position, target: targets.TargetFn) -> State:
    """Return the initial state at ``position``, whose leaves have chains as leading dimensions.

    In eager mode the target must be finite there, see :func:`check_initial`.
    """
    position = tf.nest.map_structure(tf.convert_to_tensor, position)
    evaluation = target(position)
    if tf.executing_eagerly():
        check_initial(evaluation)
    return State(position, evaluation, no_counts(evaluation))


def no_counts(evaluation: targets.Evaluation) -> Counts:
    """Return the statistics of chains before their first proposal."""
    zeros = tf.zeros(tf.shape(evaluation.tempered), tf.int32)
    return Counts(
        tf.zeros_like(evaluation.tempered), tf.zeros_like(zeros, tf.bool), zeros, zeros, zeros
    )


def check_initial(evaluation: targets.Evaluation) -> None:
    """Check that the target and its gradient are finite at the initial positions; reads values.

    :raises ValueError: if not, with the chains and the part of the target that is not finite.
    """
    num_chain_dims = evaluation.tempered.shape.rank
    parts = [("log likelihood", evaluation.tempered), ("log prior", evaluation.untempered)]
    for name, gradient in (
        ("log likelihood's gradient", evaluation.tempered_gradient),
        ("log prior's gradient", evaluation.untempered_gradient),
    ):
        # With a gradient that is not finite every proposal would be rejected.
        parts += [(name, leaf) for leaf in tf.nest.flatten(gradient)]
    for name, values in parts:
        finite = np.isfinite(np.asarray(values))
        bad = np.argwhere(~finite.all(axis=tuple(range(num_chain_dims, finite.ndim))))
        if len(bad):
            where = [tuple(int(i) for i in index) for index in bad[:5]]
            raise ValueError(
                f"The target's {name} is not finite at the initial position of {len(bad)} "
                f"chain(s), the first at {where}. A Metropolis-Hastings chain cannot leave such a "
                "place: start where the density is positive; check the data for NaN or infinity."
            )


def accept(
    state: State,
    proposed: Position,
    evaluation: targets.Evaluation,
    log_reverse_over_forward: TensorType,
    seed: Seed,
    inverse_temperature: TensorType,
) -> State:
    """Accept or reject ``proposed`` in each chain.

    :param evaluation: the target at ``proposed``.
    :param log_reverse_over_forward: log q(current | proposed) - log q(proposed | current),
        [chains...], or 0 for a symmetric proposal.
    :param seed: two integers, used once.
    :param inverse_temperature: beta, a scalar or one per chain.
    """
    current = targets.log_density(state.evaluation, inverse_temperature)
    candidate = targets.log_density(evaluation, inverse_temperature)
    log_ratio = candidate - current + tf.cast(log_reverse_over_forward, current.dtype)
    # The density must be finite too, as a chain could not leave +inf. A gradient that is not finite
    # makes the proposals' ratio NaN, as every sampler with a gradient sums over all of it there.
    finite = tf.math.is_finite(log_ratio) & tf.math.is_finite(candidate)
    log_ratio = tf.where(finite, log_ratio, tf.constant(-np.inf, log_ratio.dtype))
    log_uniform = tf.math.log(uniform(tf.shape(log_ratio), seed, log_ratio.dtype))
    is_accepted = finite & (log_uniform < log_ratio)

    def choose(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        extra = [1] * (old.shape.rank - is_accepted.shape.rank)
        mask = tf.reshape(is_accepted, tf.concat([tf.shape(is_accepted), extra], 0))
        return tf.where(mask, new, old)

    counts = Counts(
        log_ratio,
        is_accepted,
        state.counts.num_proposed + 1,
        state.counts.num_accepted + tf.cast(is_accepted, tf.int32),
        state.counts.num_nonfinite + tf.cast(~finite, tf.int32),
    )
    return State(
        tf.nest.map_structure(choose, proposed, state.position),
        tf.nest.map_structure(choose, evaluation, state.evaluation),
        counts,
    )
