"""Base class and helpers of moves."""

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
    """The part of a chain's state that a move may change."""

    parameters: tuple[tf.Tensor, ...]  # unconstrained, in the order of model.sampled.paths
    codes: tf.Tensor  # [T, N, L], of all points
    encoder: tuple[tf.Tensor, ...]  # weights, in the order of model.amortized.paths


class Move(ABC):
    """A transition that leaves log p(parameters, codes | Y) invariant."""

    #: Name in settings.
    name: str

    def __init__(self, model: BayesianAutoencoder):
        """
        :raises ValueError: for a model that the move does not apply to.
        """
        self.model = model
        self.sampled = model.sampled

    @property
    def owned(self) -> tuple[str, ...]:
        """Paths of parameters that this move updates instead of the sampler."""
        return ()

    @abstractmethod
    def __call__(self, state: Moved, batch: Batch, seed: tf.Tensor) -> Moved:
        """Return the state after the move.

        :param batch: all points.
        :param seed: two integers, used once.
        """

    def _refuse(self, why: str) -> ValueError:
        return ValueError(
            f"moves holds {self.name!r}, which this model does not allow: {why} Leave it out."
        )

    def _check_outputs(self, decoder: Any, before: tf.Tensor, after: tf.Tensor, why: str) -> None:
        """Check that a decoder's outputs before and after a move are equal up to rounding.

        :raises ValueError: if they are not, with ``why`` as the reason.
        """
        is_half = isinstance(decoder, KerasModule) and decoder.has_half_precision
        tolerance = 0.1 if is_half else 1e-4  # relative; a broken symmetry changes outputs by more
        if not np.allclose(before, after, rtol=tolerance, atol=tolerance * np.abs(before).max()):
            raise self._refuse(why)

    def _check_codes(self) -> None:
        """Refuse a model that samples whitened codes."""
        if self.model.whitened_codes:
            raise self._refuse("it samples whitened_codes, and the move is for codes themselves.")

    def _log_prior_of_codes(
        self, parameters: Sequence[tf.Tensor], codes: tf.Tensor, X: Any
    ) -> tf.Tensor:
        """Return log p(codes | X) at given parameters, in nats."""
        bound = self.model.bind(parameters)
        return tf.reduce_sum(bound.latent_prior.log_prob(X, codes))

    def _log_prior_of(self, numbers: Sequence[int], parameters: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the log prior of some parameters, in unconstrained space."""
        own = self.sampled.parameters
        return functional.log_prior_density(
            [own[i] for i in numbers], [parameters[i] for i in numbers]
        )


def number_of(parameters: Sequence[Parameter]) -> Mapping[int, int]:
    """Return the index of each parameter in a sequence, by its ``id``."""
    return {id(parameter): i for i, parameter in enumerate(parameters)}


def scaled(parameter: Parameter, value: tf.Tensor, log_factor: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """Multiply a positive parameter by exp(log_factor), given and returned in unconstrained space.

    :return: the value, NaN if the product is outside of the transform's range, and the log Jacobian
        of the map of unconstrained values, summed over elements.
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
