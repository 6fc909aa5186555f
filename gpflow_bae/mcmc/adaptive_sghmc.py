r"""Scale-adapted stochastic-gradient Hamiltonian Monte Carlo.

SGHMC with a diagonal preconditioner P learnt from the gradients during burn-in (Springenberg et al.
2016; Tran et al. 2023, eq. 14-17). With step size h, momentum decay a, temperature T, gradient g of
the log density, independent standard noise xi, and everything elementwise::

    P = 1 / sqrt(V + jitter)
    momentum <- (1 - a) momentum + h^2 P g + sqrt(2 a T h^2 P [- h^4]) xi
    position <- position + momentum

where V, ``mean_square_gradient``, is a running mean of g^2. While ``adapt`` is true, the following
updates precede (with old values on all right-hand sides, in the order of the released codes)::

    tau <- tau + 1 - tau M^2 / V
    M   <- M + (g - M) / (1 + tau)
    V   <- V + (g^2 - V) / (1 + tau)

from tau = M = V = 1. M is ``mean_gradient``. If the gradient is mostly signal (M^2 close to V)
the window 1 + tau shrinks to follow it; if it is all noise the window grows, by about a half per
step (an exponential average over a window w has M^2 of about V / (2 w)).

**Two departures from the printed equations.** They have 1 / tau for 1 / (1 + tau): from tau = 1 the
first step then sets M = g, V = g^2, so M^2 = V, tau stays 1, and V is always the last squared
gradient. The released codes, and this module, have 1 / (1 + tau), a window of at least two
gradients. As M and V are then averages with the same weights, M^2 <= V (Jensen) and tau >= 1
throughout up to rounding, which the ``maximum`` below corrects.

**The term - h^4** (``subtract_gradient_noise``) subtracts the variance h^4 P^2 V = h^4 of a
gradient whose second moment V is all minibatch noise. It is off by default: with full-batch
gradients it is wrong (the chain is too cold), and for h^2 > 2 a T P the variance is negative
(see :func:`largest_valid_step_size`), and ``update`` returns NaN. Nothing is clamped.

**Stationary distribution** after burn-in, at a fixed P: that of :mod:`gpflow_bae.mcmc.sghmc` in the
coordinates position / sqrt(P), hence density ** (1 / T) as h goes to 0, and on a Gaussian with
precision A the covariance T [A - h^2 A P A / (2 (2 - a))]^-1. During adaptation P depends on the
path and the stationary distribution is unknown: discard those draws. As P is about 1 / rms(g), h
has other units than in plain SGHMC. The noise coefficient is 2 a for the reason given there.

The equations above are ``integrator="euler"``, the default; with P in their place, ``"obabo"`` and
``"baoab"`` are those of :mod:`gpflow_bae.mcmc.integrators`, which states their step-size biases.

References:

- Springenberg, Klein, Falkner, Hutter (2016). Bayesian optimization with robust Bayesian neural
  networks. NeurIPS.
- Tran, Shahbaba, Mandt, Filippone (2023). Fully Bayesian autoencoders with latent sparse Gaussian
  processes. ICML.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting, Settings, Step, Target
from gpflow_bae.mcmc.algorithm import State as ChainState
from gpflow_bae.mcmc.building import build_sampler, kinetic_temperatures
from gpflow_bae.mcmc.integrators import check_integrator, splitting_step
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import leaf_temperatures, map_leaves, when
from gpflow_bae.mcmc.types import Position, Scalar, Seed, cast_scalar, validate

__all__ = ["State", "build", "init", "largest_valid_step_size", "update"]


class State(NamedTuple):
    """Position, momentum and the statistics of the gradient, five structures of the same kind."""

    position: Position
    momentum: Position
    tau: Position
    mean_gradient: Position
    mean_square_gradient: Position


def init(position: Position) -> State:
    """Return the initial state at ``position``: zero momentum, statistics of 1 (so P is 1)."""
    position = tf.nest.map_structure(tf.convert_to_tensor, position)
    ones = tf.nest.map_structure(tf.ones_like, position)
    return State(position, tf.nest.map_structure(tf.zeros_like, position), ones, ones, ones)


def update(
    state: State,
    gradient: Position,
    seed: Seed,
    *,
    step_size: Scalar,
    momentum_decay: Scalar,
    temperature: Scalar | Position = 1.0,
    adapt: bool | TensorType,
    noise: str = "gaussian",
    subtract_gradient_noise: bool = False,
    jitter: Scalar = 1e-6,
    integrator: str = "euler",
) -> State:
    """Take one step; gradient, seed and noise are as described in :mod:`gpflow_bae.mcmc.types`.

    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param temperature: T >= 0, or a structure like the position with one for each leaf: a leaf at 0
        is optimised, by descent with momentum, while the others are sampled.
    :param adapt: whether to update the statistics first; true during burn-in. A scalar boolean
        tensor is a branch of the graph, and not retraced when it becomes false.
    :param subtract_gradient_noise: include eq. 17's - h^4; ``integrator="euler"`` only.
    :param jitter: added to V in P.
    :param integrator: ``"euler"``, ``"obabo"`` or ``"baoab"``.
    :raises ValueError: if a setting given as a Python number is out of its range, or
        ``integrator`` is unknown or does not go with ``subtract_gradient_noise``.
    """
    validate(step_size=step_size, momentum_decay=momentum_decay, jitter=jitter)
    temperatures = leaf_temperatures(temperature, state.position)
    check_integrator(integrator, subtract_gradient_noise)
    statistics = (state.tau, state.mean_gradient, state.mean_square_gradient)
    tau, mean_gradient, mean_square_gradient = when(
        adapt, lambda: _adapt(*statistics, gradient), statistics
    )
    xi = noise_like(state.position, seed, noise)

    def step(
        q: tf.Tensor, r: tf.Tensor, g: tf.Tensor, v: tf.Tensor, xi: tf.Tensor, t: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        h, a, t, small = (cast_scalar(s, r.dtype) for s in (step_size, momentum_decay, t, jitter))
        if subtract_gradient_noise:
            p = tf.math.rsqrt(v + small)
            r = (1 - a) * r + h**2 * p * g + h * tf.sqrt(2 * a * t * p - h**2) * xi
            return q + r, r
        root = h * tf.math.rsqrt(tf.sqrt(v + small))  # h sqrt(P)
        if integrator == "euler":
            r = (1 - a) * r + root * (root * g + tf.sqrt(2 * a * t) * xi)
            return q + r, r
        return splitting_step(
            integrator, q, r, root**2 * g, xi, momentum_decay=a, noise_scale=root * tf.sqrt(t)
        )

    position, momentum = map_leaves(
        step, state.position, state.momentum, gradient, mean_square_gradient, xi, temperatures
    )
    return State(position, momentum, tau, mean_gradient, mean_square_gradient)


def _adapt(
    tau: Position, mean_gradient: Position, mean_square_gradient: Position, gradient: Position
) -> tuple[Position, ...]:
    """Return the statistics updated by one gradient."""

    def one_leaf(
        tau: tf.Tensor, m: tf.Tensor, v: tf.Tensor, g: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        rate = 1 / (1 + tau)
        # For a scalar whose gradient is always 0, V = 0 and M^2 / V = 0 / 0 is treated as 0.
        next_tau = tf.maximum(tau + 1 - tau * tf.math.divide_no_nan(m**2, v), 1)
        return next_tau, m + rate * (g - m), v + rate * (g**2 - v)

    return map_leaves(one_leaf, tau, mean_gradient, mean_square_gradient, gradient)


def largest_valid_step_size(
    state: State,
    *,
    momentum_decay: Scalar,
    temperature: Scalar | Position = 1.0,
    jitter: Scalar = 1e-6,
) -> tf.Tensor:
    """Return the largest h with 2 a T h^2 P - h^4 >= 0 for every scalar: sqrt(2 a min T P).

    It is a float64 scalar for the current P, which changes until adaptation ends. It limits
    ``subtract_gradient_noise=True`` only.
    """
    validate(momentum_decay=momentum_decay)
    temperatures = leaf_temperatures(temperature, state.position)
    a, small = (cast_scalar(s, tf.float64) for s in (momentum_decay, jitter))

    def square(v: tf.Tensor, t: Scalar) -> tf.Tensor:
        largest = tf.cast(tf.reduce_max(v), tf.float64)
        return 2 * a * cast_scalar(t, tf.float64) * tf.math.rsqrt(largest + small)

    squares = tf.nest.map_structure(square, state.mean_square_gradient, temperatures)
    return tf.sqrt(tf.reduce_min(tf.stack(tf.nest.flatten(squares))))


@check_arguments()
def build(
    step_size: Setting = 0.005,
    momentum_decay: Setting = 0.05,
    temperature: Setting = 1.0,
    noise: str = "gaussian",
    subtract_gradient_noise: bool = False,
    jitter: Setting = 1e-6,
    integrator: str = "euler",
) -> SamplingAlgorithm:
    """Return the sampler with settings of :func:`update`, or schedules of the step number.

    With ``subtract_gradient_noise`` its state has a ``largest_step_size``, the minimum of
    :func:`largest_valid_step_size` so far, and ``diagnose`` compares the step size with it,
    unless that is a schedule.
    """
    sampler = build_sampler(
        "adaptive_sghmc",
        State,
        init,
        update,
        locals(),
        temperatures=_temperatures,
        adapted=("tau", "mean_gradient", "mean_square_gradient"),
    )
    if not subtract_gradient_noise:
        return sampler
    settings = Settings(momentum_decay=momentum_decay, temperature=temperature, jitter=jitter)

    def first(position: Position, target: Target) -> ChainState:
        state = sampler.init(position, target)
        state.shared["largest_step_size"] = tf.constant(np.inf, tf.float64)
        return state

    def step(state: ChainState, target: Target, seed: Seed, at: Step) -> ChainState:
        state = sampler.step(state, target, seed, at)
        # The preconditioner is that of this step, also if the position became NaN.
        inner = State(state.position, **state.elements)
        largest = largest_valid_step_size(inner, **settings.at(state, at))
        before = state.shared["largest_step_size"]
        # It is NaN once the chain has diverged.
        smallest = tf.where(tf.math.is_nan(largest), before, tf.minimum(before, largest))
        return state._replace(shared={**state.shared, "largest_step_size": smallest})

    def diagnose(state: ChainState) -> str | None:
        shared = state.shared
        h, largest = shared.get("step_size"), shared["largest_step_size"]
        if h is None or h <= largest:
            return None
        values = {
            k: np.unique([np.float64(v) for v in tf.nest.flatten(shared[k])])
            for k in ("momentum_decay", "temperature")
            if k in shared
        }
        words = [f"{k} {' and '.join(f'{v:.6g}' for v in values[k])}" for k in values]
        return (
            f"step_size {float(h):.6g} makes the noise variance of eq. 17 (Tran "
            "et al. 2023), 2 a T h^2 P - h^4, negative: the largest valid step_size is "
            f"{float(largest):.6g} at {', '.join(words)} and the present "
            "preconditioner. Take a smaller step_size or a larger momentum_decay, or set "
            "subtract_gradient_noise=False, whose variance is never negative."
        )

    return sampler._replace(init=first, step=step, diagnose=diagnose)


def _temperatures(state: ChainState) -> Position | None:
    """Return kinetic temperatures; None if the step size or the jitter has a schedule."""
    if not {"step_size", "jitter"} <= state.shared.keys():
        return None
    jitter = state.shared["jitter"]

    def scaled(r: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        return r * tf.sqrt(tf.sqrt(v + tf.cast(jitter, v.dtype)))  # over sqrt(P)

    velocities = tf.nest.map_structure(
        scaled, state.elements["momentum"], state.elements["mean_square_gradient"]
    )
    return kinetic_temperatures(velocities, state.shared["step_size"])
