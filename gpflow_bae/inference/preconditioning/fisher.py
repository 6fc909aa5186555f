"""Preconditioning by prior and Fisher information, fitted to a chain during burn-in.

For most weights the information of the data exceeds the prior precision by factors of 10^4 to 10^9,
which differ between and within layers; the largest limits the step size of a sampler with unit
mass. The information is estimated at the chain's state (:mod:`.information`). :mod:`.kronecker`
describes the maps of parameters, and :mod:`.prior` those of codes under a smooth GP.

The information at one state is not typical of the posterior: if a hidden unit is saturated, that on
its weights is zero, but it is large as soon as they change. So maps are first fitted to single
states, until the chain approaches stationarity; finally their scales are fitted to the average
information over a quarter of burn-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf

from ...core.tracing import compiled
from ...data import Observations
from ...mcmc import State
from ...mcmc.noise import fold_in, split
from ...models import BayesianAutoencoder, TemperedBAE
from ..chain_state import Chain, Point
from ..chains import map_chains, of_chain
from .information import FisherInformation
from .kronecker import fisher_maps, identity_map, rescaled, squares_along
from .linear_map import KroneckerMap, PointMap
from .preconditioner import Preconditioner
from .prior import code_map

__all__ = ["FisherMetric", "FisherPreconditioner"]

_SEED = 0x3E  # folded into the seed of a round
_DRAWS = 300
_POINTS = 128  # in a draw, rounded up to whole tasks
_LEAST_PRECISION = 0.01  # lower limit of prior precisions: no scale exceeds 10
# A parameter without information at its current value may have some elsewhere, such as an inducing
# input that does not affect the density yet. With larger scales than this share of the mean
# information allows, step sizes have collapsed (rotated MNIST: 0.003 instead of 0.14).
_RELATIVE_DAMPING = 1e-3
# Fractions of burn-in at which maps are fitted. From the last of them to _AVERAGED_UNTIL the
# information is averaged; the rest of burn-in adapts the step size.
_FITS = (0.0, 1 / 16, 1 / 8, 1 / 4)
_AVERAGED_UNTIL = 1 / 2


class FisherMetric(NamedTuple):
    """The preconditioner of a chain, a part of its state."""

    parameters: tuple[KroneckerMap, ...]
    information: Any = ()  # on each code [T, N, L, L]; () if codes are not preconditioned
    squares: tuple[tf.Tensor, ...] = ()  # sums of squared draws along the bases, for the average


class FisherPreconditioner(Preconditioner):
    """Preconditioner of sampled parameters and codes that is fitted to the states of chains."""

    kind = "fisher"

    def __init__(
        self,
        model: BayesianAutoencoder | TemperedBAE,
        data: Observations,
        burnin_rounds: int,
        restart: Callable[[Point], State],
        owned: Sequence[str] = (),
        batch_size: int | None = None,
    ):
        """Arguments as in :class:`~.preconditioner.Preconditioner`, and:

        :param burnin_rounds: number of burn-in rounds of the run.
        :param restart: returns a sampler's initial state at a position, from which a chain
            continues after a fit.
        """
        super().__init__(model, data, owned, batch_size)
        self._fits = {int(share * burnin_rounds) for share in _FITS}
        # Draws for the average are made before each of these rounds.
        averaged = range(max(self._fits) + 1, int(_AVERAGED_UNTIL * burnin_rounds) + 1)
        self._averaged, self._draws = averaged, -(-_DRAWS // max(len(averaged), 1))
        self._restart = restart
        self._fit_chains = compiled(self._mapped(self._fitted))
        self._average_chains = compiled(self._mapped(self._averaged_further))
        self._finish_chains = compiled(self._mapped(self._with_average))
        points = 1 if data.axis == 1 else int(data.Y.shape[1])
        self._fisher = FisherInformation(model, data, min(data.num_items, -(-_POINTS // points)))

    def initial(self) -> FisherMetric:
        """Return the metric before a fit: identity for parameters, prior whitening for codes."""
        maps = tuple(identity_map(v) for v in self.model.sampled.values())
        squares = tuple(tf.zeros_like(m.scale) for m in maps)
        if not self.maps_codes:
            return FisherMetric(maps, (), squares)
        L = self.model.latent_dim
        shape = [*self.data.Y.shape[:2], L, L]
        return FisherMetric(maps, tf.zeros(shape, gpflow.default_float()), squares)

    def map_at(
        self,
        metric: Any,
        parameters: Sequence[tf.Tensor],
        X: tf.Tensor | None,
        indices: tf.Tensor | None = None,
    ) -> PointMap:
        if not self.maps_codes:
            return PointMap(metric.parameters)
        information = metric.information
        if indices is not None:
            information = tf.gather(information, indices)
        return PointMap(metric.parameters, code_map(self.model, parameters, X, information))

    def before_round(self, chains: Chain, number: int, seeds: tf.Tensor) -> Chain:
        if number in self._fits:
            return self._fit_chains(chains, seeds)
        if number in self._averaged:
            chains = self._average_chains(chains, seeds)
            return self._finish_chains(chains, seeds) if number == self._averaged[-1] else chains
        return chains

    def _mapped(self, function: Callable[[Chain, tf.Tensor], Chain]) -> Callable[..., Chain]:
        """Map a function over chains, with a seed that is used only for preconditioning."""

        def of_one(chain: Chain, seed: tf.Tensor) -> Chain:
            return function(chain, fold_in(seed, _SEED))

        def of_all(chains: Chain, seeds: tf.Tensor) -> Chain:
            return map_chains(of_one, (chains, seeds), like=lambda: of_chain(chains, 0))

        return of_all

    def _fitted(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position = chain.sampler.position
        return chain._replace(sampler=self._restart(position), metric=self.fit(position, seed))

    def _averaged_further(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        squares = squares_along(
            metric.parameters,
            lambda seed: self._fisher.draw(position, seed),
            split(seed, self._draws),
            metric.squares,
        )
        return chain._replace(metric=metric._replace(squares=squares))

    def _with_average(self, chain: Chain, seed: tf.Tensor) -> Chain:
        position, metric = chain.sampler.position, chain.metric
        number = self._draws * len(self._averaged)
        information = [total / number for total in metric.squares]
        precision = self._fisher.precision(position, _LEAST_PRECISION)
        maps = rescaled(metric.parameters, information, precision, _RELATIVE_DAMPING)
        if self.maps_codes:
            metric = metric._replace(information=self._fisher.of_codes(position, seed))
        metric = metric._replace(parameters=maps)
        return chain._replace(sampler=self._restart(position), metric=metric)

    def fit(self, position: Point, seed: tf.Tensor) -> FisherMetric:
        """Return the metric fitted at a chain's position; a pure function, for compilation."""
        precision = self._fisher.precision(position, _LEAST_PRECISION)
        of_parameters, of_codes = tf.unstack(split(seed, 2))
        seeds = split(of_parameters, _DRAWS)
        maps = fisher_maps(
            lambda seed: self._fisher.draw(position, seed), seeds, precision, _RELATIVE_DAMPING
        )
        information = self._fisher.of_codes(position, of_codes) if self.maps_codes else ()
        return FisherMetric(maps, information, tuple(tf.zeros_like(p) for p in precision))
