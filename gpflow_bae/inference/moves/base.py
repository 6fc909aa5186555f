"""What a move is, and what moves share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter

from ...base import Batch
from ...core import functional
from ...core.keras_module import KerasModule
from ...models import BayesianAutoencoder

__all__ = ["Move", "Moved", "number_of", "scaled"]


class Moved(NamedTuple):
    """What a move may change."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled.paths
    codes: tf.Tensor  # [T, N, L], of all points
    encoder: tuple[tf.Tensor, ...]  # its weights, in the order of model.amortized.paths


class Move(ABC):
    """A transition that leaves log p(parameters, codes | Y) invariant."""

    #: The name that settings have.
    name: str

    def __init__(self, model: BayesianAutoencoder):
        """
        :raises ValueError: for a model that the move has no meaning for.
        """
        self.model = model
        self.sampled = model.sampled

    @property
    def owned(self) -> tuple[str, ...]:
        """Paths of parameters that the sampler leaves to this move."""
        return ()

    @abstractmethod
    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        """The state after the move.

        :param batch: all points.
        :param seed: two integers, to be used once.
        """

    def _refuse(self, why: str) -> ValueError:
        return ValueError(
            f"moves holds {self.name!r}, which this model does not allow: {why} Leave it out."
        )

    def _check_outputs(self, decoder: Any, before: tf.Tensor, after: tf.Tensor, why: str) -> None:
        """Refuse a decoder that gives something else after a move than before, but for rounding.

        :raises ValueError: saying ``why``.
        """
        is_half = isinstance(decoder, KerasModule) and decoder.has_half_precision
        tolerance = 0.1 if is_half else 1e-4  # relative; what is no symmetry changes all of it
        if not np.allclose(before, after, rtol=tolerance, atol=tolerance * np.abs(before).max()):
            raise self._refuse(why)

    def _check_codes(self) -> None:
        """Refuse a model that samples something else in the place of codes."""
        if self.model.whitened_codes:
            raise self._refuse("it samples whitened_codes, and the move is for codes themselves.")

    def _log_prior_of_codes(
        self, parameters: Sequence[tf.Tensor], codes: tf.Tensor, X: Any
    ) -> tf.Tensor:
        """log p(codes | X) at other parameters, in nats."""
        bound = self.model.bind(parameters)
        return tf.reduce_sum(bound.latent_prior.log_prob(X, codes))

    def _log_prior_of(self, numbers: Sequence[int], parameters: Sequence[tf.Tensor]) -> tf.Tensor:
        """Log prior of some parameters, in unconstrained space."""
        own = self.sampled.parameters
        return functional.log_prior_density(
            [own[i] for i in numbers], [parameters[i] for i in numbers]
        )


def number_of(parameters: Sequence[Parameter]) -> Mapping[int, int]:
    """Places of parameters in a sequence, by identity."""
    return {id(parameter): i for i, parameter in enumerate(parameters)}


def scaled(parameter: Parameter, value: tf.Tensor, log_factor: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """A positive parameter times exp(log_factor), in unconstrained space, and the log Jacobian.

    The Jacobian is that of the map of unconstrained values, summed over the elements; the value is
    NaN where the transform does not reach the product.
    """
    transform = parameter.transform
    constrained = transform.forward(tf.identity(value))
    factor = tf.cast(tf.exp(log_factor), constrained.dtype)
    moved = transform.inverse(factor * constrained)
    ndims = value.shape.rank
    jacobian = transform.forward_log_det_jacobian(tf.identity(value), event_ndims=ndims)
    jacobian -= transform.forward_log_det_jacobian(tf.identity(moved), event_ndims=ndims)
    total = tf.cast(jacobian, gpflow.default_float())
    return moved, total + tf.cast(tf.size(value), total.dtype) * log_factor
