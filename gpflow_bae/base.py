"""Types and protocols that the rooms of the package share.

Letters, as in GPflow: ``X [batch..., N, D]`` inputs, ``Y [batch..., N, P]`` observations,
``latents [batch..., N, L]`` codes, ``M`` inducing points, ``S`` posterior samples. Leading batch
dimensions are independent tasks (videos, weeks, patients) that share every parameter.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["Batch", "Decoder", "Encoder", "LatentPosterior", "LatentPrior", "TensorType"]


class Batch(NamedTuple):
    """What a model sees of the data in one evaluation.

    ``X`` may have a leading dimension of 1 where all tasks share their inputs, and is None for
    models without inputs. ``Y`` holds zeros, never NaN, where ``mask`` is False.
    """

    X: tf.Tensor | None  # [T or 1, N, D]
    Y: tf.Tensor  # [T, N, P]
    mask: tf.Tensor | None  # [T, N, P], True where observed; None where nothing is missing


class LatentPosterior(NamedTuple):
    """Codes given Gaussian pseudo-observations of them: marginal moments and evidence."""

    mean: tf.Tensor  # [batch..., N, L]
    variance: tf.Tensor  # [batch..., N, L]
    log_marginal: tf.Tensor  # [batch...]


@runtime_checkable
class LatentPrior(Protocol):
    """A prior over codes given inputs; it never sees observations."""

    latent_dim: int
    needs_inputs: bool

    def log_prob(self, X: TensorType | None, latents: TensorType) -> tf.Tensor:
        """Log density of ``latents [batch..., N, L]`` given ``X [batch..., N, D]``: [batch...]."""
        ...

    def condition(
        self, X: TensorType | None, mean: TensorType, variance: TensorType
    ) -> LatentPosterior:
        """Codes given pseudo-observations ``mean ~ N(latents, variance)``, [batch..., N, L]."""
        ...

    def predict(
        self,
        Xnew: TensorType | None,
        X: TensorType | None,
        mean: TensorType,
        variance: TensorType,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [batch..., Nnew, L] at ``Xnew`` given pseudo-observations at ``X``."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """A map from codes ``[batch..., N, L]`` to likelihood parameters ``[batch..., N, P]``."""

    output_dim: int

    def __call__(self, latents: TensorType) -> tf.Tensor: ...


@runtime_checkable
class Encoder(Protocol):
    """An amortised sampler of codes: ``Y [batch..., N, P]`` to ``latents [batch..., N, L]``."""

    latent_dim: int

    def sample(self, Y: TensorType, seed: TensorType, **kwargs: Any) -> tf.Tensor:
        """One draw of the codes; equal seeds give equal draws."""
        ...
