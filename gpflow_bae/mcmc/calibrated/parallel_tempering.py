r"""Parallel tempering: replicas exchange their temperatures.

Replica r samples :math:`\pi_\beta`, the likelihood to the power beta times the prior, at the
inverse temperature beta of its rung. In a swap, neighbouring rungs i and j with
log likelihoods l_i and l_j exchange their replicas with probability

.. math:: \min(1, \exp[(\beta_i - \beta_j) (l_j - l_i)]) ,

alternately the pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... (Okabe et al. 2001; Syed et al.
2022). Temperatures are exchanged, not states: two numbers per replica instead of
a million weights, and nothing is evaluated again, because an
:class:`~gpflow_bae.mcmc.calibrated.targets.Evaluation` is valid at every temperature.

**Stationary distribution**: the product of the rungs' densities, exactly, if the kernel of the
replicas is calibrated. The replica on rung 0 samples the posterior (beta = 1).

Statistics count only pairs of rungs whose temperatures differ: swaps between equal temperatures
are always accepted.

References:

- Okabe, Kawata, Okamoto, Mikami (2001). Replica-exchange Monte Carlo method for the
  isobaric-isothermal ensemble. Chem. Phys. Lett. 335.
- Syed, Bouchard-Cote, Deligiannidis, Doucet (2022). Non-reversible parallel tempering. JRSS B 84.
- Chandra, Jain, Maharana, Krivitsky (2022). Revisiting Bayesian autoencoders with MCMC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_bae.mcmc.noise import uniform
from gpflow_bae.mcmc.schedules import check_ladder
from gpflow_bae.mcmc.types import Seed

__all__ = ["State", "by_rung", "init", "inverse_temperature", "swap", "swap_rate"]


class State(NamedTuple):
    """R replicas, the last chain dimension of the kernel's state, and their rungs."""

    replicas: Any  # state of a calibrated kernel, chains [ensembles..., R]
    rung: tf.Tensor  # int32 [ensembles..., R]; rung 0 is that of the posterior
    ladder: tf.Tensor  # inverse temperatures of the rungs [R], decreasing from 1
    num_swaps: tf.Tensor  # int32 scalar, number of rounds of swaps
    num_proposed: tf.Tensor  # int32 [ensembles..., R - 1], between rungs k and k + 1
    num_accepted: tf.Tensor  # int32 [ensembles..., R - 1]


def init(replicas: Any, temperatures: Sequence[float] | np.ndarray) -> State:
    """Return the initial state, with replica r on rung r.

    :param replicas: state of a calibrated kernel (it has an ``evaluation``) whose last chain
        dimension is the ladder's length.
    :param temperatures: increasing from 1; see
        :func:`~gpflow_bae.mcmc.schedules.geometric_ladder`.
    :raises TypeError: for the state of a sampler without accept-reject step.
    :raises ValueError: for an invalid ladder, or one of another length.
    """
    temperatures = check_ladder(temperatures)
    if not hasattr(replicas, "evaluation"):
        raise TypeError(
            "Parallel tempering is exact only over a calibrated kernel, whose state holds an "
            f"evaluation of the target; got a {type(replicas).__module__}.{type(replicas).__name__}"
            ". Use random_walk, langevin or adaptive_langevin."
        )
    shape = replicas.evaluation.tempered.shape
    num_replicas = len(temperatures)
    if shape.rank < 1 or shape[-1] != num_replicas:
        raise ValueError(
            f"The ladder has {num_replicas} temperatures but the chains of the replicas have shape "
            f"{tuple(shape)}: the last chain dimension must be {num_replicas}."
        )
    rung = tf.broadcast_to(tf.range(num_replicas), shape)
    zeros = tf.zeros(shape[:-1] + [num_replicas - 1], tf.int32)
    ladder = tf.constant(1.0 / temperatures, replicas.evaluation.tempered.dtype)
    return State(replicas, rung, ladder, tf.zeros([], tf.int32), zeros, zeros)


def inverse_temperature(state: State) -> tf.Tensor:
    """Return the inverse temperature of each replica [ensembles..., R], for ``update``."""
    return tf.gather(state.ladder, state.rung)


def by_rung(values: tf.Tensor, state: State) -> tf.Tensor:
    """Reorder ``values [ensembles..., R, ...]`` of replicas by their rungs."""
    return tf.gather(
        values, tf.argsort(state.rung, axis=-1), axis=state.rung.shape.rank - 1,
        batch_dims=state.rung.shape.rank - 1,
    )  # fmt: skip


def swap(state: State, seed: Seed) -> State:
    """Swap neighbouring rungs in one round, without evaluations.

    :param seed: two integers, used once.
    """
    num_rungs = int(state.ladder.shape[0])
    rungs = tf.range(num_rungs)
    parity = state.num_swaps % 2
    # The partner of each rung in this round: the next one if both are even or both are odd.
    partner = tf.where(rungs % 2 == parity, rungs + 1, rungs - 1)
    partner = tf.where((partner < 0) | (partner >= num_rungs), rungs, partner)
    tempered = by_rung(state.replicas.evaluation.tempered, state)
    beta = state.ladder
    log_ratio = (beta - tf.gather(beta, partner)) * (
        tf.gather(tempered, partner, axis=-1) - tempered
    )
    draws = uniform(tf.shape(tempered), seed, tempered.dtype)
    draws = tf.gather(draws, tf.minimum(rungs, partner), axis=-1)  # both rungs use the same number
    accepted = (tf.math.log(draws) < log_ratio) & (partner != rungs)

    replica = tf.argsort(state.rung, axis=-1)  # [ensembles..., R], the replica on each rung
    replica = tf.where(accepted, tf.gather(replica, partner, axis=-1), replica)
    counted = (partner > rungs) & (beta != tf.gather(beta, partner))
    proposed = tf.cast(counted, tf.int32)[:-1]
    return state._replace(
        rung=tf.argsort(replica, axis=-1),
        num_swaps=state.num_swaps + 1,
        num_proposed=state.num_proposed + proposed,
        num_accepted=state.num_accepted + proposed * tf.cast(accepted, tf.int32)[..., :-1],
    )


def swap_rate(state: State) -> np.ndarray:
    """Return the fraction of accepted swaps between rungs k and k + 1, over ensembles: [R - 1].

    NaN for pairs that were never proposed, or had equal temperatures.
    """
    axes = tuple(range(state.num_proposed.shape.rank - 1))
    proposed = np.sum(state.num_proposed, axis=axes, dtype=float)
    accepted = np.sum(state.num_accepted, axis=axes, dtype=float)
    return np.divide(accepted, proposed, out=np.full_like(proposed, np.nan), where=proposed > 0)
