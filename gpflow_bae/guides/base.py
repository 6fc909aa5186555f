"""Base classes of guides, and draws of codes that estimate a bound."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..base import Batch, Snapshot
from ..core.arguments import kind_of
from ..encoders import BaseGaussianEncoder, Encoder
from ..latent_priors.base import LOG_2PI, UNINFORMATIVE_VARIANCE, LatentProcess

__all__ = [
    "BoundGuide",
    "CodeDraws",
    "Guide",
    "log_density_of_empty",
    "uninformative_where_empty",
]


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
    """Replace pseudo-observations of unobserved points by uninformative ones (huge variance).

    :param mask: True where observed; None if nothing is missing.
    """
    if mask is None:
        return mean, variance
    seen = tf.reduce_any(tf.cast(mask, tf.bool), axis=-1, keepdims=True)
    huge = tf.cast(UNINFORMATIVE_VARIANCE, variance.dtype)
    return tf.where(seen, mean, tf.zeros_like(mean)), tf.where(seen, variance, huge)


@check_shapes("mask: [batch..., N, P]", "return: [batch...]")
def log_density_of_empty(mask: TensorType, latent_dim: int) -> tf.Tensor:
    """Return the log density of uninformative pseudo-observations, which an evidence includes.

    :param mask: True where observed.
    """
    seen = tf.reduce_any(tf.cast(mask, tf.bool), axis=-1)
    count = tf.reduce_sum(tf.cast(~seen, gpflow.default_float()), axis=-1)
    return -0.5 * latent_dim * (LOG_2PI + math.log(UNINFORMATIVE_VARIANCE)) * count


class Guide(gpflow.Module, ABC):
    """Base class of guides, which infer codes by an encoder; every call receives the prior."""

    def __init__(self, encoder: Encoder):
        """
        :raises TypeError: if ``encoder`` is not an ``Encoder``.
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

    def spread(self, batch: Batch) -> tf.Tensor | None:
        """Return variances [T, N, L] of the codes of a batch around its pseudo-observations.

        They are to be added at these points to moments given pseudo-observations without noise.
        None, the default, for pseudo-observations that have noise of their own.
        """
        return None


class CodeDraws(NamedTuple):
    """Reparameterised draws of the codes of one batch, and their divergence from the prior."""

    latents: tf.Tensor  # [S, T, N, L]
    divergence: tf.Tensor  # [], the batch's share of KL[q || prior] in nats; an estimate for flows


class BoundGuide(Guide):
    """Base class of guides with a density of the codes, and so an evidence lower bound."""

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
        """Variables with a row for each item (the first axis); () if codes are amortised."""
        return self.encoder.row_variables

    @property
    def is_amortized(self) -> bool:
        """Whether it infers codes of items outside of the training data."""
        return not self.encoder.takes_indices

    def splits_over_points(self, prior: LatentProcess) -> bool:
        """Return whether the points of a single task can be taken in minibatches."""
        return prior.splits_over_points

    def snapshot(self, data: Any) -> Snapshot | None:
        """Return the codes of all points that :meth:`draw` needs for minibatches, if any."""
        return None

    def moments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the encoder's means and variances [T, N, L]."""
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
        """Draw the codes of a batch; equal seeds give equal draws."""
