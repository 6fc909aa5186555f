"""What guides share: an encoder, and draws of codes that a bound is estimated with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..base import Batch, Snapshot
from ..core.arguments import kind_of
from ..encoders import BaseGaussianEncoder, Encoder
from ..latent_priors.base import LatentProcess

__all__ = ["BoundGuide", "CodeDraws", "Guide", "uninformative_where_empty"]

# A pseudo-observation of this variance changes a posterior by one part in 1e10 for a prior variance
# of 1, and costs no digits in float64 (its log is added and subtracted again in the bound).
UNINFORMATIVE_VARIANCE = 1e10


@check_shapes(
    "mean: [batch..., N, L]",
    "variance: [batch..., N, L]",
    "mask: [batch..., N, P]",
    "return[0]: [batch..., N, L]",
    "return[1]: [batch..., N, L]",
)
def uninformative_where_empty(
    mean: TensorType, variance: TensorType, mask: TensorType | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pseudo-observations that say nothing where nothing is observed: mean 0 and a huge variance.

    :param mask: True where observed; None where nothing is missing.
    """
    if mask is None:
        return mean, variance
    seen = tf.reduce_any(tf.cast(mask, tf.bool), axis=-1, keepdims=True)
    huge = tf.cast(UNINFORMATIVE_VARIANCE, variance.dtype)
    return tf.where(seen, mean, tf.zeros_like(mean)), tf.where(seen, variance, huge)


class Guide(gpflow.Module, ABC):
    """How codes are inferred, with an encoder's help. The prior is given to it in every call."""

    def __init__(self, encoder: Encoder):
        """
        :raises TypeError: for anything but an encoder.
        """
        super().__init__(name=None)
        if not isinstance(encoder, Encoder):
            raise TypeError(
                "encoder must be one of gpflow_bae.encoders, or of a class that extends "
                f"gpflow_bae.encoders.Encoder, got {kind_of(encoder)}."
            )
        self.encoder = encoder

    @property
    def latent_dim(self) -> int:
        """Number of code channels L."""
        return self.encoder.latent_dim


class CodeDraws(NamedTuple):
    """Reparameterised draws of the codes of one batch, and what they cost."""

    latents: tf.Tensor  # [S, T, N, L]
    divergence: tf.Tensor  # [], the batch's share of KL[q || prior] in nats; flows estimate it


class BoundGuide(Guide):
    """A guide with a density, so that its codes have an evidence lower bound."""

    encoder: BaseGaussianEncoder

    def __init__(self, encoder: Encoder):
        """
        :raises TypeError: if the encoder is not Gaussian.
        """
        super().__init__(encoder)
        if not isinstance(encoder, BaseGaussianEncoder):
            raise TypeError(
                "A bound needs the density of the codes: encoder must be Gaussian, such as "
                f"GaussianEncoder or FreeFormEncoder, got {kind_of(encoder)}."
            )

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that belong to single items, which come first; () where all is amortised."""
        return self.encoder.row_variables

    @property
    def is_amortized(self) -> bool:
        """Whether it knows codes of items that it was not fitted to."""
        return not self.encoder.takes_indices

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """Whether the bound can take the points of a single task in minibatches."""
        return prior.splits_over_points

    def snapshot(self, data: Any) -> Snapshot | None:
        """What :meth:`draw` must know of points outside of the batch, if anything."""
        return None

    def moments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's means and variances [T, N, L] as it emits them."""
        side = self.encoder.side_inputs(batch.mask, batch.indices)
        return self.encoder(batch.Y, **side)

    @abstractmethod
    def draw(
        self,
        prior: LatentProcess,
        batch: Batch,
        num_draws: int,
        seed: TensorType,
        snapshot: Snapshot | None = None,
    ) -> CodeDraws:
        """Draws of the codes of a batch; equal seeds give equal draws."""
