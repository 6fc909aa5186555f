"""The common type of samplers: functions that initialise, advance and describe a chain's state.

A sampler, also a user's, is a :class:`SamplingAlgorithm`, and engines use only this interface.
Engines call ``step`` for one chain at a time, so a step that is not elementwise in the position is
valid too.

>>> def langevin(step_size):
...     def init(position, target):
...         return State(position, {}, {})
...
...     def step(state, target, seed, at):
...         uphill = target.gradient(state.position, seed)
...         xi = noise_like(state.position, seed)
...         move = lambda q, g, e: q + step_size / 2 * g + step_size**0.5 * e
...         position = tf.nest.map_structure(move, state.position, uphill, xi)
...         return state._replace(position=position)
...
...     return SamplingAlgorithm("langevin", init, step)
>>> sampler, target = langevin(0.5), Target(lambda position, seed: -position)
>>> state = sampler.init(tf.zeros([1000]), target)
>>> for i in range(50):
...     state = sampler.step(state, target, tf.constant([0, i]), Step(tf.constant(i), False))
>>> bool(abs(tf.math.reduce_variance(state.position) - 1 / (1 - 0.125)) < 0.15)
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from gpflow_bae.core.arguments import as_numbers
from gpflow_bae.mcmc.calibrated.targets import Evaluation
from gpflow_bae.mcmc.noise import noise_like  # noqa: F401  (for the example above)
from gpflow_bae.mcmc.types import Position, Scalar, Seed

__all__ = ["SamplingAlgorithm", "Schedule", "Setting", "Settings", "State", "Step", "Target"]

Schedule: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
"""A setting as a function of the number of steps taken, an int32 tensor."""

Setting: TypeAlias = Scalar | Schedule
"""A number, or a schedule of it."""


class State(NamedTuple):
    """The position of a chain, and the variables of its sampler."""

    position: Position
    elements: dict[str, Position]
    """Structures like the position by name, such as momenta and running means. Their entries are
    gathered and scattered with those of the position in minibatches of items.
    """
    shared: dict[str, Any]
    """Variables of the chain of any structure by name, such as settings and counts."""


class Step(NamedTuple):
    """The number of a step, and whether samplers adapt in it."""

    number: tf.Tensor  # int32, number of earlier steps of the chain
    adapt: tf.Tensor | bool  # whether samplers adapt, which is true during burn-in


class Target(NamedTuple):
    """Functions of the target density at a position; None if an engine does not provide them."""

    gradient: Callable[[Position, Seed], Position] | None = None
    """Gradient of the log density, or an unbiased estimate of it; the seed is that of the step."""
    evaluate: Callable[[Position], Evaluation] | None = None
    """Log likelihood and log prior of all data, and their gradients, with chains as leading
    dimensions, such as for an accept-reject step; None for a minibatch."""


class SamplingAlgorithm(NamedTuple):
    """A sampler as pure functions, returned by the ``build`` of a sampler's module."""

    name: str
    init: Callable[[Position, Target], State]
    """Return a chain's initial state at a position."""
    step: Callable[[State, Target, Seed, Step], State]
    """Return the state after one step; the seed is two integers, used once."""
    info: Callable[[State], dict[str, tf.Tensor]] = lambda state: {}
    """Return statistics of a state by name, such as a step size that it adapts."""
    temperatures: Callable[[State], Position | None] = lambda state: None
    """Return the kinetic temperature of each leaf of the position, float64; None for a sampler
    without momenta, or if the scale of momenta has a schedule."""
    diagnose: Callable[[State], str | None] = lambda state: None
    """Return a message why a state became non-finite, or None if unknown; reads values."""
    settings: Mapping[str, Any] = {}
    """Settings as given to ``build``, for records of a run."""
    rests_when_cold: bool = False
    """Whether a leaf at temperature 0 is fixed, instead of optimised."""
    adapted: tuple[str, ...] = ()
    """Elements of its state that change only during adaptation, and need no copies after it."""


def check_sampler(sampler: Any) -> None:
    """Raise a TypeError if ``sampler`` is not a :class:`SamplingAlgorithm`."""
    if not isinstance(sampler, SamplingAlgorithm):
        raise TypeError(
            "sampler must be a SamplingAlgorithm, which a sampler's build makes, such as "
            f"gpflow_bae.mcmc.sghmc.build(step_size=0.01); got {sampler!r}."
        )


def check_setting(name: str, value: Setting | None) -> None:
    """Raise a TypeError if a setting is not None, a number, a scalar tensor or a schedule."""
    if value is None or callable(value) or tf.is_tensor(value):
        return
    if isinstance(value, bool) or as_numbers(value, name).ndim:
        raise TypeError(
            f"{name} must be a number, a scalar tensor, or a function of the step's number, got "
            f"{value!r}."
        )


class Settings:
    """Numbers and schedules of a sampler; numbers become tensors of its state.

    One trace is therefore valid for all values, checkpoints contain them, and engines can change
    them, e.g. to a temperature of 0 for some leaves or an inverse temperature per replica.
    """

    def __init__(self, **values: Setting | None):
        self._numbers = {k: v for k, v in values.items() if v is not None and not callable(v)}
        self._schedules = {k: v for k, v in values.items() if callable(v)}

    def known(self, name: str) -> float | None:
        """Return the value of a number that is not symbolic; None for others."""
        found = _plain(self._numbers[name]) if name in self._numbers else None
        return found if isinstance(found, float) else None

    def initial(self) -> dict[str, tf.Tensor]:
        """Return the numbers as float64 scalars, for ``State.shared``."""
        return {
            k: tf.cast(v, tf.float64) if tf.is_tensor(v) else tf.constant(v, tf.float64)
            for k, v in self._numbers.items()
        }

    def at(self, state: State, step: Step) -> dict[str, Any]:
        """Return the values at a step, from the state or from schedules."""
        return {k: state.shared[k] for k in self._numbers} | {
            k: tf.convert_to_tensor(schedule(step.number))
            for k, schedule in self._schedules.items()
        }

    def describe(self) -> dict[str, Any]:
        """Return numbers, and names of schedules, for records."""
        numbers = {k: _plain(v) for k, v in self._numbers.items()}
        return numbers | {k: _name(v) for k, v in self._schedules.items()}


def _plain(value: Scalar) -> Any:
    """Return a number, or "a tensor" for a symbolic tensor."""
    known = tf.get_static_value(value) if tf.is_tensor(value) else value
    return "a tensor" if known is None else np.asarray(known, np.float64).tolist()


def _name(schedule: Schedule) -> str:
    owner = getattr(schedule, "__self__", None)
    name = getattr(schedule, "__name__", repr(schedule))
    return name if owner is None else f"{owner!r}.{name}"
