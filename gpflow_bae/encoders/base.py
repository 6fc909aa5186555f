"""What every encoder is: a map from observations to draws of their codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gpflow
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["DensityEncoder", "Encoder", "RowCodes", "append_mask"]

# Standard normals of a shape and type, always the same ones.
Noise: TypeAlias = Callable[[tuple[int, ...], tf.DType], tf.Tensor]


class RowCodes(NamedTuple):
    """Codes of rows, each by itself."""

    mean: tf.Tensor  # [rows, L]
    variance: tf.Tensor  # [rows, L]
    draws: tf.Tensor  # [draws, rows, L]

    @classmethod
    def gaussian(
        cls, mean: tf.Tensor, variance: tf.Tensor, noise: Noise, num_draws: int
    ) -> RowCodes:
        """Those with Gaussian draws, of which all rows share the noise."""
        xi = noise((num_draws, 1, mean.shape[-1]), mean.dtype)
        return cls(mean, variance, mean + tf.sqrt(variance) * xi)


class Encoder(gpflow.Module, ABC):
    """An amortised sampler of codes: ``Y [batch..., N, P]`` to ``latents [batch..., N, L]``.

    An encoder of your own has ``latent_dim`` and :meth:`sample`. ``Y`` has zeros where missing.
    """

    latent_dim: int
    takes_mask = False
    """Whether calls have ``mask [batch..., N, P]``, True where observed, None where nothing is
    missing."""
    takes_indices = False
    """Whether it holds codes of the training data, so that calls have :attr:`Batch.indices`."""

    @abstractmethod
    def sample(self, Y: TensorType, seed: TensorType, **side: Any) -> tf.Tensor:
        """One draw of the codes [batch..., N, L]; equal seeds give equal draws."""

    def side_inputs(
        self, mask: TensorType | None, indices: TensorType | None = None
    ) -> dict[str, Any]:
        """The keyword arguments of a call beside the observations.

        :param indices: which items of the training data these are, as in
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
        """Variables that belong to single items, which come first; () where all is amortised."""
        return ()

    def codes_of_rows(
        self, Y: tf.Tensor, mask: tf.Tensor | None, noise: Noise, num_draws: int
    ) -> RowCodes:
        """Draws whose noise all rows ``Y [rows, P]`` share, as serving needs them.

        :raises TypeError: for an encoder that has none.
        """
        raise TypeError(
            f"{type(self).__name__} has no codes_of_rows, which serving needs: derive it from "
            "BaseGaussianEncoder or StochasticEncoder, or write that method."
        )


class DensityEncoder(Encoder):
    """An encoder whose draws have a density."""

    @abstractmethod
    def log_prob(self, Y: TensorType, latents: TensorType, **side: Any) -> tf.Tensor:
        """Log density [batch..., N] of ``latents [batch..., N, L]`` given ``Y``."""


def append_mask(Y: TensorType, mask: TensorType | None, num_outputs: int) -> tf.Tensor:
    """``[Y, mask as 0/1]``, [batch..., N, 2 P]: what the network of a mask-taking encoder sees.

    :param num_outputs: P as the network has it.
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
