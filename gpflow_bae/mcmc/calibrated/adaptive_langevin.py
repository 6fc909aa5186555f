r"""Langevin-gradient Metropolis-Hastings whose drift is one step of Adam (adapt-LG).

The proposal of :mod:`gpflow_bae.mcmc.calibrated.langevin` with another drift::

    m' = b1 m + (1 - b1) g          v' = b2 v + (1 - b2) g^2          t' = t + 1
    drift = eta (m' / (1 - b1^t')) / (sqrt(v' / (1 - b2^t')) + epsilon)

where g is the gradient of log pi_beta at the position and (m, v, t) are the statistics before the
step. The reverse drift uses the **same** (m, v, t) with the gradient at the proposal, so that at
given statistics the kernel satisfies detailed balance exactly. While ``adapt`` is true the
statistics then become (m', v', t') of the position that the step started from.

**Stationary distribution**: pi_beta, exactly, once ``adapt`` is false. While the statistics adapt,
the stationary distribution is unknown: adapt during burn-in, and use
:mod:`~gpflow_bae.mcmc.calibrated.langevin` (the published adapt-LG*), or fixed statistics,
afterwards. The published adapt-LG never stops adapting.

The drift's length is about eta sqrt(d) for any gradient, so in many dimensions only a small eta
has proposals that are accepted.

Reference: Chandra, Jain, Maharana, Krivitsky (2022). Revisiting Bayesian autoencoders with MCMC.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import langevin, metropolis, targets
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "init", "update"]


class State(NamedTuple):
    """The fields of :class:`gpflow_bae.mcmc.calibrated.metropolis.State`, and Adam's statistics."""

    position: Position
    evaluation: targets.Evaluation
    counts: metropolis.Counts
    first_moment: Position
    second_moment: Position
    num_updates: tf.Tensor  # int32, scalar


def init(position: Position, target: targets.TargetFn) -> State:
    """Return the initial state at ``position``, with statistics of zero."""
    start = metropolis.init(position, target)
    zeros = tf.nest.map_structure(tf.zeros_like, start.position)
    return State(*start, zeros, zeros, tf.zeros([], tf.int32))


def update(
    state: State,
    target: targets.TargetFn,
    seed: Seed,
    *,
    noise_scale: TensorType | float,
    learning_rate: TensorType | float,
    adapt: bool | TensorType,
    inverse_temperature: TensorType | float = 1.0,
    gradient_probability: TensorType | float = 1.0,
    beta_1: Scalar = 0.9,
    beta_2: Scalar = 0.999,
    epsilon: Scalar = 1e-8,
) -> State:
    """Take one step: one proposal per chain, one evaluation of the target and its gradient.

    :param learning_rate: eta, Adam's step size; a scalar or one per chain.
    :param adapt: whether to update the statistics; a boolean tensor is not retraced when it
        changes.
    :param beta_1: Adam's decay of the first moment, ``beta_2`` of the second.

    The other arguments are those of :func:`gpflow_bae.mcmc.calibrated.langevin.update`.
    """
    validate(
        noise_scale=noise_scale,
        learning_rate=learning_rate,
        inverse_temperature=inverse_temperature,
        gradient_probability=gradient_probability,
    )
    t = state.num_updates + 1

    def moments(evaluation: targets.Evaluation) -> tuple[Position, Position]:
        gradient = targets.gradient(evaluation, inverse_temperature)

        def mean(decay: Scalar, past: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            kept, added = (cast_scalar(b, past.dtype) for b in (decay, 1 - decay))
            return kept * past + added * new

        first = tf.nest.map_structure(lambda m, g: mean(beta_1, m, g), state.first_moment, gradient)
        second = tf.nest.map_structure(
            lambda v, g: mean(beta_2, v, g**2), state.second_moment, gradient
        )
        return first, second

    def drift(evaluation: targets.Evaluation) -> Position:
        def one_leaf(m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
            power = tf.cast(t, m.dtype)
            m_hat = m / (1 - tf.pow(cast_scalar(beta_1, m.dtype), power))
            v_hat = v / (1 - tf.pow(cast_scalar(beta_2, m.dtype), power))
            rate = targets.chain_broadcast(cast_scalar(learning_rate, m.dtype), m)
            return rate * m_hat / (tf.sqrt(v_hat) + cast_scalar(epsilon, m.dtype))

        return tf.nest.map_structure(one_leaf, *moments(evaluation))

    moved = langevin.propose_and_accept(
        metropolis.State(state.position, state.evaluation, state.counts),
        target,
        seed,
        drift,
        noise_scale=noise_scale,
        inverse_temperature=inverse_temperature,
        gradient_probability=gradient_probability,
    )
    first, second = moments(state.evaluation)

    def keep(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        return tf.where(adapt, new, old)

    return State(
        *moved,
        tf.nest.map_structure(keep, first, state.first_moment),
        tf.nest.map_structure(keep, second, state.second_moment),
        keep(t, state.num_updates),
    )
