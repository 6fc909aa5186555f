"""What the adapters of samplers without an accept-reject step share: all but their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from tensorflow_probability.python.internal import samplers

from gpflow_bae.mcmc.integrators import check_integrator
from gpflow_bae.mcmc.noise import check_noise
from gpflow_bae.mcmc.structures import value_and_gradient
from gpflow_bae.mcmc.types import LogProbFn, validate

__all__ = ["State", "Uncalibrated"]

State: TypeAlias = TensorType | Sequence[TensorType]
"""A tensor or a list of tensors ("parts"), with the chains as leading dimensions."""


class Uncalibrated(tfp.mcmc.TransitionKernel):
    """A functional sampler as a kernel.

    A subclass gives its module's ``State`` and a NamedTuple of results, whose fields are
    ``target_log_prob`` and ``grads_target_log_prob`` (of the state returned beside them), then
    those of ``State`` without ``position``, then ``step`` (int32, steps taken); and it says how a
    state begins and goes on.
    """

    _state_type: ClassVar[Any]
    _results_type: ClassVar[Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # ``tfp.mcmc.MetropolisHastings`` asks the results for this attribute, and where there is
        # none takes the proposal for symmetric, which none of these is, and samples something else.
        if hasattr(cls, "_results_type"):
            cls._results_type.log_acceptance_correction = property(_refuse_correction)

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        common = ("step_size", "momentum_decay", "temperature")
        validate(**{k: parameters[k] for k in common if k in parameters})
        check_noise(parameters["noise"])
        if "integrator" in parameters:
            check_integrator(
                parameters["integrator"], parameters.get("subtract_gradient_noise", False)
            )
        self._name = name
        self._parameters = {**parameters, "name": name}

    def _init(self, parts: list[tf.Tensor], chain_ndims: int) -> Any:
        """The module's ``init``."""
        raise NotImplementedError

    def _update(
        self, state: Any, gradients: list[tf.Tensor], seed: tf.Tensor, step: tf.Tensor
    ) -> Any:
        """The module's ``update`` with this kernel's settings, after ``step`` steps."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        """The parameters that the module's ``update`` takes."""
        others = ("target_log_prob_fn", "num_adaptation_steps", "name")
        return {k: v for k, v in self._parameters.items() if k not in others}

    @property
    def target_log_prob_fn(self) -> LogProbFn:
        """The log density that was given."""
        return self._parameters["target_log_prob_fn"]

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, from which ``copy`` builds another kernel."""
        return self._parameters

    @property
    def name(self) -> str:
        """Prefix of the operations' names."""
        return self._name

    @property
    def is_calibrated(self) -> bool:
        """False: there is no accept-reject step."""
        return False

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: Any,
        seed: TensorType | None = None,
    ) -> tuple[State, Any]:
        """One step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            carried = [_as_list(getattr(previous, f)) for f in self._state_type._fields[1:]]
            state = self._update(
                self._state_type(parts, *carried),
                list(previous.grads_target_log_prob),
                samplers.sanitize_seed(seed, name=self.name),
                previous.step,
            )
            results = self._results(
                state, *self._value_and_gradients(state.position), previous.step + 1
            )
            return state.position if is_list else state.position[0], results

    def bootstrap_results(self, init_state: State) -> Any:
        """The module's initial state at ``init_state``."""
        with tf.name_scope(f"{self.name}.bootstrap_results"):
            parts, _ = _parts(init_state)
            target_log_prob, gradients = self._value_and_gradients(parts)
            state = self._init(parts, target_log_prob.shape.rank)
            return self._results(state, target_log_prob, gradients, tf.zeros([], tf.int32))

    def _results(
        self,
        state: Any,
        target_log_prob: tf.Tensor,
        gradients: list[tf.Tensor],
        step: tf.Tensor,
    ) -> Any:
        return self._results_type(target_log_prob, gradients, *state[1:], step)

    def _value_and_gradients(self, parts: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return value_and_gradient(
            lambda parts: self.target_log_prob_fn(*parts), parts, "target_log_prob_fn", "parts"
        )


def _refuse_correction(results: Any) -> NoReturn:
    raise ValueError(
        f"{type(results).__name__} are the results of a kernel without an accept-reject step, for "
        "which there is no acceptance correction: wrapped in tfp.mcmc.MetropolisHastings it would "
        "sample another distribution. Use it as it is, or a calibrated kernel: "
        "gpflow_bae.mcmc.LangevinGradient, or one of tfp.mcmc."
    )


def _parts(state: State) -> tuple[list[tf.Tensor], bool]:
    """The parts of a state, and whether it was a list of parts."""
    is_list = isinstance(state, list | tuple)
    return [tf.convert_to_tensor(part) for part in (state if is_list else [state])], is_list


def _as_list(carried: Any) -> Any:
    """A structure over parts as the list that it was (TFP's loops return other sequences)."""
    return list(carried) if isinstance(carried, Sequence) else carried
