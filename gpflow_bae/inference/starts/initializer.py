"""What every start of chains is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import Observations
from ..runs.checkpoints import RunDirectory

__all__ = ["Initializer"]


class Initializer(ABC):
    """Where chains start: it moves a model to values worth starting from.

    ``warm_start`` of :func:`~gpflow_bae.inference.sample_amortized` and ``start`` of
    :class:`~gpflow_bae.inference.TemperedSettings` take one, or one of your own.
    """

    @property
    def networks(self) -> tuple[tf.Module, ...]:
        """Networks of its own that :meth:`run` changes beside the model."""
        return ()

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the settings as plain values, for records of a run."""

    @abstractmethod
    def run(
        self,
        model: Any,
        data: Observations,
        *,
        seed: int,
        jit_compile: bool = False,
        progress: bool = True,
        directory: RunDirectory | None = None,
    ) -> tuple[tf.Tensor | None, np.ndarray]:
        """Leave the model where a chain is to start.

        :param seed: of everything random.
        :param directory: where parts of it keep their checkpoints, so that a start that was killed
            goes on from them; None keeps none.
        :return: codes [T, N, L] to start from, None for models without codes, and the losses on
            the way.
        """
