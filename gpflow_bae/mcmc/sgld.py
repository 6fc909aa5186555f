r"""Stochastic-gradient Langevin dynamics.

With step size e, temperature T, gradient g of the log density at the current position, and
independent standard noise xi::

    position <- position + (e / 2) g + sqrt(e T) xi

(Welling and Teh 2011, eq. 4; their temperature is 1.) It discretises overdamped Langevin dynamics
with time step e / 2. It is :mod:`~gpflow_bae.mcmc.sghmc` at momentum decay 1 with step size
h = sqrt(e / 2): e is in units of squared positions, h in units of positions.

**Stationary distribution.** As e goes to 0, positions are distributed as density ** (1 / T). Noise
in the gradient, of variance v per scalar, adds e^2 v / 4 to the noise variance e T: it acts as a
temperature higher by the factor 1 + e v / (4 T).

**Step-size bias.** Of first order in e. On a Gaussian with precision A and mean m the stationary
mean is m, exactly, and the covariance is T [A - e A^2 / 4]^-1: too large by the factor
1 / (1 - e A / 4) along each eigenvector. The chain is stable for e A < 4. Welling and Teh let e
decrease along the chain so that the bias vanishes: ``step_size`` may be a tensor, see
:mod:`gpflow_bae.mcmc.schedules`.

References:

- Welling, Teh (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "update"]


class State(NamedTuple):
    """The position, the only variable of Langevin dynamics."""

    position: Position


def init(position: Position) -> State:
    """Return the initial state at ``position``."""
    return State(tf.nest.map_structure(tf.convert_to_tensor, position))


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    temperature: Scalar | Position = 1.0,
    noise: str = "gaussian",
) -> State:
    """Take one step; gradient, seed and noise are as described in :mod:`gpflow_bae.mcmc.types`.

    :param step_size: e > 0.
    :param temperature: T >= 0, or a structure like the position with one for each leaf.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(step_size=step_size)
    temperatures = leaf_temperatures(temperature, state.position)
    xi = noise_like(state.position, seed, noise)

    def next_position(q: tf.Tensor, g: tf.Tensor, xi: tf.Tensor, t: Scalar) -> tf.Tensor:
        e, t = (cast_scalar(s, q.dtype) for s in (step_size, t))
        return q + e / 2 * g + tf.sqrt(e * t) * xi

    position = tf.nest.map_structure(next_position, state.position, gradient, xi, temperatures)
    return State(position)


@check_arguments()
def build(
    step_size: Setting = 1e-4, temperature: Setting = 1.0, noise: str = "gaussian"
) -> SamplingAlgorithm:
    """Return the sampler with settings of :func:`update`, or schedules of the step number."""
    return build_sampler("sgld", State, init, update, locals())
