"""What a chain of stochastic-gradient MCMC holds, and what its rounds report."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ..mcmc import State

__all__ = ["Chain", "Point", "RoundStatistics"]


class Point(NamedTuple):
    """A position of the sampler."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled.paths
    codes: Any  # [T, N, L]; () where codes are not sampled


class Chain(NamedTuple):
    """Where one chain is; with a leading axis of chains in every leaf, where all are."""

    sampler: State  # its structures are Points
    encoder: Any  # an EncoderState; () where nothing is amortised
    metric: Any = ()  # what the preconditioner has fitted to the chain, such as a FisherMetric


class RoundStatistics(NamedTuple):
    """What a round reports."""

    log_prior: tf.Tensor  # of the parameters, at the end of the round
    log_likelihood: tf.Tensor  # of codes and observations, times N/B
    encoder_loss: tf.Tensor  # mean over the round's Adam steps
    finite: tf.Tensor  # bool, one for each leaf of position and elements
    kinetic_temperature: tf.Tensor  # of each leaf, a mean over the round's steps; [0] of no momenta
    step_size: tf.Tensor  # [1] of a sampler that says it in its info, [0] of others
