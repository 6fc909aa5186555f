"""Base class of TFP transition kernels without an accept-reject step."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from gpflow_bae.mcmc import algorithm
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Step, Target
from gpflow_bae.mcmc.calibrated import targets
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["State", "Uncalibrated"]

State: TypeAlias = TensorType | Sequence[TensorType]
"""A tensor or a list of tensors ("parts"), with the chains as leading dimensions."""


class Uncalibrated(tfp.mcmc.TransitionKernel):
    """A kernel of a gradient-based :class:`~gpflow_bae.mcmc.algorithm.SamplingAlgorithm`.

    A subclass is a dataclass of its arguments, and has its module's ``build`` and the names of the
    algorithm's state variables that kernel results carry. Results have, in this order,
    ``target_log_prob`` [chains...] and ``grads_target_log_prob`` of the returned state, these
    variables, and ``step`` (int32, number of steps); structures are lists, one entry per part.
    """

    target_log_prob_fn: LogProbFn
    name: str
    _build: ClassVar[Callable[..., SamplingAlgorithm]]
    _carried: ClassVar[tuple[str, ...]] = ()
    _results_type: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = ("target_log_prob", "grads_target_log_prob", *cls._carried, "step")
        cls._results_type = namedtuple(f"{cls.__name__}KernelResults", fields)  # type: ignore[misc]
        # Without this attribute ``tfp.mcmc.MetropolisHastings`` would treat the proposal as
        # symmetric, which none of these is, and sample another distribution.
        cls._results_type.log_acceptance_correction = property(_refuse_correction)

    def __post_init__(self) -> None:
        self._algorithm()  # checks the settings

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, from which ``copy`` builds another kernel."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore

    def _value_and_gradients(self, parts: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        found = targets.target(lambda parts: self.target_log_prob_fn(*parts))(parts)
        return found.tempered, found.tempered_gradient

    def _algorithm(self) -> SamplingAlgorithm:
        """Return the algorithm with this kernel's settings."""
        return type(self)._build(**self._settings())

    def _settings(self) -> dict[str, Any]:
        others = ("target_log_prob_fn", "num_adaptation_steps", "name")
        return {k: v for k, v in self.parameters.items() if k not in others}

    @property
    def is_calibrated(self) -> bool:
        """False, as there is no accept-reject step."""
        return False

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: Any,
        seed: TensorType | None = None,
    ) -> tuple[State, Any]:
        """Take one step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            sampler = self._algorithm()
            carried = {k: _as_list(getattr(previous, k)) for k in self._carried}
            state = _with_carried(sampler.init(parts, Target()), carried)
            gradients = list(previous.grads_target_log_prob)
            adapt = previous.step < getattr(self, "num_adaptation_steps", 0)
            state = sampler.step(
                state,
                Target(lambda position, seed: gradients),
                tfp.random.sanitize_seed(seed, name=self.name),
                Step(previous.step, adapt),
            )
            results = self._results(
                state, *self._value_and_gradients(state.position), previous.step + 1
            )
            return state.position if is_list else state.position[0], results

    def bootstrap_results(self, init_state: State) -> Any:
        """Return the kernel results at ``init_state``, with the algorithm's initial state."""
        with tf.name_scope(f"{self.name}.bootstrap_results"):
            parts, _ = _parts(init_state)
            target_log_prob, gradients = self._value_and_gradients(parts)
            state = self._algorithm().init(parts, Target())
            return self._results(state, target_log_prob, gradients, tf.zeros([], tf.int32))

    def _results(
        self,
        state: algorithm.State,
        target_log_prob: tf.Tensor,
        gradients: list[tf.Tensor],
        step: tf.Tensor,
    ) -> Any:
        known = {**state.shared, **state.elements}
        carried = [known[k] for k in self._carried]
        return self._results_type(target_log_prob, gradients, *carried, step)


def _refuse_correction(results: Any) -> NoReturn:
    raise ValueError(
        f"{type(results).__name__} are the results of a kernel without an accept-reject step, for "
        "which there is no acceptance correction: wrapped in tfp.mcmc.MetropolisHastings it would "
        "sample another distribution. Use it as it is, or a calibrated kernel of tfp.mcmc."
    )


def _parts(state: State) -> tuple[list[tf.Tensor], bool]:
    """Return the parts of a state, and whether it was a list of parts."""
    is_list = isinstance(state, list | tuple)
    return [tf.convert_to_tensor(part) for part in (state if is_list else [state])], is_list


def _with_carried(state: algorithm.State, carried: dict[str, Any]) -> algorithm.State:
    """Replace state variables by those of the kernel results; settings are the kernel's."""
    elements = {k: carried.get(k, v) for k, v in state.elements.items()}
    return state._replace(
        elements=elements, shared={k: carried.get(k, v) for k, v in state.shared.items()}
    )


def _as_list(carried: Any) -> Any:
    """Convert a structure over parts to a list, as TFP's loops return other sequences."""
    return list(carried) if isinstance(carried, Sequence) else carried
