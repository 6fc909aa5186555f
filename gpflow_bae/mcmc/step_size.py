r"""A step size from the largest curvature that a chain meets.

A step of size h is stable along a direction of curvature A (an eigenvalue of the Hessian of minus
the log density) while h^2 A is below a limit: 4 for the splitting schemes
(:mod:`gpflow_bae.mcmc.integrators`). A chain breaks where the stiffest direction passes it, however
few its directions of that kind are, and no other number says how near it is.

:func:`from_curvature` follows that direction by power iteration, w <- H v and v <- w over
its length, with the products H v from two gradients::

    H v = (g(q - e v) - g(q + e v)) / (2 e),    e = A^-1/2

e being one standard deviation of the density along v, and sets::

    h = 2 fraction / A^1/2

while a chain adapts; then h is fixed, and the chain is that of the sampler with this h. A is what
the iteration found last where that was more, and else decays towards it over a hundred
estimates: stiff places count for longer than the others, since they decide.

That is too careful where a chain meets walls that are stiffer than all else by orders of magnitude,
such as a standard deviation that a network predicts and that tends to 0: h becomes that of the
wall, and the chain hardly moves. Such a target wants other coordinates, or a move of its own for
what is stiff.

Momenta are rescaled with h, so that velocities stay what they are, and so does the friction: the
momentum that is left after a unit of time, (1 - a)^(1 / h).

The cost is two gradients for every ``every`` steps of burn-in, and a structure like the position.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gpflow_bae.core.arguments import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target, check_sampler
from gpflow_bae.mcmc.noise import noise_like
from gpflow_bae.mcmc.structures import when
from gpflow_bae.mcmc.types import Position, Seed, cast_scalar

__all__ = ["from_curvature", "with_step_size"]

_FIRST_ITERATIONS = 30  # of the first estimate
_MEMORY = 100.0  # estimates over which a larger curvature of the past is forgotten
_SEED = (0x57, 0xE9)  # of the first direction
_LIMIT = 2.0  # h A^1/2 at which splitting schemes cease to be stable


@check_arguments()
def from_curvature(
    sampler: SamplingAlgorithm, fraction: float = 0.5, every: int = 10
) -> SamplingAlgorithm:
    """A sampler that chooses its step size during burn-in, by the curvature it meets.

    >>> from gpflow_bae.mcmc import sghmc
    >>> sampler = from_curvature(sghmc.build(0.01, 0.02, integrator="baoab"))
    >>> sampler.settings["step_size"], sampler.settings["step_size_search"]
    (0.01, 'curvature, fraction 0.5')

    The step size that ``sampler`` was built with is where the search begins, and the scale of its
    friction: a ``momentum_decay`` of twice the step size is the critical damping of directions of
    unit curvature, those that only a prior of unit scale informs. ``sampler.info`` gains
    ``step_size``. Without burn-in nothing is adapted, and the step size is the one given.

    :param sampler: with momenta and a step size that is a number, such as
        :func:`gpflow_bae.mcmc.sghmc.build` makes; best of the integrators are the splitting ones.
    :param fraction: of the largest stable step size, in (0, 1).
    :param every: steps between two estimates of the curvature; the larger, the cheaper.
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
            return sampler.step(state, target, seed, at)  # which says what it misses

        estimates = state.shared["estimates"]
        is_first = tf.equal(estimates, 0)

        def adapted() -> State:
            direction, found = _largest_curvature(
                lambda position: gradient(position, seed),
                state,
                tf.where(is_first, _FIRST_ITERATIONS, 1),
            )
            before = state.shared["curvature"]
            forgotten = before * (found / before) ** (1.0 / _MEMORY)
            curvature = tf.where(is_first | (found > before), found, forgotten)
            changed = with_step_size(state, _LIMIT * fraction / tf.sqrt(curvature))
            return changed._replace(
                elements={**changed.elements, "direction": direction},
                shared={**changed.shared, "curvature": curvature, "estimates": estimates + 1},
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
    """Another h at the same velocities, and at the same friction per unit of time."""
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
    """The direction after some power iterations, and the length of H v of the last of them.

    Where gradients are not finite the direction stays, and the curvature is taken for 4 times as
    large: half the step.
    """
    position = state.position
    first, _ = _normalised(state.elements["direction"])  # of some items only, in a minibatch

    def at(direction: Position, distance: tf.Tensor) -> Position:
        return gradient(
            tf.nest.map_structure(
                lambda q, v: q + cast_scalar(distance, v.dtype) * v, position, direction
            )
        )

    def body(i: tf.Tensor, direction: Position, curvature: tf.Tensor) -> tuple[Any, ...]:
        e = 1.0 / tf.sqrt(curvature)
        down, up = at(direction, -e), at(direction, e)
        product = tf.nest.map_structure(
            lambda a, b: (a - b) / cast_scalar(2.0 * e, a.dtype), down, up
        )
        following, norm = _normalised(product)
        good = tf.math.is_finite(norm) & (norm > 0.0)
        direction = tf.nest.map_structure(
            lambda new, old: tf.where(good, new, old), following, direction
        )
        return i + 1, direction, tf.where(good, norm, 4.0 * curvature)

    _, direction, curvature = tf.while_loop(
        lambda i, *_: i < iterations,
        body,
        (tf.constant(0), first, state.shared["curvature"]),
        parallel_iterations=1,
    )
    return direction, curvature


def _normalised(structure: Position) -> tuple[Position, tf.Tensor]:
    """A structure over its norm, and that, float64."""
    leaves = tf.nest.flatten(structure)
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.cast(v, tf.float64) ** 2) for v in leaves]))
    return tf.nest.map_structure(lambda v: v / tf.cast(norm, v.dtype), structure), norm
