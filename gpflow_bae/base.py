"""Types and protocols that the rooms of the package share.

Letters, as in GPflow: ``X [batch..., N, D]`` inputs, ``Y [batch..., N, P]`` observations,
``latents [batch..., N, L]`` codes, ``M`` inducing points, ``S`` posterior samples. Leading batch
dimensions are independent tasks (videos, weeks, patients) that share every parameter.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf
from gpflow.base import TensorType

__all__ = [
    "Batch",
    "Decoder",
    "Encoder",
    "LatentPosterior",
    "LatentPrior",
    "Snapshot",
    "TensorType",
    "VariationalModel",
    "VariationalTerms",
]


class Snapshot(NamedTuple):
    """The codes that all points of a single task had a few steps ago."""

    X: tf.Tensor  # [1, N, D]
    codes: tf.Tensor  # [1, N, L]


class Batch(NamedTuple):
    """What a model sees of the data in one evaluation.

    ``X`` may have a leading dimension of 1 where all tasks share their inputs, and is None for
    models without inputs. ``Y`` holds zeros, never NaN, where ``mask`` is False.
    """

    X: tf.Tensor | None  # [T or 1, N, D]
    Y: tf.Tensor  # [T, N, P]
    mask: tf.Tensor | None  # [T, N, P], True where observed; None where nothing is missing
    scale: float = 1.0  # N/B, how many items each of the batch stands for: a sum over it times that
    point_scale: float = 1.0  # the same where the items are points of a single task, else 1
    indices: tf.Tensor | None = None  # [B], which items of the data these are; None for all
    snapshot: Snapshot | None = None  # of the whole data, for a bound that couples all points
    columns: tf.Tensor | None = None  # [E], or [B, E] for each point's own: the outputs in Y
    weights: tf.Tensor | None = None  # how many entries each of Y stands for, broadcasts to it
    seed: tf.Tensor | None = None  # of draws that the prior over codes makes; None for its own seed


class VariationalTerms(NamedTuple):
    """The two terms of an evidence lower bound, for the items of one batch, in nats."""

    expected_log_likelihood: tf.Tensor  # E_q[log p(Y | latents)], one draw of the codes
    divergence: tf.Tensor  # the batch's share of KL[q || prior]: N/B of it estimates the whole
    F: tf.Tensor  # [T, N, P], what the decoder made of the codes


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
class VariationalModel(Protocol):
    """What the variational engine fits: the named models, and anything with these members."""

    needs_inputs: bool

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        ...

    @property
    def latent_prior_name(self) -> str:
        """What errors call the prior over codes."""
        ...

    @property
    def decoder(self) -> Any: ...

    @property
    def trainable_variables(self) -> Any: ...

    @property
    def observation_likelihood(self) -> Any:
        """The likelihood of observations given what the decoder returns."""
        ...

    @property
    def prior_parameters(self) -> Any:
        """Parameters whose log prior density joins the bound (MAP), where the engine is told to."""
        ...

    @property
    def latent_prior_variables(self) -> Any:
        """Variables of the latent prior, which may have a learning rate of their own."""
        ...

    def snapshot(self, data: Any) -> Snapshot | None:
        """What :meth:`terms` must know of points outside of the batch, if anything."""
        ...

    def terms(self, batch: Batch, seed: TensorType) -> VariationalTerms:
        """The terms of the evidence lower bound of a batch."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """A map from codes ``[batch..., N, L]`` to likelihood parameters ``[batch..., N, P]``."""

    output_dim: int

    def __call__(self, latents: TensorType) -> tf.Tensor: ...


@runtime_checkable
class Encoder(Protocol):
    """An amortised sampler of codes: ``Y [batch..., N, P]`` to ``latents [batch..., N, L]``.

    ``Y`` has zeros where missing. An encoder with an attribute ``takes_mask`` that is True is also
    given ``mask [batch..., N, P]`` by keyword (True where observed, None where nothing is missing),
    and one with ``takes_indices`` is given :attr:`Batch.indices`.
    """

    latent_dim: int

    def sample(self, Y: TensorType, seed: TensorType, **kwargs: Any) -> tf.Tensor:
        """One draw of the codes; equal seeds give equal draws."""
        ...
