"""The samplers as ``tfp.mcmc.TransitionKernel``: for ``tfp.mcmc.sample_chain`` and its company.

#### Examples

```python
kernel = gpflow_bae.mcmc.SGHMC(target_log_prob_fn, step_size=0.1, momentum_decay=0.1)
draws, _, final = tfp.mcmc.sample_chain(
    num_results=1000, current_state=tf.zeros([8, 2]), kernel=kernel, trace_fn=...,
    return_final_kernel_results=True, seed=[0, 1])
more, _ = tfp.mcmc.sample_chain(  # goes on where the first call ended, momentum included
    num_results=1000, current_state=draws[-1], kernel=kernel, previous_kernel_results=final,
    trace_fn=..., seed=[0, 2])
```

A state is a tensor or a list of tensors ("parts"). ``target_log_prob_fn`` takes the parts as
arguments and returns the log density of each chain, the leading dimensions of the parts. There is
no accept-reject step, so the step-size bias of :mod:`~gpflow_bae.mcmc.sghmc` remains, and wrapping
one in ``MetropolisHastings`` is wrong. One seed gives ``one_step`` the same numbers in eager, graph
and XLA, but ``sample_chain`` splits its own seed with TensorFlow's default generator, which differs
in XLA; so do its chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from tensorflow_probability.python.internal import samplers

from gpflow_bae.mcmc import adaptive_sghmc, sghmc
from gpflow_bae.mcmc.noise import KINDS
from gpflow_bae.mcmc.types import LogProbFn, Scalar, validate

__all__ = ["SGHMC", "AdaptiveSGHMC", "AdaptiveSGHMCKernelResults", "SGHMCKernelResults"]

State: TypeAlias = TensorType | Sequence[TensorType]


class SGHMCKernelResults(NamedTuple):
    """What :class:`SGHMC` carries; the structures are lists, one entry per part."""

    target_log_prob: tf.Tensor  # of the state returned beside it
    grads_target_log_prob: list[tf.Tensor]  # likewise
    momentum: list[tf.Tensor]
    step: tf.Tensor  # int32, steps taken


class AdaptiveSGHMCKernelResults(NamedTuple):
    """What :class:`AdaptiveSGHMC` carries; the structures are lists, one entry per part."""

    target_log_prob: tf.Tensor  # of the state returned beside it
    grads_target_log_prob: list[tf.Tensor]  # likewise
    momentum: list[tf.Tensor]
    tau: list[tf.Tensor]
    mean_gradient: list[tf.Tensor]
    mean_square_gradient: list[tf.Tensor]
    step: tf.Tensor  # int32, steps taken


class _Uncalibrated(tfp.mcmc.TransitionKernel):
    """What both kernels share; ``parameters`` is what ``copy`` builds another kernel from."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        validate(**{k: parameters[k] for k in ("step_size", "momentum_decay", "temperature")})
        if parameters["noise"] not in KINDS:
            raise ValueError(f"noise must be one of {KINDS}, got {parameters['noise']!r}.")
        self._name = name
        self._parameters = {**parameters, "name": name}

    @property
    def target_log_prob_fn(self) -> LogProbFn:
        """The log density that was given."""
        return self._parameters["target_log_prob_fn"]

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return self._parameters

    @property
    def name(self) -> str:
        """Prefix of the operations' names."""
        return self._name

    @property
    def is_calibrated(self) -> bool:
        """False: there is no accept-reject step."""
        return False

    def _value_and_gradients(self, parts: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parts)
            target_log_prob = tf.convert_to_tensor(self.target_log_prob_fn(*parts))
        gradients = tape.gradient(target_log_prob, parts)
        without = [i for i, gradient in enumerate(gradients) if gradient is None]
        if without:
            raise ValueError(
                f"target_log_prob_fn has no gradient with respect to parts {without} of the state. "
                "It must depend on every part through differentiable TensorFlow operations."
            )
        return target_log_prob, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _parts(state: State) -> tuple[list[tf.Tensor], bool]:
    """The parts of a state, and whether it was a list of parts."""
    is_list = isinstance(state, list | tuple)
    return [tf.convert_to_tensor(part) for part in (state if is_list else [state])], is_list


class SGHMC(_Uncalibrated):
    """Stochastic-gradient Hamiltonian Monte Carlo: :mod:`gpflow_bae.mcmc.sghmc`.

    One gradient per step, and one more in ``bootstrap_results``.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Scalar,
        momentum_decay: Scalar,
        temperature: Scalar = 1.0,
        noise: str = "gaussian",
        name: str = "sghmc",
    ) -> None:
        super().__init__(
            name,
            {
                "target_log_prob_fn": target_log_prob_fn,
                "step_size": step_size,
                "momentum_decay": momentum_decay,
                "temperature": temperature,
                "noise": noise,
            },
        )

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: SGHMCKernelResults,
        seed: TensorType | None = None,
    ) -> tuple[State, SGHMCKernelResults]:
        """One step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            settings = self.parameters
            state = sghmc.update(
                sghmc.State(parts, list(previous.momentum)),
                list(previous.grads_target_log_prob),
                samplers.sanitize_seed(seed, name=self.name),
                step_size=settings["step_size"],
                momentum_decay=settings["momentum_decay"],
                temperature=settings["temperature"],
                noise=settings["noise"],
            )
            target_log_prob, gradients = self._value_and_gradients(state.position)
            results = SGHMCKernelResults(
                target_log_prob, gradients, state.momentum, previous.step + 1
            )
            return state.position if is_list else state.position[0], results

    def bootstrap_results(self, init_state: State) -> SGHMCKernelResults:
        """At rest in ``init_state``."""
        with tf.name_scope(f"{self.name}.bootstrap_results"):
            parts, _ = _parts(init_state)
            state = sghmc.init(parts)
            target_log_prob, gradients = self._value_and_gradients(parts)
            return SGHMCKernelResults(
                target_log_prob, gradients, state.momentum, tf.zeros([], tf.int32)
            )


class AdaptiveSGHMC(_Uncalibrated):
    """Scale-adapted SGHMC: :mod:`gpflow_bae.mcmc.adaptive_sghmc`.

    It adapts in the first ``num_adaptation_steps`` steps, which should be discarded, and is frozen
    after them. Each chain adapts by itself.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param num_adaptation_steps: how many steps adapt, at most ``num_burnin_steps``.
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param subtract_gradient_noise: include eq. 17's - h^4; for noisy gradients only.
    :param jitter: added to the mean square gradient in the preconditioner.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Scalar,
        momentum_decay: Scalar,
        num_adaptation_steps: int | TensorType,
        temperature: Scalar = 1.0,
        noise: str = "gaussian",
        subtract_gradient_noise: bool = False,
        jitter: float = 1e-6,
        name: str = "adaptive_sghmc",
    ) -> None:
        super().__init__(
            name,
            {
                "target_log_prob_fn": target_log_prob_fn,
                "step_size": step_size,
                "momentum_decay": momentum_decay,
                "num_adaptation_steps": num_adaptation_steps,
                "temperature": temperature,
                "noise": noise,
                "subtract_gradient_noise": subtract_gradient_noise,
                "jitter": jitter,
            },
        )

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: AdaptiveSGHMCKernelResults,
        seed: TensorType | None = None,
    ) -> tuple[State, AdaptiveSGHMCKernelResults]:
        """One step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            settings = self.parameters
            state = adaptive_sghmc.update(
                adaptive_sghmc.State(
                    parts,
                    list(previous.momentum),
                    list(previous.tau),
                    list(previous.mean_gradient),
                    list(previous.mean_square_gradient),
                ),
                list(previous.grads_target_log_prob),
                samplers.sanitize_seed(seed, name=self.name),
                step_size=settings["step_size"],
                momentum_decay=settings["momentum_decay"],
                temperature=settings["temperature"],
                adapt=previous.step < settings["num_adaptation_steps"],
                noise=settings["noise"],
                subtract_gradient_noise=settings["subtract_gradient_noise"],
                jitter=settings["jitter"],
            )
            target_log_prob, gradients = self._value_and_gradients(state.position)
            results = AdaptiveSGHMCKernelResults(
                target_log_prob, gradients, *state[1:], step=previous.step + 1
            )
            return state.position if is_list else state.position[0], results

    def bootstrap_results(self, init_state: State) -> AdaptiveSGHMCKernelResults:
        """At rest in ``init_state``, with the statistics of the gradient at one."""
        with tf.name_scope(f"{self.name}.bootstrap_results"):
            parts, _ = _parts(init_state)
            state = adaptive_sghmc.init(parts)
            target_log_prob, gradients = self._value_and_gradients(parts)
            return AdaptiveSGHMCKernelResults(
                target_log_prob, gradients, *state[1:], step=tf.zeros([], tf.int32)
            )
