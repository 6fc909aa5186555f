"""Langevin-gradient Metropolis-Hastings as a TFP kernel.

For a random walk and Hamiltonian Monte Carlo use TFP's ``tfp.mcmc.RandomWalkMetropolis`` and
``tfp.mcmc.HamiltonianMonteCarlo``.
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
    """The target and its gradient at the proposal, a list with one entry per part."""

    target_log_prob: tf.Tensor
    grads_target_log_prob: list[tf.Tensor]


class LangevinGradientKernelResults(NamedTuple):
    """Results of :class:`LangevinGradient`; structures are lists with one entry per part.

    ``ReplicaExchangeMC`` and TFP's step-size adaptations use these names.
    """

    target_log_prob: tf.Tensor  # of the returned state, [chains...]
    grads_target_log_prob: list[tf.Tensor]  # of the returned state
    proposed_state: list[tf.Tensor]
    proposed_results: ProposedResults
    log_accept_ratio: tf.Tensor  # [chains...]; -inf if the proposal's density was not finite
    is_accepted: tf.Tensor  # bool [chains...]
    step_size: tf.Tensor  # sigma of the next step, which adaptations replace


@dataclasses.dataclass(eq=False, repr=False)
class LangevinGradient(Kernel):
    """Langevin-gradient Metropolis-Hastings: :mod:`gpflow_bae.mcmc.calibrated.langevin`.

    It is exact at any setting, with one gradient per step, and one more in ``bootstrap_results``.
    With the defaults it is the Metropolis-adjusted Langevin algorithm; that of ``tfp.mcmc`` has
    neither a learning rate nor a gradient probability, and its ``step_size`` is the square of this.

    :param target_log_prob_fn: log density, a function of the parts, one number per chain.
    :param step_size: sigma > 0, the noise scale of all parts: a scalar, or one per chain, with or
        without trailing ones as in TFP.
    :param learning_rate: eta >= 0, a scalar or one per chain; None for sigma^2 / 2, also with an
        adapted step size.
    :param gradient_probability: probability of a gradient proposal instead of a random walk.
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
        """True, as the accept-reject step is exact."""
        return True

    def one_step(
        self,
        current_state: State,
        previous_kernel_results: LangevinGradientKernelResults,
        seed: TensorType | None = None,
    ) -> tuple[State, LangevinGradientKernelResults]:
        """Take one step from ``current_state``; ``seed`` as in TFP."""
        with tf.name_scope(f"{self.name}.one_step"):
            parts, is_list = _parts(current_state)
            previous = previous_kernel_results
            evaluation = _evaluation(
                previous.target_log_prob, _as_list(previous.grads_target_log_prob)
            )
            proposals: list[tuple[list[tf.Tensor], targets.Evaluation]] = []

            def target(proposed: list[tf.Tensor]) -> targets.Evaluation:
                # An update calls this once, at the proposal, which it does not return.
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
        """Return the kernel results at ``init_state``, with the state itself as the proposal.

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
    """Return an evaluation without untempered part, as TFP's target includes its temperature."""
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
    """Return a step size that broadcasts with the chains, without TFP's trailing ones."""
    extra = step_size.shape[chain_ndims:]
    if any(n != 1 for n in extra):
        raise ValueError(
            f"step_size must be a scalar or one per chain, got shape {tuple(step_size.shape)} for "
            f"{chain_ndims} chain dimension(s). For a step size per coordinate, sample a target of "
            "rescaled coordinates."
        )
    return tf.reshape(step_size, tf.shape(step_size)[:chain_ndims]) if len(extra) else step_size
