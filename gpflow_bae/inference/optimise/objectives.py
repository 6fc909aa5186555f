"""Objectives of variational training: the ELBO, the beta-weighted ELBO, and GECO."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gpflow
import tensorflow as tf

from ...base import Batch, VariationalTerms
from ...core.annotations import check_fields

__all__ = ["GECO", "EvidenceLowerBound", "GECOState", "Objective"]


@runtime_checkable
class Objective(Protocol):
    """A loss computed from the bound's terms, with a state that is updated in each step."""

    def initial_state(self) -> Any:
        """Return the initial state, a structure of tensors."""
        ...

    def loss(
        self, terms: VariationalTerms, batch: Batch, likelihood: Any, state: Any
    ) -> tuple[tf.Tensor, Any]:
        """Return the loss of the batch, in nats summed over its items, and the next state."""
        ...


@dataclasses.dataclass(frozen=True)
class EvidenceLowerBound:
    """Negative ELBO, -(E_q[log p(Y | latents)] - beta KL); beta = 1 is the standard ELBO."""

    beta: float = 1.0
    """Weight of the KL divergence (Higgins et al. 2017)."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("beta",))

    def initial_state(self) -> tuple[()]:
        """Return an empty state."""
        return ()

    def loss(
        self, terms: VariationalTerms, batch: Batch, likelihood: Any, state: tuple[()]
    ) -> tuple[tf.Tensor, tuple[()]]:
        """Return the negative beta-weighted ELBO, and the empty state."""
        return self.beta * terms.divergence - terms.expected_log_likelihood, state


class GECOState(NamedTuple):
    """State of GECO."""

    log_multiplier: tf.Tensor  # []
    constraint: tf.Tensor  # [], moving average of the violation
    steps: tf.Tensor  # [], number of steps taken


@dataclasses.dataclass(frozen=True)
class GECO:
    r"""Minimise the KL with a reconstruction error of at most ``tolerance`` (Rezende, Viola 2018).

    With C the mean squared error per observed entry minus ``tolerance``, and P entries per point,

    .. math:: loss = KL + \lambda P \, C, \qquad
        C_{ma} \leftarrow \alpha C_{ma} + (1 - \alpha) C, \qquad
        \lambda \leftarrow \lambda \exp(\eta \, C_{ma}),

    so the adaptive multiplier lambda takes the place of 1 / (2 noise variance). The loss has the
    value of the moving average and the gradient of the current batch, as in Jazbec et al. (2021).
    This loss does not fit the noise variance of a Gaussian likelihood; set it to the tolerance
    afterwards if you need predictive variances.
    """

    tolerance: float = 0.020
    """kappa squared: the allowed mean squared error per entry, in squared units of Y."""
    smoothing: float = 0.99
    """alpha, smoothing factor of the moving average."""
    rate: float = 1.0
    """eta, learning rate of the multiplier."""
    initial_multiplier: float = 1.0
    max_multiplier: float = 1e6
    """The multiplier is clipped to [1 / max_multiplier, max_multiplier]."""

    def __post_init__(self) -> None:
        positive = ("tolerance", "rate", "initial_multiplier", "max_multiplier")
        check_fields(self, positive=positive)
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing of GECO must lie in [0, 1), got {self.smoothing}.")

    def initial_state(self) -> GECOState:
        """Return the initial multiplier, with an empty moving average."""
        dtype = gpflow.default_float()
        multiplier = tf.math.log(tf.constant(self.initial_multiplier, dtype))
        return GECOState(multiplier, tf.zeros([], dtype), tf.zeros([], tf.int32))

    def loss(
        self, terms: VariationalTerms, batch: Batch, likelihood: Any, state: GECOState
    ) -> tuple[tf.Tensor, GECOState]:
        """Return KL + multiplier * constraint for observed entries of the batch, and the state."""
        mean, _ = likelihood.moments(terms.F)
        residual = mean - tf.cast(batch.Y, mean.dtype)
        count = tf.cast(tf.size(residual), terms.divergence.dtype)
        if batch.mask is not None:
            residual = tf.where(batch.mask, residual, tf.zeros_like(residual))
            count = tf.reduce_sum(tf.cast(batch.mask, terms.divergence.dtype))
        squares = tf.cast(tf.reduce_sum(tf.square(residual)), terms.divergence.dtype)
        constraint = squares / count - self.tolerance
        present = tf.stop_gradient(constraint)
        # The first batch initialises the moving average.
        smoothing = self.smoothing * tf.cast(state.steps > 0, present.dtype)
        average = smoothing * state.constraint + (1.0 - smoothing) * present
        multiplier = tf.exp(state.log_multiplier)
        loss = terms.divergence + multiplier * count * (constraint + average - present)
        limit = tf.math.log(tf.cast(self.max_multiplier, present.dtype))
        log_multiplier = state.log_multiplier + self.rate * average
        log_multiplier = tf.clip_by_value(log_multiplier, -limit, limit)
        return loss, GECOState(log_multiplier, average, state.steps + 1)
