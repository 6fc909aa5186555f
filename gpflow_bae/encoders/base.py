"""Base classes of encoders, which map observations to draws of their codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gpflow
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["DensityEncoder", "Encoder", "RowCodes", "append_mask"]

# Fixed standard normals of a shape and type.
Noise: TypeAlias = Callable[[tuple[int, ...], tf.DType], tf.Tensor]


class RowCodes(NamedTuple):
    """Codes of independent rows: moments and draws."""

    mean: tf.Tensor  # [rows, L]
    variance: tf.Tensor  # [rows, L]
    draws: tf.Tensor  # [draws, rows, L]

    @classmethod
    def gaussian(
        cls, mean: tf.Tensor, variance: tf.Tensor, noise: Noise, num_draws: int
    ) -> RowCodes:
        """Return Gaussian codes whose draws share their noise between rows."""
        xi = noise((num_draws, 1, mean.shape[-1]), mean.dtype)
        return cls(mean, variance, mean + tf.sqrt(variance) * xi)


class Encoder(gpflow.Module, ABC):
    """An amortised sampler of codes: ``Y [batch..., N, P]`` to ``latents [batch..., N, L]``.

    Subclasses have ``latent_dim`` and :meth:`sample`. ``Y`` is zero where missing.
    """

    latent_dim: int
    takes_mask = False
    """Whether calls take ``mask [batch..., N, P]``, True where observed, None if nothing is
    missing."""
    takes_indices = False
    """Whether it has codes of the training data only, so that calls take :attr:`Batch.indices`."""

    @abstractmethod
    def sample(self, Y: TensorType, seed: TensorType, **side: Any) -> tf.Tensor:
        """Draw the codes [batch..., N, L] once; equal seeds give equal draws."""

    def side_inputs(
        self, mask: TensorType | None, indices: TensorType | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments of a call beside the observations.

        :param indices: indices of the items in the training data, as in
            :class:`~gpflow_bae.base.Batch`; None for all of them.
        """
        wanted: dict[str, Any] = {}
        if self.takes_mask:
            wanted["mask"] = mask
        if self.takes_indices:
            wanted["indices"] = indices
        return wanted

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables with a row for each item (the first axis); () if codes are amortised."""
        return ()

    def codes_of_rows(
        self, Y: tf.Tensor, mask: tf.Tensor | None, noise: Noise, num_draws: int
    ) -> RowCodes:
        """Return codes of rows ``Y [rows, P]`` whose draws share their noise, for serving.

        :raises TypeError: if the encoder does not implement this.
        """
        raise TypeError(
            f"{type(self).__name__} has no codes_of_rows, which serving needs: derive it from "
            "BaseGaussianEncoder or StochasticEncoder, or write that method."
        )


class DensityEncoder(Encoder):
    """An encoder whose draws have a density."""

    @abstractmethod
    def log_prob(self, Y: TensorType, latents: TensorType, **side: Any) -> tf.Tensor:
        """Return the log density [batch..., N] of ``latents [batch..., N, L]`` given ``Y``."""


def append_mask(Y: TensorType, mask: TensorType | None, num_outputs: int) -> tf.Tensor:
    """Concatenate ``Y`` and the mask as 0 and 1: the inputs [batch..., N, 2 P] of a network.

    :param num_outputs: P of the network.
    :raises ValueError: if ``Y`` has another number of columns.
    """
    Y = tf.convert_to_tensor(Y)
    if Y.shape[-1] != num_outputs:
        raise ValueError(
            f"Y has P = {Y.shape[-1]} columns, but the encoder's network takes observations and "
            f"mask of {num_outputs} outputs."
        )
    seen = tf.ones_like(Y) if mask is None else tf.cast(mask, Y.dtype)
    return tf.concat([Y, seen], axis=-1)
