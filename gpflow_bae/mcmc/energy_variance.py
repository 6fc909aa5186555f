r"""Step-size adaptation of microcanonical Langevin by the variance of its energy error.

With velocities of fixed length (:mod:`gpflow_bae.mcmc.mclmc`) the energy, minus the log density
plus the work of the turns, is constant along exact dynamics, and its error in a step measures the
discretisation error. Its variance per dimension determines the bias of positions, independently of
the dimension and the target (Robnik and Seljak 2024, section 4): 5e-4 for expectations of smooth
targets; 0.02 for networks, of which a linear one then has posterior variances at most a quarter too
large; and 0.5 to explore in burn-in (Sommer et al. 2025), which makes them more than 1.4 times as
large.

The error of a step between positions q and q', with half a turn at either end::

    dE = log p(q) - log p(q') + (d - 1) [log(cosh s' + c' sinh s') - log(cosh s - c sinh s)],
    s = h d^1/2 |g| / (2 (d - 1)),    c = u^T g / |g|

is of third order in h. So the mean of log(dE^2 / (d h^6)) over the steps of burn-in, with more
weight on the last few hundred, determines the h at which dE has the desired variance if it is
Gaussian. It is a mean of logarithms, because at walls, where the chain turns back, errors are
larger by orders of magnitude, and a few such steps should not determine h. (They do in
:mod:`gpflow_bae.mcmc.step_size`, which uses the largest curvature.)

**Minibatches**, a target with a gradient alone: both ends of a step are seen by the rows of the
step's seed. The difference of their log densities is that of Simpson's rule along the step, whose
error is of fifth order in h, from three gradients. The error of a step then has a mean, which grows
with d; in few dimensions its variance says little of the bias, which is the one of noise
(:mod:`gpflow_bae.mcmc.mclmc`). So s is kept below 0.6 as well.

References: as in :mod:`gpflow_bae.mcmc.mclmc`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gpflow_bae.core.annotations import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target, check_sampler
from gpflow_bae.mcmc.step_size import with_step_size
from gpflow_bae.mcmc.structures import leaf_temperatures, when
from gpflow_bae.mcmc.types import Position, Seed

__all__ = ["energy_error", "from_energy_variance"]

_MEMORY = 100.0  # number of estimates in the running mean
_MAX_CHANGE = 1.5  # largest factor by which one estimate changes the step size
_LARGEST_TURN = 0.6  # s of half a turn by noisy gradients: variances are 12 % too large
_GAUSSIAN_LOG_OFFSET = (
    1.2703628  # log E[x^2] - E[log x^2] of a Gaussian x: log 2 plus Euler's constant
)


@check_arguments()
def from_energy_variance(
    sampler: SamplingAlgorithm,
    desired: float = 5e-4,
    every: int = 5,
    isotropic_noise: bool = False,
    exploring: float | None = None,
) -> SamplingAlgorithm:
    """Return ``mclmc`` with the step size adapted to this variance of the energy error.

    >>> from gpflow_bae.mcmc import mclmc
    >>> sampler = from_energy_variance(mclmc.build(0.01, 0.05))
    >>> sampler.settings["step_size"], sampler.settings["step_size_search"]
    (0.01, 'energy variance, desired 0.0005')

    It is adapted during burn-in and fixed after it. The step size of ``sampler`` is the initial
    value; the distance over which the direction decorrelates does not change with the step size.
    ``sampler.info`` gains ``step_size`` and ``energy_variance``, its expected variance.

    :param sampler: returned by :func:`gpflow_bae.mcmc.mclmc.build`, with a numeric step size.
    :param desired: variance of the energy error of a step, divided by the dimension.
    :param every: number of steps between two estimates, each of two gradients and two densities, or
        of three gradients of a minibatch.
    :param isotropic_noise: whether gradients are of minibatches, in coordinates in which their
        noise is isotropic. In others it would bias the chain.
    :param exploring: variance of the energy error during burn-in, if it is not the desired one:
        larger steps leave a start sooner. After it the step size is the sixth root of their ratio
        times as large.
    :raises ValueError: if an argument is out of its range, for another sampler, or, at run time,
        without the density of all data if there is no isotropic noise.
    """
    check_sampler(sampler)
    if not desired > 0.0:
        raise ValueError(f"desired variance of the energy error must be positive, got {desired}.")
    if exploring is not None and not exploring >= desired:
        raise ValueError(
            f"exploring must be at least the desired variance of {desired:g}, got {exploring}."
        )
    if every < 1:
        raise ValueError(f"every, in steps, must be at least 1, got {every}.")
    if sampler.name != "mclmc":
        raise ValueError(
            f"from_energy_variance is for mclmc, whose energy is known; {sampler.name} takes "
            "gpflow_bae.mcmc.step_size.from_curvature."
        )

    if not isinstance(sampler.settings.get("step_size"), float):
        raise ValueError(
            "from_energy_variance needs a number as the step_size of mclmc, where its search "
            f"begins, got {sampler.settings.get('step_size')!r}."
        )
    if "step_size_search" in sampler.settings:
        raise ValueError(
            "from_energy_variance takes mclmc as build() makes it; this one's step_size is found "
            f"already (by {sampler.settings['step_size_search']})."
        )
    if sampler.settings.get("temperature", 1.0) != 1.0:
        raise ValueError(
            "from_energy_variance knows the energy at temperature 1 alone, got a sampler with "
            f"temperature {sampler.settings['temperature']!r}: give it a step_size of its own."
        )

    def init(position: Position, target: Target) -> State:
        state = sampler.init(position, target)
        zero = tf.constant(0.0, tf.float64)
        more = {"error": zero, "estimates": zero}
        if exploring is not None:
            more["explores"] = tf.constant(1.0, tf.float64)
        return state._replace(shared={**state.shared, **more})

    def with_size_of_phase(state: State, adapt: Any) -> State:
        """Reduce the step size in the first step after burn-in."""
        assert exploring is not None
        ratio = (desired / exploring) ** (1.0 / 6.0)
        explores = state.shared["explores"] * tf.cast(adapt, tf.float64)
        factor = 1.0 - (1.0 - ratio) * (state.shared["explores"] - explores)
        changed = with_step_size(state, factor * state.shared["step_size"])
        return changed._replace(shared={**changed.shared, "explores": explores})

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        if target.evaluate is None and not isotropic_noise:
            raise ValueError(
                "from_energy_variance needs the log density of all data, as the noise of "
                "minibatches biases mclmc: take full batches. isotropic_noise=True is for "
                "coordinates in which their noise is isotropic."
            )
        if exploring is not None:
            state = with_size_of_phase(state, at.adapt)
        after = sampler.step(state, target, seed, at)

        def adapted() -> State:
            return _adapted(state, after, target, seed, exploring or desired)

        due = tf.equal(tf.math.floormod(at.number, every), 0) & at.adapt
        return when(due, adapted, after)

    def info(state: State) -> dict[str, tf.Tensor]:
        h = state.shared["step_size"]
        return {
            **sampler.info(state),
            "step_size": h,
            "energy_variance": tf.exp(state.shared["error"]) * h**6,
        }

    of_burnin = "" if exploring is None else f", {exploring:g} in burn-in"
    search = {"step_size_search": f"energy variance, desired {desired:g}{of_burnin}"}
    return sampler._replace(
        init=init, step=step, info=info, settings={**sampler.settings, **search}
    )


def _adapted(before: State, after: State, target: Target, seed: Seed, desired: float) -> State:
    """Return ``after`` with an adapted step size; ``before`` if the error is not finite."""
    h = before.shared["step_size"]
    error, d, turn = _error_and_turn(before, after, target, seed)
    good = tf.math.is_finite(error)
    seen = before.shared["estimates"]
    share = 1.0 / tf.minimum(seen + 1.0, _MEMORY)
    one = tf.math.log(tf.square(error) / (d * h**6) + 1e-300) + _GAUSSIAN_LOG_OFFSET
    found = (1.0 - share) * before.shared["error"] + share * one
    found = tf.where(good, found, before.shared["error"])
    wanted = tf.exp((tf.math.log(tf.constant(desired, tf.float64)) - found) / 6.0)
    if target.evaluate is None:
        wanted = tf.minimum(wanted, h * _LARGEST_TURN / tf.maximum(turn, 1e-300))
    wanted = tf.where(
        good, tf.clip_by_value(wanted, h / _MAX_CHANGE, h * _MAX_CHANGE), h / _MAX_CHANGE
    )
    kept = tf.nest.map_structure(lambda new, old: tf.where(good, new, old), after, before)
    changed = with_step_size(kept, wanted)
    return changed._replace(
        shared={**changed.shared, "error": found, "estimates": seen + tf.cast(good, seen.dtype)}
    )


def energy_error(
    before: State, after: State, target: Target, seed: Seed
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the energy error of a step of ``mclmc`` in nats, and its dimension d, both float64.

    :param before, after: states before and after the step.
    :param target: a target with ``gradient`` and, if it is of all data, ``evaluate``.
    :param seed: seed of the step, with which its gradients see the same rows.
    """
    error, d, _ = _error_and_turn(before, after, target, seed)
    return error, d


def _error_and_turn(
    before: State, after: State, target: Target, seed: Seed
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the energy error of a step, its dimension, and s of the half turn that ends it."""
    gradient, evaluate = target.gradient, target.evaluate
    assert gradient is not None
    temperatures = leaf_temperatures(after.shared.get("temperature", 1.0), after.position)
    moving = _flat(
        tf.nest.map_structure(
            lambda t, q: tf.fill(tf.shape(q), tf.cast(tf.cast(t, tf.float64) > 0.0, tf.float64)),
            temperatures,
            after.position,
        )
    )
    momentum = _flat(after.elements["momentum"])
    d = tf.reduce_sum(moving)
    length = tf.norm(momentum)  # h d^1/2

    def uphill(position: Position) -> tf.Tensor:
        return moving * _flat(gradient(position, seed))

    def turned(g: tf.Tensor, sign: float) -> tf.Tensor:
        """Return sign times the work of half a turn by g that ends (-1) or begins (1) a step."""
        size = tf.norm(g)
        s = length * size / (2.0 * (d - 1.0))
        c = sign * tf.reduce_sum(momentum * g) / tf.maximum(length * size, 1e-300)
        # log(cosh s + c sinh s) without the overflow for large s.
        return sign * (s + tf.math.log((1.0 + c) / 2.0 + (1.0 - c) / 2.0 * tf.exp(-2.0 * s)))

    first, last = uphill(before.position), uphill(after.position)
    work = (d - 1.0) * (turned(first, -1.0) + turned(last, 1.0))
    if evaluate is None:
        middle = tf.nest.map_structure(lambda a, b: (a + b) / 2, before.position, after.position)
        rise = tf.reduce_sum(momentum * (first + 4.0 * uphill(middle) + last)) / 6.0
    else:
        rise = _log_density(evaluate, after.position) - _log_density(evaluate, before.position)
    return work - rise, d, length * tf.norm(last) / (2.0 * (d - 1.0))


def _log_density(evaluate: Any, position: Position) -> tf.Tensor:
    found = evaluate(position)
    return tf.cast(found.tempered + found.untempered, tf.float64)


def _flat(structure: Any) -> tf.Tensor:
    leaves = [tf.reshape(tf.cast(v, tf.float64), [-1]) for v in tf.nest.flatten(structure)]
    return tf.concat(leaves, 0)
