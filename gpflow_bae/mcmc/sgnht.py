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
differs between scalars is balanced only on average over those that share a thermostat: all of a
chain, or with ``thermostats="leaf"`` those of one leaf (a tensor of weights). Its mean is 0 only
over long times: the fewer its scalars, the more it swings, with the variance h^2 T / n. So a
leaf's has at least the inertia of 1000 scalars: n above is then max(n, 1000), of the same mean.

A kinetic temperature of T is what a thermostat enforces, and no evidence that positions are right.

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
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from gpflow_bae.arguments import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler, kinetic_info, momentum_temperatures
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures, map_leaves
from gpflow_bae.mcmc.targets import chain_broadcast, chain_sum
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "update"]

_LEAST_INERTIA = 1000  # scalars, of the thermostat of a leaf


class State(NamedTuple):
    """Position and momentum (h times the velocity), two structures alike, and thermostats."""

    position: Position
    momentum: Position
    thermostat: Any  # [chains...], or a structure like the position with one for each leaf


def init(
    position: Position,
    *,
    momentum_decay: Scalar,
    chain_ndims: int = 0,
    thermostats: Literal["chain", "leaf"] = "chain",
) -> State:
    """Start at ``position``, at rest, with thermostats at their mean without gradient noise.

    :param position: a structure with at least one leaf.
    :param momentum_decay: a, the same as for :func:`update`.
    :param chain_ndims: how many leading dimensions of every leaf are chains, each of which has a
        thermostat; 0 for one chain.
    :param thermostats: one for all of a chain, or one for each leaf; the same where the position is
        a single tensor.
    :raises ValueError: if ``momentum_decay`` is out of its range, the position is empty, a leaf has
        fewer than ``chain_ndims`` dimensions, their leading dimensions differ, or ``thermostats``
        is neither.
    """
    validate(momentum_decay=momentum_decay)
    if thermostats not in ("chain", "leaf"):
        raise ValueError(f'thermostats must be "chain" or "leaf", got {thermostats!r}.')
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
    held = thermostat
    if thermostats == "leaf":
        held = tf.nest.map_structure(lambda _: thermostat, position)
    return State(position, tf.nest.map_structure(tf.zeros_like, position), held)


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    momentum_decay: Scalar,
    temperature: Scalar | Position = 1.0,
    noise: str = "gaussian",
) -> State:
    """One step; gradient, seed and noise are as :mod:`gpflow_bae.mcmc.types` describes them.

    :param state: its thermostats tell how many leading dimensions are chains, and whether there is
        one for each leaf.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1], the size of the noise that is added.
    :param temperature: T >= 0, or a structure like the position with one for each leaf: one at 0 is
        optimised, by descent with momentum. Leaves that share a thermostat share a temperature.
    :raises ValueError: if a setting given as a Python number is out of its range, or there are
        several temperatures to one thermostat.
    """
    validate(step_size=step_size, momentum_decay=momentum_decay)
    leaves = tf.nest.flatten(state.position)
    found = tf.nest.flatten(state.thermostat)
    shares = not (tf.nest.is_nested(state.thermostat) or len(leaves) == 1)
    if shares and len(tf.nest.flatten(temperature)) > 1:
        raise ValueError(
            "temperature must be one number where the leaves of a chain share a thermostat; build "
            'the sampler with thermostats="leaf" for one of each leaf.'
        )
    temperatures = leaf_temperatures(temperature, state.position)
    xi = noise_like(state.position, seed, noise)
    of_leaves = tf.nest.pack_sequence_as(state.position, found * (len(leaves) // len(found)))

    def step(
        q: tf.Tensor, r: tf.Tensor, g: tf.Tensor, xi: tf.Tensor, t: Scalar, thermostat: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        h, a, t = (cast_scalar(s, r.dtype) for s in (step_size, momentum_decay, t))
        r = (1 - chain_broadcast(thermostat, r)) * r + h**2 * g + h * tf.sqrt(2 * a * t) * xi
        return q + r, r

    position, momentum = map_leaves(
        step, state.position, state.momentum, gradient, xi, temperatures, of_leaves
    )

    def followed(thermostat: tf.Tensor, parts: list[tf.Tensor], t: Scalar, least: int) -> tf.Tensor:
        h, t = (cast_scalar(s, thermostat.dtype) for s in (step_size, t))
        chain_ndims = thermostat.shape.rank
        squares = [tf.cast(r, thermostat.dtype) ** 2 for r in parts]
        count = tf.cast(
            tf.add_n([tf.reduce_prod(tf.shape(r)[chain_ndims:]) for r in parts]), thermostat.dtype
        )
        excess = chain_sum(squares, thermostat) - count * h**2 * t
        # What is at rest, or descends, has no heat to be taken away.
        return thermostat + tf.where(t > 0.0, excess / tf.maximum(count, float(least)), 0.0)

    if not tf.nest.is_nested(state.thermostat):
        first = tf.nest.flatten(temperatures)[0]
        moved = followed(state.thermostat, tf.nest.flatten(momentum), first, 1)
        return State(position, momentum, moved)
    thermostats = tf.nest.map_structure(
        lambda thermostat, r, t: followed(thermostat, [r], t, _LEAST_INERTIA),
        of_leaves,
        momentum,
        temperatures,
    )
    return State(position, momentum, thermostats)


@check_arguments()
def build(
    step_size: Setting = 0.01,
    momentum_decay: Setting = 0.05,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
    thermostats: Literal["chain", "leaf"] = "chain",
    *,
    chain_ndims: int = 0,
) -> SamplingAlgorithm:
    """The sampler as one object: settings of :func:`init` and :func:`update`, or schedules."""
    return build_sampler(
        "sgnht",
        State,
        partial(init, chain_ndims=chain_ndims, thermostats=thermostats),
        update,
        locals(),
        shared=("thermostat",),
        init_settings=("momentum_decay",),
        info=lambda s: {**kinetic_info(s), "thermostat": _all_thermostats(s)},
        temperatures=momentum_temperatures,
        temperature_of_leaves=thermostats == "leaf",
    )


def _all_thermostats(state: Any) -> tf.Tensor:
    """[chains...], or with one for each leaf [chains..., leaves]."""
    held = state.shared["thermostat"]
    return tf.stack(tf.nest.flatten(held), -1) if tf.nest.is_nested(held) else held
