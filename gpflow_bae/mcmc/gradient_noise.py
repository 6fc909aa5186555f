r"""Minibatch noise that is estimated, and injected so much the less.

The noise of a minibatch gradient, of variance v for an element, reaches the momentum beside the
noise that the sampler injects, and heats. Where v is known the sampler can inject the remainder
alone (Chen, Fox and Guestrin 2014, eq. 13-15, whose estimate of what a step of theirs gets is
B-hat and which inject 2 (C - B-hat); Ahn, Korattikara and Welling 2012 do so for Langevin
dynamics). In the notation of :mod:`gpflow_bae.mcmc.sghmc` each element gets noise at::

    T' = max(T - h^2 v s, 0),    s = 1 / (2 a)          euler
                                 s = (2 - a) / (4 a)    obabo, baoab

so that *positions* are at T. Where h^2 v s > T it does not fit: nothing is injected and the element
stays at h^2 v s instead of T + h^2 v s, which its kinetic temperature says.

**Why these.** A gradient's noise n has variance h^4 v in the kick, injected noise e the variance
2 a T' h^2 (``euler``) or (1 - c^2) T' h^2 with c = 1 - a. In a step that begins with the momentum
r and ends at (q', r')

- ``euler`` adds n + e to r' and to q' alike;
- ``obabo`` adds (1 + c) / 2 n + e to r' and to q' alike: two half kicks, with O between them, of
  one gradient;
- ``baoab`` adds c n + e to r', but (1 + c) / 2 n + e / 2 to q'.

So for the first two the sum of the variances is that of a step without gradient noise, and every
second moment is too, at any stable h: the step-size bias is what it was. For ``baoab`` no e undoes
n in q and r at once. On a Gaussian of precision A its stationary variances are, exactly::

    A Var(q)   = T' + h^2 v (2 - a) / (a (4 - h^2 A))
    Var(r)/h^2 = T' + h^2 v 4 (1 - a)^2 / (a (2 - a) (4 - h^2 A))

Positions of small h^2 A, and with them the diffusion of a free particle (A = 0), are at T; stiff
ones are left with h^2 v s h^2 A / (4 - h^2 A), of second order in h like all that the scheme leaves
elsewhere. The momentum of a free particle is then too *cold*, by h^2 v (4 - 3 a) / (4 (2 - a)):
:attr:`~gpflow_bae.mcmc.SamplingAlgorithm.temperatures` adds that, so that what it says compares
with T and is the temperature of positions. (Without the subtraction the same holds: gradient noise
heats BAOAB's positions by (2 - a)^2 / (2 - 2 a)^2 as much as its momenta, 1.5 times at a = 0.3.)

**The estimate.** A target gives, beside a gradient, a draw that has the variance of its error
(:attr:`~gpflow_bae.mcmc.Target.gradient_and_error`), from the halves of the same minibatch
(:func:`~gpflow_bae.mcmc.gradient_estimators.of_halves`): both are at one position. (Differences of
consecutive gradients are not errors: along stiff directions the position itself moved.) Its square
is a chi-squared variable with one degree of freedom; v is a running mean of it, whose weights sum
to 1 from the first step on.

**What it cannot see.** v is elementwise, and the errors of different elements go together: their
covariance V has its diagonal taken out, and what is left off the diagonal heats some directions and
cools others by as much, so that the kinetic temperature of a block, a mean over its elements, is T
although its directions are not. Errors of minibatches have the Fisher information as their
covariance, where the model is right; so take coordinates in which that is about a multiple of the
identity (``coordinates="fisher"``), as Ahn et al. precondition. And noise has to be independent
from step to step: a minibatch for each. A kinetic temperature of T is then what this enforces, as
a thermostat does, and no evidence of its own that positions are right.

This is not ``subtract_gradient_noise`` of :mod:`~gpflow_bae.mcmc.adaptive_sghmc`, which takes off
the second moment of the whole gradient, signal included, as published, and estimates nothing.

References:

- Ahn, Korattikara, Welling (2012). Bayesian posterior sampling via stochastic gradient Fisher
  scoring. ICML.
- Chen, Fox, Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gpflow_bae.arguments import check_arguments
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, State, Step, Target, check_sampler
from gpflow_bae.mcmc.types import Position, Seed, cast_scalar, is_number

__all__ = ["noise_variance", "with_estimated_noise_subtracted"]

# The running mean of squared errors, and the sum of its weights.
_SQUARES, _WEIGHT = "squared_error", "squared_error_weight"
_NUMBERS = ("step_size", "momentum_decay", "temperature")


@check_arguments()
def with_estimated_noise_subtracted(
    sampler: SamplingAlgorithm, decay: float = 0.99
) -> SamplingAlgorithm:
    """SGHMC that injects less noise by what the gradient brings, element by element.

    >>> from gpflow_bae.mcmc import sghmc
    >>> sampler = with_estimated_noise_subtracted(sghmc.build(0.1, 0.3, integrator="baoab"))
    >>> sampler.needs, sampler.settings["estimated_noise_decay"]
    ('gradient_and_error', 0.99)

    It goes with any temperature; leaves at 0 are optimised as ever, without noise to take from.

    :param sampler: made by :func:`gpflow_bae.mcmc.sghmc.build`, any integrator, with numbers as
        its settings.
    :param decay: weight of the past in the running mean of the noise variance, in [0, 1): 0.99 is
        a mean over the last 100 steps, known to 10 %, by which T' varies where it is near 0.
    :raises ValueError: for another sampler, a schedule or a search for a step size among its
        settings, or a ``decay`` out of range.
    """
    check_sampler(sampler)
    if not (is_number(decay) and 0.0 <= decay < 1.0):
        raise ValueError(
            "decay, the weight of the past in the running mean of the gradient's noise variance, "
            f"must be in [0, 1), got {decay!r}. Use 0.99 for a window of 100 steps."
        )
    settings = sampler.settings
    if sampler.name != "sghmc" or "estimated_noise_decay" in settings:
        what = "twice" if sampler.name == "sghmc" else f"for {sampler.name}"
        raise ValueError(
            f"with_estimated_noise_subtracted is not {what}: it knows what gradient noise does in "
            "a step of gpflow_bae.mcmc.sghmc.build(), and takes it off once."
        )
    varying = [name for name in _NUMBERS if isinstance(settings.get(name), str)]
    if varying:
        raise ValueError(
            "with_estimated_noise_subtracted needs numbers as the settings of sghmc, got "
            f"{varying[0]} {settings[varying[0]]!r}: build it with a number there."
        )
    integrator = settings["integrator"]

    def init(position: Position, target: Target) -> State:
        state = sampler.init(position, target)
        nothing = tf.nest.map_structure(tf.zeros_like, state.position)
        return state._replace(
            elements={**state.elements, _SQUARES: nothing},
            shared={**state.shared, _WEIGHT: tf.constant(0.0, tf.float64)},
        )

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        if target.gradient_and_error is None:
            raise TypeError(
                "with_estimated_noise_subtracted needs gradients with a draw of their error, and "
                "this target has none (target.gradient_and_error is None): a minibatch has one, of "
                "an even number of items; with all data take the sampler without it."
            )
        gradient, error = target.gradient_and_error(state.position, seed)
        squares = tf.nest.map_structure(
            lambda mean, e: decay * mean + (1.0 - decay) * e**2, state.elements[_SQUARES], error
        )
        weight = decay * state.shared[_WEIGHT] + (1.0 - decay)
        elements = {k: v for k, v in state.elements.items() if k != _SQUARES}
        extra = {"temperature": state.shared["temperature"], _WEIGHT: weight}
        state = state._replace(
            elements={**elements, _SQUARES: squares}, shared={**state.shared, **extra}
        )
        lowered = state._replace(
            elements=elements, shared={**state.shared, "temperature": _lowered(state, integrator)}
        )
        moved = sampler.step(lowered, Target(lambda position, seed: gradient), seed, at)
        return moved._replace(
            elements={**moved.elements, _SQUARES: squares}, shared={**moved.shared, **extra}
        )

    def temperatures(state: State) -> Position | None:
        found = sampler.temperatures(state)
        if integrator != "baoab":
            return found
        h, a = state.shared["step_size"], state.shared["momentum_decay"]
        colder = h**2 * (4.0 - 3.0 * a) / (4.0 * (2.0 - a))
        return tf.nest.map_structure(
            lambda t, v: t + colder * tf.cast(tf.reduce_mean(v), t.dtype),
            found,
            noise_variance(state),
        )

    return sampler._replace(
        init=init,
        step=step,
        temperatures=temperatures,
        needs="gradient_and_error",
        settings={**settings, "estimated_noise_decay": float(decay)},
    )


def noise_variance(state: State) -> Position:
    """The estimate of v in a state: a structure like the position; 0 before the first step.

    :param state: of a sampler that :func:`with_estimated_noise_subtracted` made.
    """
    weight = state.shared[_WEIGHT]
    return tf.nest.map_structure(
        lambda mean: tf.math.divide_no_nan(mean, cast_scalar(weight, mean.dtype)),
        state.elements[_SQUARES],
    )


def _lowered(state: State, integrator: str) -> Position:
    """T' of each element."""
    h, a = state.shared["step_size"], state.shared["momentum_decay"]
    share = 1.0 / (2.0 * a) if integrator == "euler" else (2.0 - a) / (4.0 * a)

    def of_leaf(t: Any, v: tf.Tensor) -> tf.Tensor:
        return tf.maximum(cast_scalar(t, v.dtype) - cast_scalar(h**2 * share, v.dtype) * v, 0.0)

    return tf.nest.map_structure(of_leaf, state.shared["temperature"], noise_variance(state))
