r"""Hamiltonian Monte Carlo: several leapfrog steps per proposal, with an accept-reject step.

From new momenta p ~ N(0, I), a proposal is n leapfrog steps of size h::

    p <- p + h/2 g(q),   q <- q + h p,   p <- p + h/2 g(q)

with g the gradient of log pi_beta; the end is accepted with probability
min(1, exp(-H(end) + H(start))), H = p^2 / 2 - log pi_beta(q). The number of steps is the same for
all chains and drawn uniformly from 1 .. ``max_leapfrog_steps`` in every update, to avoid
periodic trajectories (Neal 2011, section 3.2).

**Stationary distribution**: pi_beta, exactly, at any h. With n = 1 it is
:mod:`~gpflow_bae.mcmc.calibrated.langevin` with noise scale h.

Reference: Neal (2011). MCMC using Hamiltonian dynamics. Handbook of MCMC, ch. 5.
"""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import metropolis, targets
from gpflow_bae.mcmc.calibrated.metropolis import State, init
from gpflow_bae.mcmc.noise import noise_like, split
from gpflow_bae.mcmc.types import Position, Seed, cast_scalar, validate

__all__ = ["State", "init", "update"]


def update(
    state: State,
    target: targets.TargetFn,
    seed: Seed,
    *,
    step_size: TensorType | float,
    max_leapfrog_steps: int,
    inverse_temperature: TensorType | float = 1.0,
) -> State:
    """Take one step: one proposal per chain, up to ``max_leapfrog_steps`` evaluations.

    :param seed: two integers, used once.
    :param step_size: h > 0, a scalar or one per chain.
    :param inverse_temperature: beta >= 0, a scalar or one per chain.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(step_size=step_size, inverse_temperature=inverse_temperature)
    if max_leapfrog_steps < 1:
        raise ValueError(f"max_leapfrog_steps must be at least 1, got {max_leapfrog_steps}.")
    momentum_seed, length_seed, accept_seed = tf.unstack(split(seed, 3))
    chains = tf.zeros_like(state.evaluation.tempered)
    h = cast_scalar(step_size, chains.dtype) + chains

    def kick(p: Position, evaluation: targets.Evaluation, fraction: float) -> Position:
        uphill = targets.gradient(evaluation, inverse_temperature)
        return tf.nest.map_structure(
            lambda p, g: p + targets.chain_broadcast(fraction * h, p) * g, p, uphill
        )

    def leapfrog(
        i: tf.Tensor, q: Position, p: Position, evaluation: targets.Evaluation
    ) -> tuple[tf.Tensor, Position, Position, targets.Evaluation]:
        p = kick(p, evaluation, 0.5)
        q = tf.nest.map_structure(lambda q, p: q + targets.chain_broadcast(h, q) * p, q, p)
        evaluation = target(q)
        return i + 1, q, kick(p, evaluation, 0.5), evaluation

    start = noise_like(state.position, momentum_seed)
    num_steps = tf.random.stateless_uniform(
        [], length_seed, 1, max_leapfrog_steps + 1, tf.int32, alg="philox"
    )
    _, position, momentum, evaluation = tf.while_loop(
        lambda i, *_: i < num_steps,
        leapfrog,
        (tf.constant(0), state.position, start, state.evaluation),
        maximum_iterations=max_leapfrog_steps,
        parallel_iterations=1,
    )

    before, after = (
        0.5 * targets.chain_sum(tf.nest.map_structure(tf.square, p), chains)
        for p in (start, momentum)
    )
    return metropolis.accept(
        state, position, evaluation, before - after, accept_seed, inverse_temperature
    )
