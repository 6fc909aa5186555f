"""When a preconditioner is fitted, and which map the steps of a round have.

A sampler with unit mass moves every coordinate as far as the stiffest of them allows. Codes under a
smooth GP are stiff: across a video they may hardly differ from one frame to the next, by the code
noise, and yet move by a prior standard deviation together. Their prior covariance is known, so
steps are made in whitened coordinates, codes = F u with F F^T = K(X, X) + noise, and in weights
divided by their prior standard deviations; or, where the data say more of them than the prior does,
in coordinates that add to the precision of the prior the information of the data
(:mod:`gpflow_bae.inference.preconditioning.fisher`).

The map is linear, and depends on nothing that the steps change: kernel parameters, code noise and
inducing inputs are drawn between rounds (:mod:`gpflow_bae.inference.moves`). Given those the
density in the new coordinates is the old one times a constant, and momenta are standard normal in
them whatever they are. So a round leaves the posterior invariant, and the next round has the map of
the new values.
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

_MOST_NUMBERS = 50_000_000  # of all factors of codes


class Preconditioner:
    """White under the prior: known at once, and without a state."""

    kind = "prior"

    def __init__(
        self,
        model: BayesianAutoencoder | TemperedBAE,
        data: Observations,
        owned: Sequence[str] = (),
        batch_size: int | None = None,
    ):
        """
        :param owned: paths of the parameters that steps do not move.
        :param batch_size: items of a minibatch; None for all.
        :raises ValueError: for a map that steps would change, or that does not fit into memory.
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
        """Return what a chain keeps of it, before its first round."""
        return ()

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        """Return chains as they go into a round of this number: fitted, where it is time.

        :param seeds: one for each chain [C, 2].
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

        :param metric: what the chain keeps.
        :param parameters: unconstrained values, in the order of ``model.sampled.paths``.
        :param X: inputs of the tasks that the steps see [T, N, D].
        :param indices: of these tasks among all; None for all.
        """
        return PointMap(
            prior_scales(self.model, parameters),
            code_map(self.model, parameters, X) if self.maps_codes else None,
        )
