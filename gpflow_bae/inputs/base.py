"""Base class of models of unknown inputs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["InputModel"]

InputModelT = TypeVar("InputModelT", bound="InputModel")


class InputModel(gpflow.Module, ABC):
    """A map from a user's inputs to complete inputs of a kernel.

    It has two steps: :meth:`prepare` checks arrays and marks missing entries, once, and
    :meth:`complete` completes prepared inputs in compiled functions.
    """

    needs_observations = False
    """Whether inputs are completed from observations (:meth:`seeing`)."""
    _seed: TensorType | None = None

    @property
    def draws(self) -> bool:
        """Whether completed inputs are draws of q, with the KL term :meth:`divergence`."""
        return False

    def with_seed(self: InputModelT, seed: TensorType) -> InputModelT:
        """Return this model with draws made from ``seed``; without a seed it uses means."""
        if not self.draws:
            return self
        seeded = copy.copy(self)
        # This bypasses TensorFlow's attribute tracking, whose records the copy shares.
        seeded.__dict__["_seed"] = seed
        return seeded

    def seeing(
        self: InputModelT, X: TensorType, Y: TensorType, mask: TensorType | None
    ) -> InputModelT:
        """Return this model conditioned on these observations, if it needs any."""
        return self

    def check_known(self, Xnew: Any, X: Any, name: str = "Xnew") -> None:
        """Check that prepared inputs can be completed given the observed inputs ``X``.

        :raises ValueError: if not, with the inputs that cannot.
        """

    def num_user_columns(self, num_columns: int) -> int:
        """Return the number of a user's columns, given that of prepared inputs."""
        return num_columns

    @abstractmethod
    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """Convert a user's inputs [batch..., N, D] to the argument of :meth:`complete`.

        :param name: name of the inputs in error messages.
        :raises ValueError: for another width, and for missing entries that are not modelled.
        """

    def prepare_tensor(self, X: tf.Tensor) -> tf.Tensor:
        """Convert complete inputs as :meth:`prepare` does, without checks of values."""
        return X

    @abstractmethod
    def complete(self, X: TensorType) -> tf.Tensor:
        """Complete prepared inputs, or ones that need no preparation: [batch..., N, E]."""

    def known(self, X: np.ndarray) -> np.ndarray:
        """Return the current completion of prepared inputs, NaN where there is none yet."""
        with tf.init_scope():
            return np.asarray(self.complete(X))

    def divergence(self, X: TensorType, point_scale: TensorType, scale: TensorType) -> tf.Tensor:
        """Return the batch's share of KL[q || prior] of unknown inputs, in nats: [].

        Times ``scale``, N/B, it estimates the total.

        :param X: prepared inputs of the batch.
        :param point_scale: N/B if items are points of one task; 1 if items are tasks.
        """
        return tf.zeros([], gpflow.default_float())
