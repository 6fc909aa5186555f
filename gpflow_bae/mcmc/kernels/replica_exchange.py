"""TFP's replica exchange with a checked ladder, over a calibrated kernel only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_bae.mcmc.schedules import check_ladder
from gpflow_bae.mcmc.types import LogProbFn

__all__ = ["replica_exchange"]


def replica_exchange(
    target_log_prob_fn: LogProbFn,
    temperatures: Sequence[float] | np.ndarray,
    make_kernel_fn: Callable[[LogProbFn], tfp.mcmc.TransitionKernel],
    *,
    swap_interval: int = 1,
    untempered_log_prob_fn: LogProbFn | None = None,
    state_includes_replicas: bool = False,
    dtype: tf.DType = tf.float32,
) -> tfp.mcmc.ReplicaExchangeMC:
    """``tfp.mcmc.ReplicaExchangeMC`` whose neighbours swap in even and odd rounds by turns.

    TFP's kernel takes whatever ladder and whatever inner kernel it is given, and calls the result
    calibrated. The chains' dimensions begin with the replicas: a step size per replica has the
    shape [R, 1, ...], of the state's rank. It exchanges states, and evaluates the target again
    after each step; :mod:`gpflow_bae.mcmc.parallel_tempering` exchanges temperatures, and does not.

    :param target_log_prob_fn: log density; takes the parts, returns one number per chain. The
        part that temperature acts on, if there is another.
    :param temperatures: increasing from 1, [R]; see
        :func:`~gpflow_bae.mcmc.schedules.geometric_ladder`.
    :param make_kernel_fn: takes a log density, returns a calibrated kernel: our
        :class:`~gpflow_bae.mcmc.kernels.LangevinGradient`, ``tfp.mcmc.RandomWalkMetropolis``,
        ``tfp.mcmc.HamiltonianMonteCarlo``, ...
    :param swap_interval: steps between swaps.
    :param untempered_log_prob_fn: log density that temperature leaves alone: the log prior.
    :param state_includes_replicas: as in TFP: the states' first dimension is R.
    :param dtype: of the log density.
    :raises ValueError: if the ladder is invalid, ``swap_interval`` is not a whole number above 0,
        or the inner kernel is not calibrated.
    """
    ladder = check_ladder(temperatures)
    if not isinstance(swap_interval, int) or swap_interval < 1:
        raise ValueError(
            f"swap_interval must be a whole number of steps, at least 1, got {swap_interval!r}."
        )
    kernel = make_kernel_fn(target_log_prob_fn)
    if not kernel.is_calibrated:
        raise ValueError(
            "Replica exchange is exact only over a calibrated kernel, one with an accept-reject "
            f"step; make_kernel_fn returned a {type(kernel).__name__}, which has none. Use "
            "gpflow_bae.mcmc.LangevinGradient, or a calibrated kernel of tfp.mcmc."
        )
    # TFP's period is ceil(1 / frequency) in float32, and so 62 where 1 / 61 is asked for; half a
    # step less, which ceil makes good, is safe.
    swaps = tfp.mcmc.even_odd_swap_proposal_fn(1.0 / (swap_interval - 0.5))
    is_split = untempered_log_prob_fn is not None
    return tfp.mcmc.ReplicaExchangeMC(
        target_log_prob_fn=None if is_split else target_log_prob_fn,
        inverse_temperatures=tf.constant(1.0 / ladder, dtype),
        make_kernel_fn=make_kernel_fn,
        swap_proposal_fn=swaps,
        state_includes_replicas=state_includes_replicas,
        untempered_log_prob_fn=untempered_log_prob_fn,
        tempered_log_prob_fn=target_log_prob_fn if is_split else None,
        name="replica_exchange",
    )
