r"""Stochastic-gradient Nosé-Hoover thermostat.

SGHMC whose momentum decay is a variable, one number per chain, that rises while the chain is hotter
than T and falls while it is colder; it so absorbs gradient noise of unknown size (Ding et al. 2014,
algorithm 2). With step size h, momentum decay a, temperature T, gradient g of the log density,
independent standard noise xi, and n scalars per chain::

    momentum   <- (1 - thermostat) momentum + h^2 g + sqrt(2 a T) h xi
    position   <- position + momentum
    thermostat <- thermostat + |momentum|^2 / n - h^2 T

The momentum is h times their p, a is h times their A, the thermostat h times their xi (their
temperature is 1). With the thermostat held at a it is :mod:`gpflow_bae.mcmc.sghmc`.

**Stationary distribution.** As h goes to 0 at a fixed friction a / h, independently: positions
density ** (1 / T), velocities (momentum / h) N(0, T), and thermostat N(a, h^2 T / n). With gradient
noise of the same variance v for every scalar the thermostat's mean becomes a + h^2 v / (2 T), and
the positions stay as they are; SGHMC's are hotter by 1 + h^2 v / (2 a T). Noise whose variance
differs between scalars is balanced only on average over them, as there is one thermostat.

**Step-size bias.** Of first order in h at a fixed friction. The thermostat makes the mean square
velocity exactly T, whereas positions are right when it is T / (1 - a / 2), as SGHMC's docstring
explains: positions are too cold by the factor 1 - b / 2 to first order, where b is the thermostat's
mean, and this does *not* vanish as h goes to 0 at a fixed a. It counters SGHMC's own
1 / (1 - h^2 A / 4) along an eigenvector with precision A. Choose a small, such as 0.05. There is no
closed form for a Gaussian, as the thermostat makes the chain nonlinear.

References:

- Ding, Fang, Babbush, Chen, Skeel, Neven (2014). Bayesian sampling using stochastic gradient
  thermostats. NeurIPS.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import tensorflow as tf

from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler, kinetic_info, momentum_temperatures
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import map_leaves
from gpflow_bae.mcmc.targets import chain_broadcast, chain_sum
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "update"]


class State(NamedTuple):
    """Position and momentum (h times the velocity), two structures alike, and a thermostat."""

    position: Position
    momentum: Position
    thermostat: tf.Tensor  # [chains...]


def init(position: Position, *, momentum_decay: Scalar, chain_ndims: int = 0) -> State:
    """Start at ``position``, at rest, with the thermostat at its mean without gradient noise.

    :param position: a structure with at least one leaf.
    :param momentum_decay: a, the same as for :func:`update`.
    :param chain_ndims: how many leading dimensions of every leaf are chains, each of which has a
        thermostat; 0 for one chain.
    :raises ValueError: if ``momentum_decay`` is out of its range, the position is empty, a leaf has
        fewer than ``chain_ndims`` dimensions, or their leading dimensions differ.
    """
    validate(momentum_decay=momentum_decay)
    position = tf.nest.map_structure(tf.convert_to_tensor, position)
    leaves = tf.nest.flatten(position)
    if not leaves:
        raise ValueError("position has no tensors: there is nothing to sample.")
    chains = leaves[0].shape[:chain_ndims]
    for leaf in leaves:
        if leaf.shape.rank < chain_ndims or not leaf.shape[:chain_ndims].is_compatible_with(chains):
            raise ValueError(
                f"The first chain_ndims={chain_ndims} dimensions of every leaf of position must be "
                f"the same chains, got shapes {[tuple(each.shape) for each in leaves]}."
            )
    # It sums many small increments: never in half precision.
    dtype = tf.float64 if any(leaf.dtype == tf.float64 for leaf in leaves) else tf.float32
    shape = chains if chains.is_fully_defined() else tf.shape(leaves[0])[:chain_ndims]
    thermostat = tf.fill(shape, cast_scalar(momentum_decay, dtype))
    return State(position, tf.nest.map_structure(tf.zeros_like, position), thermostat)


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    momentum_decay: Scalar,
    temperature: Scalar = 1.0,
    noise: str = "gaussian",
) -> State:
    """One step; gradient, seed and noise are as :mod:`gpflow_bae.mcmc.types` describes them.

    :param state: its thermostat tells how many leading dimensions are chains.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1], the size of the noise that is added.
    :param temperature: T >= 0.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(step_size=step_size, momentum_decay=momentum_decay, temperature=temperature)
    xi = noise_like(state.position, seed, noise)
    thermostat = state.thermostat
    chain_ndims = thermostat.shape.rank

    def step(
        q: tf.Tensor, r: tf.Tensor, g: tf.Tensor, xi: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        h, a, t = (cast_scalar(s, r.dtype) for s in (step_size, momentum_decay, temperature))
        r = (1 - chain_broadcast(thermostat, r)) * r + h**2 * g + h * tf.sqrt(2 * a * t) * xi
        return q + r, r

    position, momentum = map_leaves(step, state.position, state.momentum, gradient, xi)
    h, t = (cast_scalar(s, thermostat.dtype) for s in (step_size, temperature))
    squares = tf.nest.map_structure(lambda r: tf.cast(r, thermostat.dtype) ** 2, momentum)
    num_scalars = tf.add_n(
        [tf.reduce_prod(tf.shape(r)[chain_ndims:]) for r in tf.nest.flatten(momentum)]
    )
    thermostat += chain_sum(squares, thermostat) / tf.cast(num_scalars, thermostat.dtype) - h**2 * t
    return State(position, momentum, thermostat)


def build(
    step_size: Setting = 0.01,
    momentum_decay: Setting = 0.05,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
    *,
    chain_ndims: int = 0,
) -> SamplingAlgorithm:
    """The sampler as one object: settings of :func:`init` and :func:`update`, or schedules."""
    return build_sampler(
        "sgnht",
        State,
        partial(init, chain_ndims=chain_ndims),
        update,
        locals(),
        shared=("thermostat",),
        init_settings=("momentum_decay",),
        info=lambda s: {**kinetic_info(s), "thermostat": s.shared["thermostat"]},
        temperatures=momentum_temperatures,
    )
