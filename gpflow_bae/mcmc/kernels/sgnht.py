"""The stochastic-gradient Nosé-Hoover thermostat as a kernel."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from gpflow_bae.mcmc import sgnht
from gpflow_bae.mcmc.algorithm import SamplingAlgorithm, Setting
from gpflow_bae.mcmc.kernels.base import Uncalibrated
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["SGNHT", "SGNHTKernelResults"]


class SGNHTKernelResults(NamedTuple):
    """What :class:`SGNHT` carries; the structures are lists, one entry per part."""

    target_log_prob: tf.Tensor  # of the state returned beside it
    grads_target_log_prob: list[tf.Tensor]  # likewise
    momentum: list[tf.Tensor]
    thermostat: tf.Tensor  # one number per chain
    step: tf.Tensor  # int32, steps taken


class SGNHT(Uncalibrated):
    """Stochastic-gradient Nosé-Hoover thermostat: :mod:`gpflow_bae.mcmc.sgnht`.

    A thermostat for each chain, that is for each number that ``target_log_prob_fn`` returns. One
    gradient per step, and one more in ``bootstrap_results``. It begins at rest.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain.
    :param step_size: h > 0.
    :param momentum_decay: a in (0, 1], the size of the noise that is added.
    :param temperature: T >= 0; samples density ** (1 / T).
    :param noise: ``"gaussian"`` or ``"binomial"``.
    :param name: prefix of the operations' names.
    :raises ValueError: if a setting given as a Python number is out of its range.
    """

    _build = staticmethod(sgnht.build)
    _results_type = SGNHTKernelResults

    def __init__(
        self,
        target_log_prob_fn: LogProbFn,
        step_size: Setting,
        momentum_decay: Setting,
        temperature: Setting = 1.0,
        noise: str = "gaussian",
        name: str = "sgnht",
    ) -> None:
        super().__init__(locals())

    def _algorithm(self, chain_ndims: int) -> SamplingAlgorithm:
        return sgnht.build(**self._settings(), chain_ndims=chain_ndims)
