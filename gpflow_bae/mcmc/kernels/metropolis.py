"""A sampler with an accept-reject step as a kernel: Langevin-gradient Metropolis-Hastings.

TFP has a random walk (``tfp.mcmc.RandomWalkMetropolis``) and Hamiltonian Monte Carlo
(``tfp.mcmc.HamiltonianMonteCarlo``) of its own: use those.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType

from gpflow_bae.mcmc.calibrated import langevin, metropolis, targets
from gpflow_bae.mcmc.kernels.base import Kernel, State, _as_list, _parts
from gpflow_bae.mcmc.types import LogProbFn, Scalar, cast_scalar, validate

__all__ = ["LangevinGradient", "LangevinGradientKernelResults", "ProposedResults"]


class ProposedResults(NamedTuple):
    """The target at the proposal; the structure is a list, one entry per part."""

    target_log_prob: tf.Tensor
    grads_target_log_prob: list[tf.Tensor]


class LangevinGradientKernelResults(NamedTuple):
    """What :class:`LangevinGradient` carries; the structures are lists, one entry per part.

    The names are TFP's: ``ReplicaExchangeMC`` and the step-size adaptations look for them.
    """

    target_log_prob: tf.Tensor  # of the state returned beside it, [chains...]
    grads_target_log_prob: list[tf.Tensor]  # likewise
    proposed_state: list[tf.Tensor]
    proposed_results: ProposedResults
    log_accept_ratio: tf.Tensor  # [chains...]; -inf where the proposal's density was not finite
    is_accepted: tf.Tensor  # bool [chains...]
    step_size: tf.Tensor  # sigma of the next step: an adaptation replaces it


@dataclasses.dataclass(eq=False, repr=False)
class LangevinGradient(Kernel):
    """Langevin-gradient Metropolis-Hastings: :mod:`gpflow_bae.mcmc.calibrated.langevin`.

    Exact at any setting. One gradient per step, and one more in ``bootstrap_results``. With the
    defaults it is the Metropolis-adjusted Langevin algorithm; ``tfp.mcmc``'s own has neither a
    learning rate nor a gradient probability, and its ``step_size`` is the square of this one.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: sigma > 0, the noise scale: a scalar, or one per chain, with trailing ones as
        TFP has them or without. One for all parts.
    :param learning_rate: eta >= 0, a scalar or one per chain; None for sigma^2 / 2, which then
        follows an adapted step size.
    :param gradient_probability: of a gradient proposal rather than a random walk.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    target_log_prob_fn: LogProbFn
    step_size: Scalar
    learning_rate: Scalar | None = None
    gradient_probability: Scalar = 1.0
    name: str = "langevin_gradient"

    def __post_init__(self) -> None:
        validate(
            step_size=self.step_size,
            learning_rate=self.learning_rate,
            gradient_probability=self.gradient_probability,
        )

    @property
    def is_calibrated(self) -> bool:
        """True: the accept-reject step is exact."""
        return True

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: LangevinGradientKernelResults,
        seed: TensorType | None = None,
    ) -> tuple[State, LangevinGradientKernelResults]:
        """One step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            evaluation = _evaluation(
                previous.target_log_prob, _as_list(previous.grads_target_log_prob)
            )
            proposals: list[tuple[list[tf.Tensor], targets.Evaluation]] = []

            def target(proposed: list[tf.Tensor]) -> targets.Evaluation:
                # Called once in an update, at the proposal: the only place where it is to be had.
                proposals.append((proposed, self._target(proposed)))
                return proposals[-1][1]

            state = langevin.update(
                metropolis.State(parts, evaluation, metropolis.no_counts(evaluation)),
                target,
                tfp.random.sanitize_seed(seed, name=self.name),
                noise_scale=_per_chain(previous.step_size, previous.target_log_prob.shape.rank),
                learning_rate=self.learning_rate,
                gradient_probability=self.gradient_probability,
            )
            results = _results(state, *proposals[0], previous.step_size)
            return state.position if is_list else state.position[0], results

    def bootstrap_results(self, init_state: State) -> LangevinGradientKernelResults:
        """What the first step needs; nothing has been proposed yet but the state itself.

        :raises ValueError: in eager mode, if the target is not finite at ``init_state``.
        """
        with tf.name_scope(f"{self.name}.bootstrap_results"):
            parts, _ = _parts(init_state)
            state = metropolis.init(parts, self._target)
            dtype = state.evaluation.tempered.dtype
            step_size = cast_scalar(self.step_size, dtype)
            _per_chain(step_size, state.evaluation.tempered.shape.rank)
            return _results(state, parts, state.evaluation, step_size)

    def _target(self, parts: list[tf.Tensor]) -> targets.Evaluation:
        return _evaluation(*self._value_and_gradients(parts))


def _evaluation(target_log_prob: tf.Tensor, gradients: list[tf.Tensor]) -> targets.Evaluation:
    """All of it tempered: a kernel of TFP is given its target at its own temperature."""
    zeros = [tf.zeros_like(g) for g in gradients]
    return targets.Evaluation(target_log_prob, tf.zeros_like(target_log_prob), gradients, zeros)


def _results(
    state: metropolis.State,
    proposed: list[tf.Tensor],
    evaluation: targets.Evaluation,
    step_size: tf.Tensor,
) -> LangevinGradientKernelResults:
    return LangevinGradientKernelResults(
        state.evaluation.tempered,
        state.evaluation.tempered_gradient,
        proposed,
        ProposedResults(evaluation.tempered, evaluation.tempered_gradient),
        state.counts.log_accept_ratio,
        state.counts.is_accepted,
        step_size,
    )


def _per_chain(step_size: tf.Tensor, chain_ndims: int) -> tf.Tensor:
    """A step size that broadcasts with the chains; TFP's has ones for the state's dimensions."""
    extra = step_size.shape[chain_ndims:]
    if any(n != 1 for n in extra):
        raise ValueError(
            f"step_size must be a scalar or one per chain, got shape {tuple(step_size.shape)} for "
            f"{chain_ndims} chain dimension(s). For a step size per coordinate, sample a target of "
            "rescaled coordinates."
        )
    return tf.reshape(step_size, tf.shape(step_size)[:chain_ndims]) if len(extra) else step_size
