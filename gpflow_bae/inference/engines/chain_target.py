"""Gradient and density oracles of a minibatch, for the chains of an engine."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...base import Batch
from ...core.parameter_set import ParameterSet
from ...mcmc import Target
from ...mcmc.calibrated import targets
from ...mcmc.noise import fold_in
from ..chain_state import Point
from ..moves import Move
from ..settings import AmortizedSettings
from ..sharding.replicas import Share
from ..sharding.spread import Spread
from .control_variates import Reference, controlled

__all__ = ["PRIOR_DRAWS", "ChainTarget"]

PRIOR_DRAWS = 0x9D
"""Folded into the seed of a step, for the draws of a prior over codes."""


class ChainTarget:
    """The log posterior of one chain's parameters and codes, and estimates from minibatches.

    A subclass defines :meth:`log_likelihood`.
    """

    data: Any
    settings: AmortizedSettings
    sampled: ParameterSet
    spread: Spread
    moves: tuple[Move, ...]

    @property
    def owned(self) -> tuple[str, ...]:
        """Paths of parameters that are updated by moves only, not by the sampler."""
        return tuple(path for move in self.moves for path in move.owned)

    def log_prior(self, position: Point) -> tf.Tensor:
        """Return the log prior of one chain's parameters."""
        return self.sampled.log_prior(position.parameters)

    def log_likelihood(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the log density of one chain's codes and observations, summed over the batch.

        :param seed: seed of the prior's draws, if it makes any; None for the prior's own seed.
        """
        raise NotImplementedError

    def log_density_gradient(
        self, position: Point, batch: Batch, seed: tf.Tensor | None = None
    ) -> Point:
        """Estimate the gradient of the log posterior from ``batch`` in one backward pass.

        The parameters' gradient is scaled by N/B, and is zero for those that moves own. That of a
        code is not scaled, as only its own point informs it (eq. 3 of Tran et al. 2023 and their
        code scale it too, which over-concentrates it).
        """
        axis = self.data.axis

        def density(position: Point, share: Share) -> tf.Tensor:
            own = position._replace(codes=share.cut(position.codes, axis))
            scaled = batch.scale * self.log_likelihood(own, share.of(batch, axis), seed)
            return scaled + self.log_prior(own) if share.is_first else scaled

        found: Point
        _, found = self.spread.gradients.value_and_gradient(density, position, batch.Y.shape[axis])
        if owned := self.owned:
            moved = zip(self.sampled.paths, found.parameters, strict=True)
            kept = tuple(tf.zeros_like(g) if path in owned else g for path, g in moved)
            found = found._replace(parameters=kept)
        if not tf.is_tensor(found.codes):
            return found
        return found._replace(codes=found.codes / tf.cast(batch.scale, found.codes.dtype))

    def target(self, batch: Batch, reference: Reference | None = None) -> Target:
        """Return the gradient oracle of ``batch``, and the density oracle if that is all data.

        :param reference: start of the round, for gradients with control variates.
        """

        def gradient(position: Point, seed: tf.Tensor) -> Point:
            prior_seed = fold_in(seed, PRIOR_DRAWS)
            here = self.log_density_gradient(position, batch, prior_seed)
            if reference is None:
                return here
            seen = batch if reference.batch is None else reference.batch
            there = self.log_density_gradient(reference.position, seen, prior_seed)
            return controlled(here, there, reference)

        if batch.scale != 1.0:
            return Target(gradient)
        evaluate = targets.target(lambda p: self.log_likelihood(p, batch), self.log_prior)
        return Target(gradient, evaluate)

    def reference(self, position: Point, seed: tf.Tensor) -> Reference | None:
        """Return a round's start and the gradient of all data there; None without control variates.

        :param seed: seed of the prior's draws, if it makes any.
        """
        if self.settings.gradients != "control_variates":
            return None
        full = self.log_density_gradient(position, self.data.gather(None), seed)
        return Reference(position, full.parameters)
