"""What completes inputs, whichever way."""

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
    """From inputs as a user has them to inputs that a kernel can take covariances of.

    Two steps: :meth:`prepare`, once, of arrays (checked; what is missing is marked), and
    :meth:`complete`, in compiled functions, of what that returned.
    """

    needs_observations = False
    """Whether inputs are completed from what is observed (:meth:`seeing`)."""
    _seed: TensorType | None = None

    @property
    def draws(self) -> bool:
        """Whether completed inputs are draws, and :meth:`divergence` is what they cost."""
        return False

    def with_seed(self: InputModelT, seed: TensorType) -> InputModelT:
        """The same, whose draws are made from ``seed``; without one means take their place."""
        if not self.draws:
            return self
        seeded = copy.copy(self)
        # Past TensorFlow's tracking of attributes, whose records a copy shares with what it is of.
        seeded.__dict__["_seed"] = seed
        return seeded

    def seeing(
        self: InputModelT, X: TensorType, Y: TensorType, mask: TensorType | None
    ) -> InputModelT:
        """The same, that knows these observations."""
        return self

    def check_known(self, Xnew: Any, X: Any, name: str = "Xnew") -> None:
        """Refuse prepared inputs that cannot be completed given those of what is observed.

        :raises ValueError: saying which.
        """

    def num_user_columns(self, num_columns: int) -> int:
        """Columns of a user's inputs, of prepared ones with ``num_columns``."""
        return num_columns

    @abstractmethod
    def prepare(self, X: np.ndarray, name: str = "X") -> np.ndarray:
        """Inputs [batch..., N, D] of a user as :meth:`complete` takes them.

        :param name: what errors call them.
        :raises ValueError: for another width, and for what there is no distribution for.
        """

    def prepare_tensor(self, X: tf.Tensor) -> tf.Tensor:
        """:meth:`prepare` of complete inputs whose values are not looked at."""
        return X

    @abstractmethod
    def complete(self, X: TensorType) -> tf.Tensor:
        """Complete inputs [batch..., N, E] of prepared ones, or of those that need no preparing."""

    def known(self, X: np.ndarray) -> np.ndarray:
        """Prepared inputs as :meth:`complete` has them at present, NaN where it has none yet."""
        with tf.init_scope():
            return np.asarray(self.complete(X))

    def divergence(self, X: TensorType, point_scale: TensorType, scale: TensorType) -> tf.Tensor:
        """The batch's share of KL[q || prior] of what it completes, in nats: [].

        Times ``scale``, N/B, it estimates the whole.

        :param X: prepared inputs of the batch.
        :param point_scale: how many points each of the batch's stands for, where they are points of
            one task; 1 where items are tasks.
        """
        return tf.zeros([], gpflow.default_float())
