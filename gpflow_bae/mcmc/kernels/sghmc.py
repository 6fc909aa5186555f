"""Stochastic-gradient Hamiltonian Monte Carlo as kernels, plain and scale-adapted."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc import adaptive_sghmc, sghmc
from gpflow_bae.mcmc.algorithm import Setting
from gpflow_bae.mcmc.kernels.base import Uncalibrated
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["SGHMC", "AdaptiveSGHMC", "AdaptiveSGHMCKernelResults", "SGHMCKernelResults"]


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


class SGHMC(Uncalibrated):
    """Stochastic-gradient Hamiltonian Monte Carlo: :mod:`gpflow_bae.mcmc.sghmc`.

    One gradient per step, and one more in ``bootstrap_results``. It begins at rest.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param integrator: ``"euler"``, ``"obabo"`` or ``"baoab"``.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range, or
        ``integrator`` is unknown.
    """

    _build = staticmethod(sghmc.build)
    _results_type = SGHMCKernelResults

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Setting,
        momentum_decay: Setting,
        temperature: Setting = 1.0,
        noise: str = "gaussian",
        integrator: str = "euler",
        name: str = "sghmc",
    ) -> None:
        super().__init__(locals())


class AdaptiveSGHMC(Uncalibrated):
    """Scale-adapted SGHMC: :mod:`gpflow_bae.mcmc.adaptive_sghmc`.

    It adapts in the first ``num_adaptation_steps`` steps, which should be discarded, and is frozen
    after them. Each chain adapts by itself. It begins at rest, with the statistics at one.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1].
    :param num_adaptation_steps: how many steps adapt, at most ``num_burnin_steps``.
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param subtract_gradient_noise: include eq. 17's - h^4; for noisy gradients only.
    :param jitter: added to the mean square gradient in the preconditioner.
    :param integrator: ``"euler"``, ``"obabo"`` or ``"baoab"``.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range, or
        ``integrator`` is unknown or does not go with ``subtract_gradient_noise``.
    """

    _build = staticmethod(adaptive_sghmc.build)
    _results_type = AdaptiveSGHMCKernelResults

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Setting,
        momentum_decay: Setting,
        num_adaptation_steps: int | TensorType,
        temperature: Setting = 1.0,
        noise: str = "gaussian",
        subtract_gradient_noise: bool = False,
        jitter: Setting = 1e-6,
        integrator: str = "euler",
        name: str = "adaptive_sghmc",
    ) -> None:
        super().__init__(locals())
