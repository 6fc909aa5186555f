r"""Step-size adaptation by the largest curvature along a chain.

A step of size h is stable along a direction of curvature A (an eigenvalue of the Hessian of minus
the log density) while h^2 A is below a limit: 4 for the splitting schemes
(:mod:`gpflow_bae.mcmc.integrators`). A chain diverges if a single direction, the stiffest, exceeds
it.

:func:`from_curvature` tracks that direction by power iteration, ``w <- H v`` and
``v <- w / |w|``, with the products H v from two gradients::

    H v = (g(q - e v) - g(q + e v)) / (2 e),    e = A^-1/2

where e is one standard deviation of the density along v, and sets::

    h = 2 fraction / A^1/2

during adaptation; then h is fixed. A is the last estimate if that is larger than A. Otherwise log A
goes a part of the way to it: a hundredth, because the stiffest regions determine stability, or,
until an estimate first exceeds A, the (n + 5)-th in the n-th step, because a chain that starts at a
mode meets stiffer regions on its way.

This is too conservative for a target with walls that are stiffer than the rest by orders of
magnitude, such as a standard deviation that a network predicts and that tends to 0: h is set by the
wall, and the chain hardly moves. Such a target needs a preconditioner, or another update of the
stiff parameters.

Momenta are rescaled with h, so that velocities are unchanged, and so is the friction: the
fraction of momentum after a unit of time, (1 - a)^(1 / h).

The cost is two gradients for every ``every`` steps of burn-in, and a structure like the position.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target, check_sampler
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import when
from gpflow_bae.mcmc.types import Position, Seed, cast_scalar

__all__ = ["from_curvature", "with_step_size"]

_FIRST_ITERATIONS = 30  # power iterations of the first estimate
# The n-th estimate takes a larger curvature 1 / (n + 5) of the way down, at least 1 / 100; n is
# counted from 0 to the first estimate that exceeds the curvature, which sets it to the last.
_CAUTION, _MEMORY = 5, 100
_SEED = (0x57, 0xE9)  # seed of the initial direction
_LIMIT = 2.0  # stability limit of h A^1/2 of the splitting schemes


@check_arguments()
def from_curvature(
    sampler: SamplingAlgorithm, fraction: float = 0.5, every: int = 10
) -> SamplingAlgorithm:
    """Return a sampler that adapts its step size to the curvature during burn-in.

    >>> from gpflow_bae.mcmc import sghmc
    >>> sampler = from_curvature(sghmc.build(0.01, 0.02, integrator="baoab"))
    >>> sampler.settings["step_size"], sampler.settings["step_size_search"]
    (0.01, 'curvature, fraction 0.5')

    The step size of ``sampler`` is where the search begins, to grow within some hundred steps or
    shrink at once, and the scale of its friction: a ``momentum_decay`` of twice the step size is
    the critical damping of directions of unit curvature, which only a prior of unit scale informs.
    ``sampler.info`` gains ``step_size``.
    Without burn-in the step size is not adapted.

    :param sampler: a sampler with momenta and a numeric step size, such as
        :func:`gpflow_bae.mcmc.sghmc.build`, preferably with a splitting integrator.
    :param fraction: fraction of the largest stable step size, in (0, 1).
    :param every: number of steps between two estimates of the curvature.
    :raises ValueError: if an argument is out of its range, or the sampler has no momenta of unit
        mass, or a schedule for its step size.
    """
    check_sampler(sampler)
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"fraction of the largest stable step size must be in (0, 1): {fraction}.")
    if every < 1:
        raise ValueError(f"every, in steps, must be at least 1, got {every}.")

    def init(position: Position, target: Target) -> State:
        state = sampler.init(position, target)
        if set(state.elements) != {"momentum"} or "step_size" not in state.shared:
            raise ValueError(
                f"{sampler.name} has a step size that curvature cannot set: that takes a sampler "
                "with momenta, no preconditioner, and a number as its step_size, such as "
                "gpflow_bae.mcmc.sghmc.build()."
            )
        direction = _normalised(noise_like(state.position, _SEED))[0]
        h = state.shared["step_size"]
        return state._replace(
            elements={**state.elements, "direction": direction},
            shared={
                **state.shared,
                "curvature": tf.square(_LIMIT * fraction / h),
                "estimates": tf.constant(0),
            },
        )

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        gradient = target.gradient
        if gradient is None:
            return sampler.step(state, target, seed, at)  # raises the error

        estimates = state.shared["estimates"]
        is_first = tf.equal(estimates, 0)

        def adapted() -> State:
            direction, found = _largest_curvature(
                lambda position: gradient(position, seed),
                state,
                tf.where(is_first, _FIRST_ITERATIONS, 1),
            )
            before = state.shared["curvature"]
            share = 1.0 / tf.cast(tf.minimum(estimates + _CAUTION, _MEMORY), found.dtype)
            forgotten = before * (found / before) ** share
            exceeds = found > before
            curvature = tf.where(exceeds, found, forgotten)
            number = tf.where(exceeds, _MEMORY - _CAUTION, estimates)
            changed = with_step_size(state, _LIMIT * fraction / tf.sqrt(curvature))
            return changed._replace(
                elements={**changed.elements, "direction": direction},
                shared={**changed.shared, "curvature": curvature, "estimates": number + 1},
            )

        due = (is_first | tf.equal(tf.math.floormod(at.number, every), 0)) & at.adapt
        state = when(due, adapted, state)
        inner = state._replace(elements={"momentum": state.elements["momentum"]})
        inner = sampler.step(inner, target, seed, at)
        elements = {**inner.elements, "direction": state.elements["direction"]}
        return inner._replace(elements=elements)

    def info(state: State) -> dict[str, tf.Tensor]:
        return {**sampler.info(state), "step_size": state.shared["step_size"]}

    search = {"step_size_search": f"curvature, fraction {fraction:g}"}
    return sampler._replace(
        init=init, step=step, info=info, settings={**sampler.settings, **search}
    )


def with_step_size(state: State, step_size: tf.Tensor) -> State:
    """Change h at the same velocities, and at the same friction per unit of time."""
    ratio = step_size / state.shared["step_size"]
    momentum = tf.nest.map_structure(
        lambda r: r * cast_scalar(ratio, r.dtype), state.elements["momentum"]
    )
    shared: dict[str, Any] = {**state.shared, "step_size": step_size}
    if "momentum_decay" in shared:
        shared["momentum_decay"] = 1.0 - (1.0 - shared["momentum_decay"]) ** ratio
    return state._replace(elements={**state.elements, "momentum": momentum}, shared=shared)


def _largest_curvature(
    gradient: Any, state: State, iterations: tf.Tensor
) -> tuple[Position, tf.Tensor]:
    """Return the direction after some power iterations, and the last |H v|.

    If gradients are not finite the direction is unchanged, and the curvature is multiplied by 4,
    which halves the step.
    """
    position = state.position
    # In a minibatch the direction is that of some items only, and not normalised.
    first, _ = _normalised(state.elements["direction"])

    def body(
        i: tf.Tensor, direction: Position, curvature: tf.Tensor, down: Position
    ) -> tuple[Any, ...]:
        """Compute one gradient, so that it is traced once: first below, then above."""
        e = 1.0 / tf.sqrt(curvature)
        is_up = tf.equal(i % 2, 1)
        distance = tf.where(is_up, e, -e)
        found = gradient(
            tf.nest.map_structure(
                lambda q, v: q + cast_scalar(distance, v.dtype) * v, position, direction
            )
        )
        product = tf.nest.map_structure(
            lambda a, b: (a - b) / cast_scalar(2.0 * e, a.dtype), down, found
        )
        following, norm = _normalised(product)
        good = is_up & tf.math.is_finite(norm) & (norm > 0.0)
        direction = tf.nest.map_structure(
            lambda new, old: tf.where(good, new, old), following, direction
        )
        worse = tf.where(is_up, 4.0 * curvature, curvature)
        return i + 1, direction, tf.where(good, norm, worse), found

    _, direction, curvature, _ = tf.while_loop(
        lambda i, *_: i < 2 * iterations,
        body,
        (tf.constant(0), first, state.shared["curvature"], first),
        parallel_iterations=1,
    )
    return direction, curvature


def _normalised(structure: Position) -> tuple[Position, tf.Tensor]:
    """Return a structure divided by its norm, and the norm, float64."""
    leaves = tf.nest.flatten(structure)
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.cast(v, tf.float64) ** 2) for v in leaves]))
    return tf.nest.map_structure(lambda v: v / tf.cast(norm, v.dtype), structure), norm
