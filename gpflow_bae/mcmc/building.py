"""A :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm` of a module's ``init`` and ``update``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Settings, State, Step, Target
from gpflow_bae.mcmc.types import Position, Scalar, Seed

__all__ = ["build_sampler", "calibrated_info", "kinetic_info", "kinetic_temperature"]

Info = Callable[[State], dict[str, tf.Tensor]]


def build_sampler(
    name: str,
    state_type: Any,
    init: Callable[..., Any],
    update: Callable[..., Any],
    settings: Settings,
    *,
    needs: Literal["gradient", "evaluate"] = "gradient",
    shared: tuple[str, ...] = (),
    adapts: bool = False,
    info: Info = lambda state: {},
    **choices: Any,
) -> SamplingAlgorithm:
    """The functions of a module, with their settings in the state.

    :param state_type: the module's ``State``: a NamedTuple that begins with the position.
    :param init: takes the position, and with ``needs="evaluate"`` the function that evaluates it.
    :param update: takes the module's state, the gradient (or the function that evaluates), the
        seed, and settings and choices by name.
    :param settings: numbers and schedules. A temperature that is a number becomes one for each leaf
        of the position, so that single leaves may be given another; not where something of the
        state is shared by the leaves.
    :param shared: the fields of the module's state that are not like the position.
    :param adapts: whether ``update`` takes ``adapt``.
    :param choices: what else ``update`` takes, the same in every step.
    """

    def packed(inner: Any, values: dict[str, Any]) -> State:
        fields = inner._asdict()
        position = fields.pop("position")
        elements = {k: v for k, v in fields.items() if k not in shared}
        return State(position, elements, {**values, **{k: fields[k] for k in shared}})

    def first(position: Position, target: Target) -> State:
        inner = init(position) if needs == "gradient" else init(position, _evaluate(name, target))
        values: dict[str, Any] = dict(settings.initial())
        if "temperature" in values and not shared:
            temperature = values["temperature"]
            values["temperature"] = tf.nest.map_structure(lambda _: temperature, inner.position)
        return packed(inner, values)

    def step(state: State, target: Target, seed: Seed, at: Step) -> State:
        part = _gradient(name, target) if needs == "gradient" else _evaluate(name, target)
        inner = state_type(state.position, **state.elements, **{k: state.shared[k] for k in shared})
        used = {**settings.at(state, at), **choices, **({"adapt": at.adapt} if adapts else {})}
        argument = part(state.position, seed) if needs == "gradient" else part
        return packed(update(inner, argument, seed, **used), state.shared)

    return SamplingAlgorithm(
        name, first, step, info, needs=needs, settings={**settings.describe(), **choices}
    )


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
    """Mean of momentum^2 / h^2 over all scalars, float64: T for velocities that are N(0, T)."""
    leaves = tf.nest.flatten(momentum)
    squares = tf.add_n([tf.reduce_sum(tf.cast(r, tf.float64) ** 2) for r in leaves])
    count = tf.add_n([tf.size(r, tf.float64) for r in leaves])
    return squares / count / tf.cast(step_size, tf.float64) ** 2


def kinetic_info(state: State) -> dict[str, tf.Tensor]:
    """The kinetic temperature of a sampler without preconditioner, unless h has a schedule."""
    if "step_size" not in state.shared:
        return {}
    momentum, step_size = state.elements["momentum"], state.shared["step_size"]
    return {"kinetic_temperature": kinetic_temperature(momentum, step_size)}


def calibrated_info(state: State) -> dict[str, tf.Tensor]:
    """What became of the proposals of each chain, and its log densities: [chains...] each."""
    counts, evaluation = state.shared["counts"], state.shared["evaluation"]
    return {
        "acceptance_rate": counts.acceptance_rate,
        "is_accepted": counts.is_accepted,
        "log_likelihood": evaluation.tempered,
        "log_prior": evaluation.untempered,
    }
