"""State of a stochastic-gradient MCMC chain, and the statistics of its rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ..mcmc import State

__all__ = ["Chain", "Point", "RoundStatistics"]


class Point(NamedTuple):
    """A position of the sampler: parameters and latent codes."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled.paths
    codes: Any  # [T, N, L]; () where codes are not sampled


class Chain(NamedTuple):
    """State of one chain, or of several with a leading axis of chains in every leaf."""

    sampler: State  # whose structures are Points
    encoder: Any  # an EncoderState; () without an amortised encoder
    metric: Any = ()  # fitted by the preconditioner to the chain, such as a FisherMetric


class RoundStatistics(NamedTuple):
    """Statistics of one round."""

    log_prior: tf.Tensor  # log prior of the parameters at the end of the round
    log_likelihood: tf.Tensor  # log density of codes and observations, times N/B
    encoder_loss: tf.Tensor  # mean over the round's Adam steps
    finite: tf.Tensor  # bool, one for each leaf of position and elements
    kinetic_temperature: tf.Tensor  # mean of each leaf over the round's steps; [0] without momenta
    step_size: tf.Tensor  # [1] if the sampler's info has a step size, else [0]
