"""Make a :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm` from ``init`` and ``update``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpflow_bae.mcmc.algorithm import (
    SamplingAlgorithm,
    Settings,
    State,
    Step,
    Target,
    check_setting,
)
from gpflow_bae.mcmc.integrators import check_integrator
from gpflow_bae.mcmc.noise import check_noise
from gpflow_bae.mcmc.types import RANGES, Position, Scalar, Seed, is_number, validate

__all__ = [
    "build_sampler",
    "kinetic_temperatures",
    "momentum_temperatures",
]


def build_sampler(
    name: str,
    state_type: Any,
    init: Callable[..., Any],
    update: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    temperatures: Callable[[State], Position | None] = lambda state: None,
    adapted: tuple[str, ...] = (),
) -> SamplingAlgorithm:
    """Make a sampler from a module's functions, with their settings in its state.

    :param state_type: the module's ``State``, a NamedTuple whose first field is the position.
    :param init: function of the position.
    :param update: function of the module's state, the gradient, the seed, and settings by name.
    :param arguments: ``locals()`` of ``build``; those that ``update`` does not take are ignored.
        Numbers, tensors and schedules become part of the state; strings and Booleans are constants
        of the trace. A numeric temperature becomes one for each leaf of the position, so that
        leaves can have different ones.
    :param temperatures: see :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm`.
    :param adapted: fields of the module's state that change only during adaptation.
    :raises ValueError: if an argument is out of its range.
    """
    taken = inspect.signature(update).parameters
    used = {k: v for k, v in arguments.items() if k in taken}
    choices = {k: v for k, v in used.items() if _is_choice(k, v)}
    numbers = {k: v for k, v in used.items() if k not in choices}
    for setting, value in numbers.items():
        check_setting(setting, value)
    settings = Settings(**numbers)
    validate(**{k: v if is_number(v) else settings.known(k) for k, v in numbers.items()})
    if "noise" in choices:
        check_noise(choices["noise"])
    if "integrator" in choices:
        check_integrator(choices["integrator"], choices.get("subtract_gradient_noise", False))

    def packed(inner: Any, values: dict[str, Any]) -> State:
        elements = inner._asdict()
        return State(elements.pop("position"), elements, values)

    def first(position: Position, target: Target) -> State:
        values: dict[str, Any] = dict(settings.initial())
        inner = init(position)
        if "temperature" in values:
            temperature = values["temperature"]
            values["temperature"] = tf.nest.map_structure(lambda _: temperature, inner.position)
        return packed(inner, values)

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        gradient = _gradient(name, target)(state.position, seed)
        inner = state_type(state.position, **state.elements)
        used = {
            **settings.at(state, at),
            **choices,
            **({"adapt": at.adapt} if "adapt" in taken else {}),
        }
        return packed(update(inner, gradient, seed, **used), state.shared)

    return SamplingAlgorithm(
        name,
        first,
        step,
        temperatures=temperatures,
        settings={**settings.describe(), **choices},
        adapted=adapted,
    )


def _is_choice(name: str, value: Any) -> bool:
    return isinstance(value, (str, bool)) and name not in RANGES


def _gradient(name: str, target: Target) -> Callable[..., Any]:
    if target is None or target.gradient is None:
        raise TypeError(
            f"{name} follows the gradient of the log density, and this target has none "
            "(target.gradient is None)."
        )
    return target.gradient


def kinetic_temperatures(momentum: Position, step_size: Scalar) -> Position:
    """Return the mean of momentum^2 / h^2 of each leaf, float64: T for N(0, T) velocities.

    With the Euler scheme it is T / (1 - a / 2) for a free particle with friction a.
    """
    leaves = tf.nest.flatten(momentum)
    # All leaves are divided at once, because this is done in every step.
    squares = 2 * tf.stack([tf.cast(tf.nn.l2_loss(leaf), tf.float64) for leaf in leaves])
    sizes = tf.stack([tf.size(leaf, tf.float64) for leaf in leaves])
    means = tf.unstack(squares / sizes, num=len(leaves))
    h = tf.cast(step_size, tf.float64)
    return tf.nest.pack_sequence_as(momentum, [mean / h**2 for mean in means])


def momentum_temperatures(state: State) -> Position | None:
    """Return kinetic temperatures without preconditioner; None if h has a schedule."""
    if "step_size" not in state.shared:
        return None
    return kinetic_temperatures(state.elements["momentum"], state.shared["step_size"])
