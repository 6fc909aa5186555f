"""Stochastic-gradient Langevin dynamics as kernels, plain and preconditioned."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from gpflow_bae.mcmc import preconditioned_sgld, sgld
from gpflow_bae.mcmc.algorithm import Setting
from gpflow_bae.mcmc.kernels.base import Uncalibrated
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["SGLD", "PreconditionedSGLD", "PreconditionedSGLDKernelResults", "SGLDKernelResults"]


class SGLDKernelResults(NamedTuple):
    """What :class:`SGLD` carries; the structures are lists, one entry per part."""

    target_log_prob: tf.Tensor  # of the state returned beside it
    grads_target_log_prob: list[tf.Tensor]  # likewise
    step: tf.Tensor  # int32, steps taken


class PreconditionedSGLDKernelResults(NamedTuple):
    """What :class:`PreconditionedSGLD` carries; the structures are lists, one entry per part."""

    target_log_prob: tf.Tensor  # of the state returned beside it
    grads_target_log_prob: list[tf.Tensor]  # likewise
    mean_square_gradient: list[tf.Tensor]
    step: tf.Tensor  # int32, steps taken


class SGLD(Uncalibrated):
    """Stochastic-gradient Langevin dynamics: :mod:`gpflow_bae.mcmc.sgld`.

    One gradient per step, and one more in ``bootstrap_results``.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: e > 0.
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    _build = staticmethod(sgld.build)
    _results_type = SGLDKernelResults

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Setting,
        temperature: Setting = 1.0,
        noise: str = "gaussian",
        name: str = "sgld",
    ) -> None:
        super().__init__(locals())


class PreconditionedSGLD(Uncalibrated):
    """SGLD with RMSprop's preconditioner: :mod:`gpflow_bae.mcmc.preconditioned_sgld`.

    It adapts in the first ``num_adaptation_steps`` steps, which should be discarded, and is frozen
    after them. Each chain adapts by itself.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: e > 0.
    :param num_adaptation_steps: how many steps adapt, at most ``num_burnin_steps``.
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param gradient_decay: d in [0, 1), of the running mean of the squared gradient.
    :param jitter: added to the root mean square gradient in the preconditioner.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    _build = staticmethod(preconditioned_sgld.build)
    _results_type = PreconditionedSGLDKernelResults

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Setting,
        num_adaptation_steps: int | TensorType,
        temperature: Setting = 1.0,
        noise: str = "gaussian",
        gradient_decay: Setting = 0.99,
        jitter: Setting = 1e-5,
        name: str = "preconditioned_sgld",
    ) -> None:
        super().__init__(locals())
