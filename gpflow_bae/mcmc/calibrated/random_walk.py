r"""Random-walk Metropolis, without gradients.

With noise scale sigma, inverse temperature beta, standard normal xi::

    proposal = position + sigma xi

accepted with probability min(1, pi_beta(proposal) / pi_beta(position)), where log pi_beta is beta
times the log likelihood plus the log prior.

**Stationary distribution**: pi_beta, exactly, at any sigma (Metropolis et al. 1953). In d
dimensions the optimal acceptance rate, 0.234, is at sigma of order d ** (-1/2) times the target's
scale (Roberts, Gelman and Gilks 1997).
"""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import metropolis, targets
from gpflow_bae.mcmc.calibrated.metropolis import State, init
from gpflow_bae.mcmc.noise import noise_like, split
from gpflow_bae.mcmc.types import Seed, cast_scalar, validate

__all__ = ["State", "init", "update"]


def update(
    state: State,
    target: targets.TargetFn,
    seed: Seed,
    *,
    noise_scale: TensorType | float,
    inverse_temperature: TensorType | float = 1.0,
) -> State:
    """Take one step: one proposal per chain, one evaluation of the target.

    :param target: see :func:`~gpflow_bae.mcmc.calibrated.targets.target`; ``with_gradient=False``
        is sufficient.
    :param seed: two integers, used once.
    :param noise_scale: sigma > 0, a scalar or one per chain.
    :param inverse_temperature: beta >= 0, a scalar or one per chain.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(noise_scale=noise_scale, inverse_temperature=inverse_temperature)
    noise_seed, accept_seed = tf.unstack(split(seed))
    chains = tf.zeros_like(state.evaluation.tempered)
    scale = cast_scalar(noise_scale, chains.dtype) + chains
    proposed = tf.nest.map_structure(
        lambda x, xi: x + targets.chain_broadcast(scale, x) * xi,
        state.position,
        noise_like(state.position, noise_seed),
    )
    return metropolis.accept(
        state, proposed, target(proposed), 0.0, accept_seed, inverse_temperature
    )
