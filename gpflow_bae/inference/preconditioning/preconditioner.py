"""Preconditioners of a sampler's rounds: the base class, and preconditioning by the prior.

The stiffest direction limits the step size of a sampler with unit mass. Codes under a smooth GP are
stiff: those of successive video frames differ by little more than the code noise, while all of them
together vary by a prior standard deviation. Their prior covariance is known, so the sampler takes
steps in whitened coordinates, codes = F u with F F^T = K(X, X) + noise, and in weights divided by
their prior standard deviations; or, if the data are more informative than the prior, in coordinates
that add the Fisher information of the data to the prior precision
(:mod:`gpflow_bae.inference.preconditioning.fisher`).

The map is linear and depends on nothing that the steps change: kernel parameters, code noise and
inducing inputs are updated between rounds (:mod:`gpflow_bae.inference.moves`). Given those, the
density in the new coordinates differs by a constant factor, and momenta are standard normal in any
coordinates. So a round leaves the posterior invariant, and the next round uses the map of the new
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...data import Observations
from ...models import BayesianAutoencoder, TemperedBAE
from ..chain_state import Chain
from .linear_map import PointMap
from .prior import code_map, has_code_covariance, prior_scales

__all__ = ["Preconditioner"]

_MOST_NUMBERS = 50_000_000  # largest number of elements of all factors of codes


class Preconditioner:
    """Preconditioning by the prior, which needs no fit and no state; base class of others."""

    kind = "prior"

    def __init__(
        self,
        model: BayesianAutoencoder | TemperedBAE,
        data: Observations,
        owned: Sequence[str] = (),
        batch_size: int | None = None,
    ):
        """
        :param owned: paths of the parameters that moves update instead of the sampler.
        :param batch_size: number of items in a minibatch; None for all.
        :raises ValueError: if the map depends on parameters that the sampler updates or needs the
            codes of other points than a minibatch's, or if its factors are too large.
        """
        self.model, self.data = model, data
        self.maps_codes = has_code_covariance(model, data)
        if self.maps_codes:
            self._check_codes(owned, batch_size)

    def _check_codes(self, owned: Sequence[str], batch_size: int | None) -> None:
        sampled, prior, data = self.model.sampled, self.model.latent_prior, self.data
        used = {id(p) for p in prior.parameters}
        moved = [
            path
            for path, p in zip(sampled.paths, sampled.parameters, strict=True)
            if id(p) in used and path not in owned
        ]
        if moved:
            raise ValueError(
                f'coordinates="{self.kind}" depend on {", ".join(moved[:3])}, which the sampler\'s '
                'steps change: let moves draw them, moves=("code_scale", "prior_parameters") as '
                'far as the model allows them, or set coordinates="none".'
            )
        if data.axis == 1 and batch_size is not None:
            raise ValueError(
                f'coordinates="{self.kind}" mix the codes of all points of a task, of which '
                f"minibatches of batch_size={batch_size} see some: set batch_size=None, or "
                'coordinates="none".'
            )
        T, N = data.Y.shape[:2]
        channels = prior.latent_dim**2 if self.kind == "fisher" else len(prior.kernels)
        if T * channels * N * N > _MOST_NUMBERS:
            raise ValueError(
                f'coordinates="{self.kind}" factorise the covariance of the codes of each task, '
                f"and {T} tasks of {N} points are too many numbers for that: set "
                'coordinates="none".'
            )

    def initial(self) -> Any:
        """Return the initial metric of a chain, which is part of its state."""
        return ()

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        """Return chains before round ``number``, with new metrics if these are fitted now.

        :param seeds: seeds [C, 2], one for each chain.
        """
        return chains

    def map_at(
        self,
        metric: Any,
        parameters: Sequence[tf.Tensor],
        X: tf.Tensor | None,
        indices: tf.Tensor | None = None,
    ) -> PointMap:
        """Return the map of a chain's steps.

        :param metric: the chain's metric.
        :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
        :param X: inputs [T, N, D] of the tasks in the minibatch.
        :param indices: indices of these tasks; None for all tasks.
        """
        return PointMap(
            prior_scales(self.model, parameters),
            code_map(self.model, parameters, X) if self.maps_codes else None,
        )
