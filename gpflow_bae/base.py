"""Types that the rooms of the package share.

Letters, as in GPflow: ``X [batch..., N, D]`` inputs, ``Y [batch..., N, P]`` observations,
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
    """Which outputs a batch holds, where it does not hold all."""

    columns: tf.Tensor  # [E], or [B, E] for each point's own: the outputs in Y
    weights: tf.Tensor  # how many entries each of Y stands for, broadcasts to it


class Neighbours(NamedTuple):
    """The points that those of a batch are conditioned on, m for each of B, one after the other."""

    X: tf.Tensor  # [1, B m, D]
    Y: tf.Tensor  # [1, B m, P], zeros where missing
    mask: tf.Tensor | None  # [1, B m, P]
    indices: tf.Tensor  # [B m], which points of the data these are
    present: tf.Tensor  # [B, m], False where a point has fewer than m


class Conditionals(NamedTuple):
    """All conditionals of a prior by neighbours, p(latent | m others), that hold codes of a batch.

    Of its B points, in their order, and of each other point that has some of them as neighbours,
    once: F conditionals, of a point (last) given its neighbours.
    """

    X: tf.Tensor  # [1, F, m + 1, D]
    codes: tf.Tensor  # [1, F, m + 1, L], those of points outside of the batch
    places: tf.Tensor  # [F, m + 1], which of the batch's points these are, -1 for none
    present: tf.Tensor  # [F, m + 1], False where a point has fewer neighbours than m
    weights: tf.Tensor  # [F], 1; 0 of rows that only fill up a fixed shape


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
    cells: Cells | None = None  # None where all outputs are there
    neighbours: Neighbours | None = None  # where the prior asks for them, of some points
    conditionals: Conditionals | None = None  # the same where codes of all points are carried


class Snapshot(NamedTuple):
    """The codes that all points of a single task had a few steps ago."""

    X: tf.Tensor  # [1, N, D]
    codes: tf.Tensor  # [1, N, L]


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


class VariationalModel(ABC):
    """What the variational engine fits: a ``tf.Module`` with a bound.

    A model of your own has :meth:`terms`, ``decoder`` (with ``output_dim``) and
    :attr:`observation_likelihood`; the other members say what it offers beyond that.
    """

    decoder: Any

    @abstractmethod
    def terms(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> VariationalTerms:
        """The terms of the evidence lower bound of a batch.

        :param snapshot: what :meth:`snapshot` returned a few steps ago.
        """

    def batch_elbo(
        self, batch: Batch, seed: TensorType, snapshot: Snapshot | None = None
    ) -> tf.Tensor:
        """Evidence lower bound of a batch, one estimate, in nats; the engine scales it by N/B."""
        terms = self.terms(batch, seed, snapshot)
        return terms.expected_log_likelihood - terms.divergence

    @property
    @abstractmethod
    def observation_likelihood(self) -> Any:
        """The likelihood of observations given what the decoder returns."""

    @property
    @abstractmethod
    def trainable_variables(self) -> Any:
        """What is fitted."""

    @property
    def needs_inputs(self) -> bool:
        """Whether the prior over codes is one given inputs X."""
        return False

    @property
    def inputs(self) -> Any:
        """What completes inputs that are not known (:mod:`gpflow_bae.inputs`); None for nothing."""
        return None

    @property
    def splits_over_points(self) -> bool:
        """Whether the points of a single task may be taken in minibatches."""
        return True

    @property
    def splits_over_outputs(self) -> bool:
        """Whether the bound is a sum over outputs too, so that minibatches may take some."""
        return False

    @property
    def is_amortized(self) -> bool:
        """Whether codes are made from complete rows, so that triplets will not do."""
        return True

    @property
    def latent_prior_name(self) -> str:
        """What errors call the prior over codes."""
        return type(self).__name__

    def neighbours_of(self, X: TensorType) -> tf.Tensor | None:
        """Which points [N, m] those of a single task are conditioned on, -1 for none.

        :param X: all inputs [1, N, D].
        :return: None where minibatches need not bring other points with them.
        """
        return None

    @property
    def prior_parameters(self) -> tuple[Parameter, ...]:
        """Parameters whose log prior density joins the bound (MAP), where the engine is told to."""
        return ()

    @property
    def latent_prior_variables(self) -> tuple[tf.Variable, ...]:
        """Variables of the latent prior, which may have a learning rate of their own."""
        return ()

    @property
    def row_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that belong to single items; a minibatch moves those of its own items."""
        return ()

    @property
    def natural_parameters(self) -> list[tuple[Parameter, Parameter]]:
        """Mean and root of each free q(u), for ``gpflow.optimizers.NaturalGradient``."""
        return []

    def snapshot(self, data: Any) -> Snapshot | None:
        """What :meth:`terms` must know of points outside of the batch, if anything."""
        return None
