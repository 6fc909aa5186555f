r"""Langevin-gradient Metropolis-Hastings, with the exact correction for its asymmetry.

With learning rate eta, noise scale sigma, inverse temperature beta, standard normal xi, and g the
gradient of log pi_beta::

    proposal = position + b eta g(position) + sigma xi

accepted with probability min(1, r), where::

    log r = log pi_beta(proposal) - log pi_beta(position)
            - sum_i (s_i xi_i + s_i^2 / 2),
    s = b eta (g(position) + g(proposal)) / sigma

The last line is log q(position | proposal) - log q(proposal | position): the noise of the reverse
proposal is -(xi + s). It is written with s because the difference of the two squared distances
loses all digits in a million dimensions. b is 1 with probability ``gradient_probability`` and 0
(a random walk) otherwise, drawn for each chain and step independently of the state, so that each of
the two kernels, and their mixture, leaves pi_beta invariant.

**Stationary distribution**: pi_beta, exactly, at any eta and sigma. With ``learning_rate=None``,
eta = sigma^2 / 2: the Metropolis-adjusted Langevin algorithm (Roberts and Tweedie 1996), whose
acceptance rate does not vanish in high dimension for sigma of order d ** (-1/6). A learning rate
independent of sigma (Chandra et al. 2022) is exact too, but its drift is longer than the noise
of the reverse proposal, so that in many dimensions almost all proposals are rejected.

There is no preconditioner: if scales differ, sample a target of whitened coordinates.

References:

- Roberts, Tweedie (1996). Exponential convergence of Langevin distributions and their discrete
  approximations. Bernoulli 2.
- Chandra, Jain, Maharana, Krivitsky (2022). Revisiting Bayesian autoencoders with MCMC. IEEE
  Access.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import metropolis, targets
from gpflow_bae.mcmc.calibrated.metropolis import State, init
from gpflow_bae.mcmc.noise import noise_like, split, uniform
from gpflow_bae.mcmc.types import Position, Seed, cast_scalar, validate

__all__ = ["State", "init", "propose_and_accept", "update"]


def update(
    state: State,
    target: targets.TargetFn,
    seed: Seed,
    *,
    noise_scale: TensorType | float,
    learning_rate: TensorType | float | None = None,
    inverse_temperature: TensorType | float = 1.0,
    gradient_probability: TensorType | float = 1.0,
) -> State:
    """Take one step: one proposal per chain, one evaluation of the target and its gradient.

    :param target: see :func:`~gpflow_bae.mcmc.calibrated.targets.target`.
    :param seed: two integers, used once.
    :param noise_scale: sigma > 0, a scalar or one per chain.
    :param learning_rate: eta >= 0, a scalar or one per chain; None for sigma^2 / 2.
    :param inverse_temperature: beta >= 0, a scalar or one per chain.
    :param gradient_probability: probability of a gradient proposal instead of a random walk.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(
        noise_scale=noise_scale,
        learning_rate=learning_rate,
        inverse_temperature=inverse_temperature,
        gradient_probability=gradient_probability,
    )
    chains = tf.zeros_like(state.evaluation.tempered)
    rate = 0.5 * tf.square(cast_scalar(noise_scale, chains.dtype))
    if learning_rate is not None:
        rate = cast_scalar(learning_rate, chains.dtype)
    rate += chains

    def drift(evaluation: targets.Evaluation) -> Position:
        uphill = targets.gradient(evaluation, inverse_temperature)
        return tf.nest.map_structure(lambda g: targets.chain_broadcast(rate, g) * g, uphill)

    return propose_and_accept(
        state,
        target,
        seed,
        drift,
        noise_scale=noise_scale,
        inverse_temperature=inverse_temperature,
        gradient_probability=gradient_probability,
    )


def propose_and_accept(
    state: State,
    target: targets.TargetFn,
    seed: Seed,
    drift: Callable[[targets.Evaluation], Position],
    *,
    noise_scale: TensorType | float,
    inverse_temperature: TensorType | float = 1.0,
    gradient_probability: TensorType | float = 1.0,
) -> State:
    """Take one step with any ``drift(evaluation) -> displacement`` that depends on the state."""
    noise_seed, kind_seed, accept_seed = tf.unstack(split(seed, 3))
    chains = tf.zeros_like(state.evaluation.tempered)
    sigma = cast_scalar(noise_scale, chains.dtype) + chains
    follow = uniform(tf.shape(chains), kind_seed, chains.dtype) < cast_scalar(
        gradient_probability, chains.dtype
    )
    follow = tf.cast(follow, chains.dtype)
    xi = noise_like(state.position, noise_seed)
    forward = drift(state.evaluation)
    proposed = tf.nest.map_structure(
        lambda x, d, xi: (
            x + targets.chain_broadcast(follow, x) * d + targets.chain_broadcast(sigma, x) * xi
        ),
        state.position,
        forward,
        xi,
    )
    evaluation = target(proposed)
    backward = drift(evaluation)

    def correction(d: tf.Tensor, d_back: tf.Tensor, xi: tf.Tensor) -> tf.Tensor:
        s = targets.chain_broadcast(follow / sigma, d) * (d + d_back)
        return s * (xi + 0.5 * s)

    corrections = tf.nest.map_structure(correction, forward, backward, xi)
    return metropolis.accept(
        state,
        proposed,
        evaluation,
        -targets.chain_sum(corrections, chains),
        accept_seed,
        inverse_temperature,
    )
