"""Make a :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm` from ``init`` and ``update``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

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
    "build_calibrated",
    "build_sampler",
    "kinetic_info",
    "kinetic_temperature",
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
    needs: Literal["gradient", "evaluate"] = "gradient",
    shared: tuple[str, ...] = (),
    info: Callable[[State], dict[str, tf.Tensor]] = lambda state: {},
    temperatures: Callable[[State], Position | None] = lambda state: None,
    adapted: tuple[str, ...] = (),
    fixed: tuple[str, ...] = (),
) -> SamplingAlgorithm:
    """Make a sampler from a module's functions, with their settings in its state.

    :param state_type: the module's ``State``, a NamedTuple whose first field is the position.
    :param init: function of the position, and with ``needs="evaluate"`` of the target's
        ``evaluate``.
    :param update: function of the module's state, the gradient (or ``evaluate``), the
        seed, and settings by name.
    :param arguments: ``locals()`` of ``build``; those that ``update`` does not take are ignored.
        Numbers, tensors and schedules become part of the state; strings and Booleans are constants
        of the trace. A numeric temperature becomes one for each leaf of the position, so that
        leaves can have different ones, unless there are ``shared`` fields.
    :param needs: the part of the target that ``update`` uses.
    :param shared: fields of the module's state that are not like the position.
    :param info, temperatures: see :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm`.
    :param adapted: fields of the module's state that change only during adaptation.
    :param fixed: numbers among the arguments that are constants of the trace.
    :raises ValueError: if an argument is out of its range.
    """
    taken = inspect.signature(update).parameters
    used = {k: v for k, v in arguments.items() if k in taken}
    choices = {k: v for k, v in used.items() if k in fixed or _is_choice(k, v)}
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
        fields = inner._asdict()
        position = fields.pop("position")
        elements = {k: v for k, v in fields.items() if k not in shared}
        return State(position, elements, {**values, **{k: fields[k] for k in shared}})

    def first(position: Position, target: Target) -> State:
        values: dict[str, Any] = dict(settings.initial())
        part = () if needs == "gradient" else (_evaluate(name, target),)
        inner = init(position, *part)
        if "temperature" in values and not shared:
            temperature = values["temperature"]
            values["temperature"] = tf.nest.map_structure(lambda _: temperature, inner.position)
        return packed(inner, values)

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        part = _gradient(name, target) if needs == "gradient" else _evaluate(name, target)
        inner = state_type(state.position, **state.elements, **{k: state.shared[k] for k in shared})
        used = {
            **settings.at(state, at),
            **choices,
            **({"adapt": at.adapt} if "adapt" in taken else {}),
        }
        argument = part(state.position, seed) if needs == "gradient" else part
        return packed(update(inner, argument, seed, **used), state.shared)

    return SamplingAlgorithm(
        name,
        first,
        step,
        info,
        temperatures,
        needs=needs,
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


def _evaluate(name: str, target: Target) -> Callable[..., Any]:
    if target is None or target.evaluate is None:
        raise TypeError(
            f"{name} needs the whole data in every step, to accept or reject its proposals, and "
            "this target cannot evaluate them (target.evaluate is None). Where there are only "
            "minibatches take a sampler of gradients, such as sghmc or adaptive_sghmc."
        )
    return target.evaluate


def kinetic_temperature(momentum: Position, step_size: Scalar) -> tf.Tensor:
    """Return the mean of momentum^2 / h^2 over all scalars, float64: T for N(0, T) velocities."""
    leaves = tf.nest.flatten(momentum)
    squares, counts = tf.reduce_sum(_squares(leaves)), sum(_sizes(leaves))
    return squares / counts / tf.cast(step_size, tf.float64) ** 2


def kinetic_temperatures(momentum: Position, step_size: Scalar) -> Position:
    """Return the mean of momentum^2 / h^2 of each leaf, float64: T for N(0, T) velocities.

    With the Euler scheme it is T / (1 - a / 2) for a free particle with friction a.
    """
    leaves = tf.nest.flatten(momentum)
    means = tf.unstack(_squares(leaves) / tf.stack(_sizes(leaves)), num=len(leaves))
    h = tf.cast(step_size, tf.float64)
    return tf.nest.pack_sequence_as(momentum, [mean / h**2 for mean in means])


def _squares(leaves: list[tf.Tensor]) -> tf.Tensor:
    """Return the sum of squares of each leaf, float64, by one pass, as it is made in every step."""
    return 2 * tf.stack([tf.cast(tf.nn.l2_loss(leaf), tf.float64) for leaf in leaves])


def _sizes(leaves: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return the number of scalars of each leaf, float64."""
    return [tf.size(leaf, tf.float64) for leaf in leaves]


def momentum_temperatures(state: State) -> Position | None:
    """Return kinetic temperatures without preconditioner; None if h has a schedule."""
    if "step_size" not in state.shared:
        return None
    return kinetic_temperatures(state.elements["momentum"], state.shared["step_size"])


def kinetic_info(state: State) -> dict[str, tf.Tensor]:
    """Return the kinetic temperature without preconditioner, unless h has a schedule."""
    if "step_size" not in state.shared:
        return {}
    momentum, step_size = state.elements["momentum"], state.shared["step_size"]
    return {"kinetic_temperature": kinetic_temperature(momentum, step_size)}


def _calibrated_info(state: State) -> dict[str, tf.Tensor]:
    """Return acceptance statistics and log densities of each chain: [chains...] each."""
    counts, evaluation = state.shared["counts"], state.shared["evaluation"]
    return {
        "acceptance_rate": counts.acceptance_rate,
        "is_accepted": counts.is_accepted,
        "log_likelihood": evaluation.tempered,
        "log_prior": evaluation.untempered,
    }


build_calibrated = partial(
    build_sampler, needs="evaluate", shared=("evaluation", "counts"), info=_calibrated_info
)
"""The same as :func:`build_sampler`, for modules with an accept-reject step."""
