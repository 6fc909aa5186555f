r"""Stochastic-gradient Hamiltonian Monte Carlo.

With step size h, momentum decay a, temperature T, gradient g of the log density at the current
position, and independent standard noise xi::

    momentum <- (1 - a) momentum + h^2 g + sqrt(2 a T) h xi
    position <- position + momentum

(Chen, Fox and Guestrin 2014, eq. 15; Tran et al. 2023, eq. 13.) It discretises underdamped
Langevin dynamics with time step h, unit mass and friction a / h; the momentum is h times the
velocity. At a = 1 it is Langevin dynamics (SGLD) with step h^2.

This is ``integrator="euler"``, the default, and what follows is for it. ``"obabo"`` and ``"baoab"``
have the same cost per step and other step-size biases: :mod:`gpflow_bae.mcmc.integrators`.

**Stationary distribution.** As h goes to 0 at a fixed a, positions are distributed as
density ** (1 / T). Noise in the gradient, of variance v per scalar, adds h^4 v to the momentum's
noise variance 2 a T h^2: it acts as a temperature higher by the factor 1 + h^2 v / (2 a T).

**Step-size bias.** On a Gaussian with precision A and mean m the stationary mean is m, exactly,
and the covariance is T [A - h^2 A^2 / (2 (2 - a))]^-1: too large by the factor
1 / (1 - h^2 A / (2 (2 - a))) along each eigenvector. The chain is stable for
h^2 A < 2 (2 - a).

**Why 2 a and not 2 a - a^2.** The latter is the coefficient of the exact Ornstein-Uhlenbeck
solution and gives momenta the variance T h^2 (to second order in h). But in this order of updates
(damp, kick, move) it gives positions the covariance T (1 - a / 2) A^-1 for any small h: they
are too cold by 2.5 per cent at a = 0.05, and by a factor 2 at a = 1. With 2 a, as published,
momenta are too hot, by 1 / (1 - a / 2), and positions, the quantity of interest, are right.

References:

- Chen, Fox, Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.
- Tran, Shahbaba, Mandt, Filippone (2023). Fully Bayesian autoencoders with latent sparse Gaussian
  processes. ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler, momentum_temperatures
from gpflow_bae.mcmc.integrators import check_integrator, splitting_step
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures, map_leaves
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "update"]


class State(NamedTuple):
    """Position and momentum (h times the velocity), two structures of the same kind."""

    position: Position
    momentum: Position


def init(position: Position) -> State:
    """Return the initial state at ``position``, with zero momentum."""
    position = tf.nest.map_structure(tf.convert_to_tensor, position)
    return State(position, tf.nest.map_structure(tf.zeros_like, position))


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    momentum_decay: Scalar,
    temperature: Scalar | Position = 1.0,
    noise: str = "gaussian",
    integrator: str = "euler",
) -> State:
    """Take one step; gradient, seed and noise are as described in :mod:`gpflow_bae.mcmc.types`.

    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param temperature: T >= 0, or a structure like the position with one for each leaf: a leaf at 0
        is optimised, by descent with momentum, while the others are sampled.
    :param integrator: ``"euler"``, ``"obabo"`` or ``"baoab"``.
    :raises ValueError: if a setting given as a Python number is out of its range, or
        ``integrator`` is unknown.
    """
    validate(step_size=step_size, momentum_decay=momentum_decay)
    temperatures = leaf_temperatures(temperature, state.position)
    check_integrator(integrator)
    xi = noise_like(state.position, seed, noise)

    def step(
        q: tf.Tensor, r: tf.Tensor, g: tf.Tensor, xi: tf.Tensor, t: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        h, a, t = (cast_scalar(s, r.dtype) for s in (step_size, momentum_decay, t))
        if integrator == "euler":
            r = (1 - a) * r + h**2 * g + h * tf.sqrt(2 * a * t) * xi
            return q + r, r
        return splitting_step(
            integrator, q, r, h**2 * g, xi, momentum_decay=a, noise_scale=h * tf.sqrt(t)
        )

    return State(*map_leaves(step, state.position, state.momentum, gradient, xi, temperatures))


@check_arguments()
def build(
    step_size: Setting = 0.01,
    momentum_decay: Setting = 0.05,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
    integrator: str = "euler",
) -> SamplingAlgorithm:
    """Return the sampler with settings of :func:`update`, or schedules of the step number."""
    return build_sampler(
        "sghmc",
        State,
        init,
        update,
        locals(),
        temperatures=momentum_temperatures,
    )
