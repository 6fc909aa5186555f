"""TFP kernels of the samplers without an accept-reject step.

All take ``target_log_prob_fn``, a function of the parts that returns one number per chain, and the
settings of their module's ``update``, which may be schedules of the step number. There is one
gradient per step, and one more in ``bootstrap_results``. Adaptation is in the first
``num_adaptation_steps`` steps (at most ``num_burnin_steps``: discard them), for each chain
separately. Settings given as Python numbers are checked when a kernel is made.
"""

from __future__ import annotations

import dataclasses

from gpflow.base import TensorType

from gpflow_bae.mcmc import adaptive_sghmc, sghmc, sgld
from gpflow_bae.mcmc.algorithm import Setting
from gpflow_bae.mcmc.kernels.base import Uncalibrated
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["SGHMC", "SGLD", "AdaptiveSGHMC"]


@dataclasses.dataclass(eq=False, repr=False)
class SGLD(Uncalibrated):
    """Stochastic-gradient Langevin dynamics: :mod:`gpflow_bae.mcmc.sgld`."""

    _build = staticmethod(sgld.build)

    target_log_prob_fn: LogProbFn
    step_size: Setting
    temperature: Setting = 1.0
    noise: str = "gaussian"
    name: str = "sgld"


@dataclasses.dataclass(eq=False, repr=False)
class SGHMC(Uncalibrated):
    """Stochastic-gradient Hamiltonian Monte Carlo: :mod:`gpflow_bae.mcmc.sghmc`."""

    _build = staticmethod(sghmc.build)
    _carried = ("momentum",)

    target_log_prob_fn: LogProbFn
    step_size: Setting
    momentum_decay: Setting
    temperature: Setting = 1.0
    noise: str = "gaussian"
    integrator: str = "euler"
    name: str = "sghmc"


@dataclasses.dataclass(eq=False, repr=False)
class AdaptiveSGHMC(Uncalibrated):
    """Scale-adapted SGHMC: :mod:`gpflow_bae.mcmc.adaptive_sghmc`."""

    _build = staticmethod(adaptive_sghmc.build)
    _carried = ("momentum", "tau", "mean_gradient", "mean_square_gradient")

    target_log_prob_fn: LogProbFn
    step_size: Setting
    momentum_decay: Setting
    num_adaptation_steps: int | TensorType
    temperature: Setting = 1.0
    noise: str = "gaussian"
    subtract_gradient_noise: bool = False
    jitter: Setting = 1e-6
    integrator: str = "euler"
    name: str = "adaptive_sghmc"
