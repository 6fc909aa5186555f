"""Data and model types that are shared by the package.

Notation, as in GPflow: ``X [batch..., N, D]`` inputs, ``Y [batch..., N, P]`` observations,
``latents [batch..., N, L]`` codes, ``M`` inducing points, ``S`` posterior samples. Leading batch
dimensions are independent tasks (videos, weeks, patients) that share every parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import Parameter, TensorType

__all__ = [
    "Batch",
    "Cells",
    "Conditionals",
    "LatentPosterior",
    "Neighbours",
    "Snapshot",
    "TensorType",
    "VariationalModel",
    "VariationalTerms",
]


class Cells(NamedTuple):
    """The subset of outputs in a batch."""

    columns: tf.Tensor  # output indices in Y: [E], or [B, E] if they differ between points
    weights: tf.Tensor  # number of entries that each entry of Y represents, broadcasts to Y


class Neighbours(NamedTuple):
    """The m neighbours of each of the B points of a batch, concatenated."""

    X: tf.Tensor  # [1, B m, D]
    Y: tf.Tensor  # [1, B m, P], zeros where missing
    mask: tf.Tensor | None  # [1, B m, P]
    indices: tf.Tensor  # [B m], their indices in the data
    present: tf.Tensor  # [B, m], False where a point has fewer than m


class Conditionals(NamedTuple):
    """All conditionals p(latent | m neighbours) of a Vecchia prior that contain codes of a batch.

    These are F conditionals, each of a point (last) given its neighbours: those of the batch's B
    points, in their order, then those of all other points with a neighbour in the batch.
    """

    X: tf.Tensor  # [1, F, m + 1, D]
    codes: tf.Tensor  # [1, F, m + 1, L], used for points outside of the batch
    places: tf.Tensor  # [F, m + 1], their indices in the batch, -1 for points outside
    present: tf.Tensor  # [F, m + 1], False where a point has fewer than m neighbours
    weights: tf.Tensor  # [F], 1, or 0 for padding rows


class Batch(NamedTuple):
    """The data of one evaluation of a model.

    ``X`` may have a leading dimension of 1 if all tasks share their inputs, and is None for
    models without inputs. ``Y`` is zero, never NaN, where ``mask`` is False.
    """

    X: tf.Tensor | None  # [T or 1, N, D]
    Y: tf.Tensor  # [T, N, P]
    mask: tf.Tensor | None  # [T, N, P], True where observed; None if nothing is missing
    scale: float = 1.0  # N/B, the factor by which sums over the batch estimate those over the data
    point_scale: float = 1.0  # the same if the items are points of a single task, else 1
    indices: tf.Tensor | None = None  # [B], their indices in the data; None for all
    cells: Cells | None = None  # None for all outputs
    near: Neighbours | Conditionals | None = None  # what a Vecchia prior needs of other points


class Snapshot(NamedTuple):
    """The codes of all points of a single task, a few steps old."""

    X: tf.Tensor  # [1, N, D]
    codes: tf.Tensor  # [1, N, L]
    seen: tf.Tensor | None = None  # [1, N, 1], whether a point has observations; None if all have


class VariationalTerms(NamedTuple):
    """The two terms of an evidence lower bound, for the items of one batch, in nats."""

    expected_log_likelihood: tf.Tensor  # E_q[log p(Y | latents)], one draw of the codes
    divergence: tf.Tensor  # the batch's share of KL[q || prior]: N/B of it estimates the whole
    F: tf.Tensor  # [T, N, P], the decoder's outputs


class LatentPosterior(NamedTuple):
    """Marginal moments of codes given Gaussian pseudo-observations, and the log evidence."""

    mean: tf.Tensor  # [batch..., N, L]
    variance: tf.Tensor  # [batch..., N, L]
    log_marginal: tf.Tensor  # [batch...]


class VariationalModel(ABC):
    """Interface of models with an evidence lower bound, to be implemented by a ``tf.Module``.

    Implement :meth:`terms`, ``decoder`` (with ``output_dim``) and :attr:`observation_likelihood`;
    the other members declare optional features.
    """

    decoder: Any

    @abstractmethod
    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """Return the terms of the evidence lower bound of a batch.

        :param snapshot: a recent result of :meth:`snapshot`.
        """

    def batch_elbo(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> tf.Tensor:
        """Return an estimate of a batch's evidence lower bound, in nats, not scaled by N/B."""
        terms = self.terms(batch, seed, snapshot)
        return terms.expected_log_likelihood - terms.divergence

    @property
    @abstractmethod
    def observation_likelihood(self) -> Any:
        """The likelihood of observations given what the decoder returns."""

    @property
    @abstractmethod
    def trainable_variables(self) -> Any:
        """Variables to fit."""

    @property
    def needs_inputs(self) -> bool:
        """Whether the prior over codes depends on inputs X."""
        return False

    @property
    def inputs(self) -> Any:
        """The model of unknown inputs (:mod:`gpflow_bae.inputs`); None if all are known."""
        return None

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return True

    @property
    def splits_over_outputs(self) -> bool:
        """Whether the bound is also a sum over outputs, which may be taken in minibatches."""
        return False

    @property
    def is_amortized(self) -> bool:
        """Whether codes are inferred from complete rows, so that triplets cannot be minibatches."""
        return True

    @property
    def latent_prior_name(self) -> str:
        """Name of the prior over codes in error messages."""
        return type(self).__name__

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Parameters whose log prior density is added to the bound (MAP), if requested."""
        return ()

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the latent prior, which may have a learning rate of their own."""
        return ()

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables with a row for each item; a minibatch updates only the rows of its items."""
        return ()

    @property
    def natural_parameters(self) -> list[tuple[Parameter, Parameter]]:
        """Mean and root of each free q(u), for ``gpflow.optimizers.NaturalGradient``."""
        return []

    def snapshot(self, data: Any) -> Snapshot | None:
        """Return the codes of all points that :meth:`terms` needs for minibatches, if any."""
        return None
