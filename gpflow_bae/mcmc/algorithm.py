"""One type for every sampler: how a state begins, how it goes on, and what can be said of it.

A sampler of this folder, or of a user, is a :class:`SamplingAlgorithm`. Engines know no more of it
than this. The step is elementwise in the position, or knows which leaves it has: engines call it
for one chain at a time.

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
from typing import Any, Literal, NamedTuple, TypeAlias

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
    """Where a chain is, and what its sampler remembers."""

    position: Position
    elements: dict[str, Position]
    """By name, structures like the position: momenta, running means. What stands at an element of
    a leaf belongs to that element, and is gathered and scattered with it in minibatches of items.
    """
    shared: dict[str, Any]
    """By name, what the chain has once, of any structure: settings, counts."""


class Step(NamedTuple):
    """When a step happens."""

    number: tf.Tensor  # int32, steps of the chain before this one
    adapt: tf.Tensor | bool  # whether a sampler that adapts may do so: true during burn-in


class Target(NamedTuple):
    """What a sampler may ask at a position. None where an engine cannot offer it."""

    gradient: Callable[[Position, Seed], Position] | None = None
    """Gradient of the log density, or an unbiased estimate of it; the seed is that of the step."""
    evaluate: Callable[[Position], Evaluation] | None = None
    """Log likelihood and log prior of all data, and their gradients, with chains as leading
    dimensions: what an accept-reject step needs."""


def _no_info(state: State) -> dict[str, tf.Tensor]:
    return {}


def _no_temperatures(state: State) -> Position | None:
    return None


def _no_diagnosis(state: State) -> str | None:
    return None


class SamplingAlgorithm(NamedTuple):
    """A sampler as pure functions, as made by the ``build`` of a module of this folder."""

    name: str
    init: Callable[[Position, Target], State]
    """A chain's state at a position."""
    step: Callable[[State, Target, Seed, Step], State]
    """The state after one step; the seed is two integers, used once."""
    info: Callable[[State], dict[str, tf.Tensor]] = _no_info
    """Statistics of a state by name, such as its kinetic temperature or acceptance rate."""
    temperatures: Callable[[State], Position | None] = _no_temperatures
    """The kinetic temperature of each leaf of the position, float64; None for a sampler without
    momenta, or where a schedule keeps what they are compared with."""
    diagnose: Callable[[State], str | None] = _no_diagnosis
    """Why a state became non-finite, in words, if the sampler knows; reads values."""
    needs: Literal["gradient", "evaluate"] = "gradient"
    """Which part of the target it uses. ``"evaluate"`` takes the whole data in every step."""
    settings: Mapping[str, Any] = {}
    """As they were given, for records of a run."""
    rests_when_cold: bool = False
    """Whether a leaf at temperature 0 stays where it is, instead of being optimised."""
    adapted: tuple[str, ...] = ()
    """Elements of its state that change only while it adapts: who keeps them need not copy them."""


def check_sampler(sampler: Any) -> None:
    """:raises TypeError: for what is no :class:`SamplingAlgorithm`."""
    if not isinstance(sampler, SamplingAlgorithm):
        raise TypeError(
            "sampler must be a SamplingAlgorithm, which a sampler's build makes, such as "
            f"gpflow_bae.mcmc.sghmc.build(step_size=0.01); got {sampler!r}."
        )


def check_setting(name: str, value: Setting | None) -> None:
    """:raises TypeError: for what is neither a number, a scalar tensor, nor a schedule."""
    if value is None or callable(value) or tf.is_tensor(value):
        return
    if isinstance(value, bool) or as_numbers(value, name).ndim:
        raise TypeError(
            f"{name} must be a number, a scalar tensor, or a function of the step's number, got "
            f"{value!r}."
        )


class Settings:
    """Numbers and schedules of a sampler: numbers become tensors of its state.

    So one trace serves all values, a checkpoint holds them, and an engine may change them: a
    temperature of 0 for some leaves, an inverse temperature for each replica.
    """

    def __init__(self, **values: Setting | None):
        self._numbers = {k: v for k, v in values.items() if v is not None and not callable(v)}
        self._schedules = {k: v for k, v in values.items() if callable(v)}

    def known(self, name: str) -> float | None:
        """The value of a number, where it is known before a graph runs."""
        found = _plain(self._numbers[name]) if name in self._numbers else None
        return found if isinstance(found, float) else None

    def initial(self) -> dict[str, tf.Tensor]:
        """The numbers, as entries of ``State.shared``: float64 scalars."""
        return {
            k: tf.cast(v, tf.float64) if tf.is_tensor(v) else tf.constant(v, tf.float64)
            for k, v in self._numbers.items()
        }

    def at(self, state: State, step: Step) -> dict[str, Any]:
        """The values at a step: of the state, or of a schedule."""
        return {k: state.shared[k] for k in self._numbers} | {
            k: tf.convert_to_tensor(schedule(step.number))
            for k, schedule in self._schedules.items()
        }

    def describe(self) -> dict[str, Any]:
        """Plain values for records: numbers, and names of schedules."""
        numbers = {k: _plain(v) for k, v in self._numbers.items()}
        return numbers | {k: _name(v) for k, v in self._schedules.items()}


def _plain(value: Scalar) -> Any:
    """A number, or in the graph of a function, where tensors have none, words."""
    known = tf.get_static_value(value) if tf.is_tensor(value) else value
    return "a tensor" if known is None else np.asarray(known, np.float64).tolist()


def _name(schedule: Schedule) -> str:
    owner = getattr(schedule, "__self__", None)
    name = getattr(schedule, "__name__", repr(schedule))
    return name if owner is None else f"{owner!r}.{name}"
