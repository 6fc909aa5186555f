r"""Microcanonical Langevin Monte Carlo (MCLMC).

Velocities have a fixed length and change only their direction. In d dimensions, with the unit
vector u, the gradient g of the log density and the distance s along the path::

    dq / ds = u
    du / ds = (1 - u u^T) g / (d - 1)  +  noise that turns u

The stationary density of positions is the target's for any noise (Robnik et al.
2023; Robnik and Seljak 2024): with exact gradients and small steps the temperature cannot be
wrong, since the length of u is constant. Steep regions are crossed with small
changes of direction rather than at large speeds, and energy errors do not grow with d.

In the notation of :mod:`gpflow_bae.mcmc.sghmc`, momentum = h d^1/2 u, a vector whose elements have
the mean square h^2, so that step sizes are comparable with those of SGHMC for any d. A step is::

    B/2    u turns towards g for half a step
    O      u <- (u + nu xi) / |u + nu xi|,   nu^2 = ((1 - a)^-2 - 1) / d
    B/2    u turns towards g for half a step
    A      position <- position + momentum

with the same gradient in both turns; positions are those of the published scheme (B/2 A B/2, then
O). A turn is exact::

    e = g / |g|,    z = exp(-h d^1/2 |g| / (2 (d - 1))),    c = u^T e
    u <- [2 z u + (1 - z) (1 + z + c (1 - z)) e] / |...|

In many dimensions O retains 1 - a of u's direction on average, as it retains 1 - a of SGHMC's
momentum.

**Step-size bias**: of second order in h; there is no accept-reject step.

**Gradient noise** turns u, as O does, and if it is isotropic that is all it does in the limit of
small steps (Sommer et al. 2026). In larger ones turns saturate, and the signal has only tanh(s) / s
of its effect, where ``s = h d^1/2 |g| / (2 (d - 1))`` with the noisy g. On a standard Gaussian with
noise of the variance c in each direction, variances become::

    s coth(s) = 1 + s^2 / 3 + ...,    s = h (1 + c)^1/2 / 2

Noise that is not isotropic heats the directions that have more of it and cools the others, by
amounts of the order h^2 c / a, which the kinetic temperature does not show, as that of all elements
together is 1 by construction. So minibatches need coordinates in which their noise is isotropic.
For a model that is right, the noise of B of N rows has N / B times the covariance of the
information. So coordinates that make the posterior's precision the identity are such, with c = N /
B. The noise then turns u by h^2 N / (2 B) in a step, and if it alone does, a chain diffuses by 2 B
/ N posterior variances in a step: by two in a pass over the data, whatever B, which full batches
reach as well. Minibatches are for data of which a pass takes too long.

**One chain**: the length of u is over all elements of the position, so leading dimensions are not
chains here. Engines call a step for one chain at a time.

References:

- Robnik, De Luca, Silverstein, Seljak (2023). Microcanonical Hamiltonian Monte Carlo. JMLR 24.
- Robnik, Seljak (2024). Fluctuation without dissipation: microcanonical Langevin Monte Carlo. AABI.
- Sommer, Robnik, Nozadze, Seljak, Rügamer (2025). Microcanonical Langevin ensembles: advancing the
  sampling of Bayesian neural networks. ICLR.
- Sommer, Diao, Robnik, Seljak, Rügamer (2026). Can microcanonical Langevin dynamics leverage
  mini-batch gradient noise? ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.building import build_sampler, momentum_temperatures
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, is_number, validate

__all__ = ["State", "build", "init", "update"]


class State(NamedTuple):
    """Position and momentum (h d^1/2 times the direction), two structures of the same kind."""

    position: Position
    momentum: Position


def init(position: Position) -> State:
    """Return the initial state with zero momentum; the first step draws a direction."""
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
) -> State:
    """Take one step; gradient, seed and noise are as described in :mod:`gpflow_bae.mcmc.types`.

    :param step_size: h > 0, the root mean square of an element's change in a step.
    :param momentum_decay: a in (0, 1), the fraction of its direction that a chain loses per step.
    :param temperature: T > 0 for all leaves, or a structure like the position with one for each
        leaf; a leaf at 0 is fixed, and not counted in d.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """
    validate(step_size=step_size, momentum_decay=momentum_decay)
    if is_number(momentum_decay) and momentum_decay == 1.0:
        raise ValueError("momentum_decay of mclmc must be below 1, where no direction is left.")
    temperatures = tf.nest.flatten(leaf_temperatures(temperature, state.position))
    h, a = (cast_scalar(s, tf.float64) for s in (step_size, momentum_decay))
    moving = [tf.cast(tf.cast(t, tf.float64) > 0.0, tf.float64) for t in temperatures]
    flat = tf.nest.flatten(state.position)
    d = tf.add_n([m * tf.size(q, tf.float64) for m, q in zip(moving, flat, strict=True)])
    pull = [
        tf.cast(g, tf.float64) * m / tf.maximum(tf.cast(t, tf.float64), 1e-300)
        for g, t, m in zip(tf.nest.flatten(gradient), temperatures, moving, strict=True)
    ]
    xi = [
        tf.cast(x, tf.float64) * m
        for x, m in zip(
            tf.nest.flatten(noise_like(state.position, seed, noise)), moving, strict=True
        )
    ]
    u = [
        tf.cast(r, tf.float64) * m
        for r, m in zip(tf.nest.flatten(state.momentum), moving, strict=True)
    ]
    # Before the first step the momentum is zero, and the noise is the direction.
    length = _norm(u)
    u = _unit([tf.where(length > 0.0, r, x) for r, x in zip(u, xi, strict=True)])
    turn = h * tf.sqrt(d) / (2.0 * (d - 1.0))
    u = _rotated(u, pull, turn)
    nu = tf.sqrt((1.0 / (1.0 - a) ** 2 - 1.0) / d)
    u = _unit([v + nu * x for v, x in zip(u, xi, strict=True)])
    u = _rotated(u, pull, turn)
    steps = [tf.cast(h * tf.sqrt(d) * v, q.dtype) for v, q in zip(u, flat, strict=True)]
    return State(
        tf.nest.pack_sequence_as(state.position, [q + r for q, r in zip(flat, steps, strict=True)]),
        tf.nest.pack_sequence_as(state.position, steps),
    )


def _norm(vectors: list[tf.Tensor]) -> tf.Tensor:
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(v)) for v in vectors]))


def _unit(vectors: list[tf.Tensor]) -> list[tf.Tensor]:
    norm = _norm(vectors)
    return [v / norm for v in vectors]


def _rotated(u: list[tf.Tensor], gradient: list[tf.Tensor], amount: tf.Tensor) -> list[tf.Tensor]:
    """Return the exact solution of du / ds = (1 - u u^T) g / (d - 1).

    :param u: a unit vector.
    :param amount: the distance over d - 1.
    """
    size = _norm(gradient)
    e = [g / tf.maximum(size, 1e-300) for g in gradient]
    c = tf.add_n([tf.reduce_sum(v * g) for v, g in zip(u, e, strict=True)])
    z = tf.exp(-amount * size)
    along = (1.0 - z) * (1.0 + z + c * (1.0 - z))
    return _unit([2.0 * z * v + along * g for v, g in zip(u, e, strict=True)])


@check_arguments()
def build(
    step_size: Setting = 0.1,
    momentum_decay: Setting = 0.1,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
) -> SamplingAlgorithm:
    """Return the sampler with settings of :func:`update`, or schedules of the step number.

    :func:`gpflow_bae.mcmc.energy_variance.from_energy_variance` adapts its step size.
    """
    return build_sampler(
        "mclmc",
        State,
        init,
        update,
        locals(),
        temperatures=momentum_temperatures,
    )._replace(rests_when_cold=True)
