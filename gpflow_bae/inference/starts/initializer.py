"""Base class of initialisations of chains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import Observations
from ..runs.checkpoints import RunDirectory, folder_of_part

__all__ = ["Initializer"]


class Initializer(ABC):
    """An initialisation of chains, which sets a model's parameters before sampling.

    ``warm_start`` of :func:`~gpflow_bae.inference.sample_amortized` and ``start`` of
    :class:`~gpflow_bae.inference.TemperedSettings` take instances of subclasses, including yours.
    """

    @property
    def networks(self) -> tuple[tf.Module, ...]:
        """Networks outside the model that :meth:`run` changes."""
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
        """Set the model's parameters to the initial values of a chain.

        :param seed: seed of all random numbers.
        :param directory: folder of checkpoints, from which an interrupted start continues; None
            keeps none.
        :return: initial codes [T, N, L], None for models without codes, and the losses of the fit.
        """

    def run_as_part(
        self,
        model: Any,
        data: Observations,
        directory: RunDirectory | None,
        name: str,
        *,
        seed: int,
        **options: bool,
    ) -> tuple[tf.Tensor | None, np.ndarray]:
        """Call :meth:`run` as a part of a run, with checkpoints in a subfolder of that one's.

        :param name: name of the subfolder.
        :param options: ``jit_compile`` and ``progress``.
        """
        folder = folder_of_part(directory, name, {"start": self.describe(), "seed": seed})
        return self.run(model, data, seed=seed, directory=folder, **options)
